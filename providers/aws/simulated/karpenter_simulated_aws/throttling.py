"""Limits calls with a token bucket for each action.

Buckets and refills are those of EC2's documentation ("Request throttling for the Amazon EC2 API"):
calls that read have large buckets, calls that change something small ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.rates import CallRate, CallRates
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_aws.protocol import ApiCall

__all__ = ["AWS_RATES", "Throttling"]

_UNAVAILABLE: Final = 503


AWS_RATES: Final[Mapping[str, CallRate]] = {
    "ec2:CreateFleet": CallRate(bucket=100, refill=5),
    "ec2:CreateTags": CallRate(bucket=100, refill=10),
    "ec2:DeleteTags": CallRate(bucket=100, refill=10),
    "ec2:RunInstances": CallRate(bucket=5, refill=2),
    "ec2:StartInstances": CallRate(bucket=5, refill=2),
    "ec2:TerminateInstances": CallRate(bucket=100, refill=5),
    "ec2:TerminateInstances#instances": CallRate(bucket=1000, refill=20),
    "ec2:RunInstances#instances": CallRate(bucket=1000, refill=2),
    "ec2:Describe*": CallRate(bucket=100, refill=20),
    "ec2:*": CallRate(bucket=50, refill=5),
    "ssm:GetParameter": CallRate(bucket=40, refill=40),
    "iam:*": CallRate(bucket=100, refill=15),
    "pricing:*": CallRate(bucket=10, refill=5),
}
"""By pattern of service and action, first match; with `#instances`, tokens for each instance named."""


@final
class Throttling:
    """Token buckets; without rates nothing is throttled."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._rates: Final = CallRates(clock)

    def set(self, rates: Mapping[str, CallRate]) -> None:
        """Replace the rates; all buckets are full afterwards."""
        self._rates.set(rates)

    def refusal(self, call: ApiCall) -> AwsError | None:
        """Take the tokens of a call; the refusal if there are too few."""
        instances = call.parameters.get("InstanceIds")
        taken = self._rates.take(call.name)
        if taken and instances is not None:
            counted = len(cast("Sequence[str]", instances))
            taken = self._rates.take(f"{call.name}#instances", counted, by_pattern=False)
        return None if taken else _refusal(call)


def _refusal(call: ApiCall) -> AwsError:
    if call.service == "ec2":
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", status=_UNAVAILABLE)
    if call.service in {"iam", "sts"}:
        return AwsError("Throttling", "Rate exceeded")
    return AwsError("ThrottlingException", "Rate exceeded")
