"""A dry run that EC2 did not answer says nothing of the NodeClass."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.findings import DryRunVerdict
from karpenter_provider_aws.node_class.dry_runs import dry_run_outcome


def refused(code):
    error = CloudProviderError(f"{code}: it does not exist")
    error.__cause__ = ClientError({"Error": {"Code": code, "Message": "x"}}, "CreateFleet")
    return error


def test_a_launch_template_that_ec2_does_not_know_yet_refuses_no_node_class():
    """It was made a moment ago; any other thing that is missing does."""
    verdicts = [
        dry_run_outcome("ec2:CreateFleet", refused(code), instance_profile="").verdict
        for code in (
            "InvalidLaunchTemplateName.NotFoundException",
            "InvalidLaunchTemplateId.NotFound",
            "InvalidSubnetID.NotFound",
        )
    ]
    assert verdicts == [DryRunVerdict.RETRY, DryRunVerdict.RETRY, DryRunVerdict.REFUSED]


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
