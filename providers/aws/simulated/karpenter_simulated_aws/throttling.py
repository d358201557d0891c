"""Limits calls with a token bucket for each action.

Buckets and refills are those of EC2's documentation ("Request throttling for the Amazon EC2 API"):
calls that read have large buckets, calls that change something small ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.kit.simulated.endpoint import CallCharge
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from karpenter_simulated_aws.protocol import ApiCall

__all__ = ["AWS_RATES", "charges", "throttled"]

_UNAVAILABLE: Final = 503

AWS_RATES: Final[Mapping[str, SimulatedCallRate]] = {
    "ec2:CreateFleet": SimulatedCallRate(bucket=100, refill=5),
    "ec2:CreateTags": SimulatedCallRate(bucket=100, refill=10),
    "ec2:DeleteTags": SimulatedCallRate(bucket=100, refill=10),
    "ec2:RunInstances": SimulatedCallRate(bucket=5, refill=2),
    "ec2:StartInstances": SimulatedCallRate(bucket=5, refill=2),
    "ec2:TerminateInstances": SimulatedCallRate(bucket=100, refill=5),
    "ec2:TerminateInstances#instances": SimulatedCallRate(bucket=1000, refill=20),
    "ec2:RunInstances#instances": SimulatedCallRate(bucket=1000, refill=2),
    "ec2:Describe*": SimulatedCallRate(bucket=100, refill=20),
    "ec2:*": SimulatedCallRate(bucket=50, refill=5),
    "ssm:GetParameter": SimulatedCallRate(bucket=40, refill=40),
    "iam:*": SimulatedCallRate(bucket=100, refill=15),
    "pricing:*": SimulatedCallRate(bucket=10, refill=5),
}
"""By pattern of service and action, first match; with `#instances`, tokens for each instance named."""


def charges(call: ApiCall) -> Iterator[CallCharge]:
    """Return the tokens of a call, and those of the instances that it names."""
    yield CallCharge(bucket=call.name)
    instances = call.parameters.get("InstanceIds")
    if instances is not None:
        counted = len(cast("Sequence[str]", instances))
        yield CallCharge(bucket=f"{call.name}#instances", tokens=counted, by_pattern=False)


def throttled(call: ApiCall) -> AwsError:
    """Return the refusal of a call whose bucket is empty."""
    if call.service == "ec2":
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", status=_UNAVAILABLE)
    if call.service in {"iam", "sts"}:
        return AwsError("Throttling", "Rate exceeded")
    return AwsError("ThrottlingException", "Rate exceeded")
