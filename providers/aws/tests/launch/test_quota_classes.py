"""Every name of an instance type has a quota class, also one that EC2 does not write today."""

from __future__ import annotations

import pytest

from karpenter_provider_aws.quotas import quota_class


@pytest.mark.parametrize("name", ["", "7i.large", "M7I.large"])
def test_a_name_without_a_family_counts_as_standard(name):
    assert quota_class(name) == "standard"
