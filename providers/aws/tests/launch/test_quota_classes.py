"""Every name of an instance type has a quota class, also one that EC2 does not write today."""

from __future__ import annotations

import pytest

from karpenter_provider_aws.quotas import quota_class


@pytest.mark.parametrize("name", ["", "7i.large", "M7I.large"])
def test_a_name_without_a_family_counts_as_standard(name):
    assert quota_class(name) == "standard"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("p.large", "p"), ("p4d.24xlarge", "p"), ("p5.48xlarge", "p5"), ("p10.x", "p10")],
)
def test_from_the_fifth_generation_p_has_quotas_of_its_own(name, expected):
    assert quota_class(name) == expected
