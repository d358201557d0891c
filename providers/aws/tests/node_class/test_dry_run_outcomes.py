"""A dry run that EC2 did not answer says nothing of the NodeClass."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.findings import DryRunVerdict
from karpenter_provider_aws.node_class.dry_runs import dry_run_outcome


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (CloudProviderError("connection reset"), DryRunVerdict.RETRY),
        (
            AuthError("Unable to locate credentials", action="ec2:RunInstances"),
            DryRunVerdict.FAILED,
        ),
    ],
)
def test_a_call_that_ec2_has_not_answered_refuses_no_node_class(error, verdict):
    """No answer tells nothing; without credentials nothing can be sent, whatever the NodeClass is."""
    outcome = dry_run_outcome("ec2:RunInstances", error, instance_profile="")

    assert outcome.verdict is verdict
    assert str(error) in outcome.message
