"""How many calls AWS takes: a bucket of tokens for each action.

Buckets and refills are those of EC2's documentation ("Request throttling for the Amazon EC2 API"):
calls that read have large buckets, calls that change something small ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_provider_aws.simulated.wire import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_provider_aws.simulated.wire import Call

__all__ = ["AWS_RATES", "Rate", "Throttling"]

_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Calls that may come at once, and how many more each second."""

    bucket: float
    refill: float


AWS_RATES: Final[Mapping[str, Rate]] = {
    "ec2:CreateFleet": Rate(bucket=100, refill=5),
    "ec2:CreateTags": Rate(bucket=100, refill=10),
    "ec2:DeleteTags": Rate(bucket=100, refill=10),
    "ec2:RunInstances": Rate(bucket=5, refill=2),
    "ec2:StartInstances": Rate(bucket=5, refill=2),
    "ec2:TerminateInstances": Rate(bucket=100, refill=5),
    "ec2:TerminateInstances#instances": Rate(bucket=1000, refill=20),
    "ec2:RunInstances#instances": Rate(bucket=1000, refill=2),
    "ec2:Describe*": Rate(bucket=100, refill=20),
    "ec2:*": Rate(bucket=50, refill=5),
    "ssm:GetParameter": Rate(bucket=40, refill=40),
    "iam:*": Rate(bucket=100, refill=15),
    "pricing:*": Rate(bucket=10, refill=5),
}
"""By pattern of service and action, first match; with `#instances`, tokens for each instance named."""


@final
class Throttling:
    """Token buckets; without rates nothing is throttled."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._rates: Mapping[str, Rate] = {}
        self._tokens: dict[str, tuple[float, datetime]] = {}

    def set(self, rates: Mapping[str, Rate]) -> None:
        """Replace the rates; all buckets are full afterwards."""
        with self._lock:
            self._rates = dict(rates)
            self._tokens.clear()

    def refusal(self, call: Call) -> AwsError | None:
        """Take the tokens of a call; the refusal if there are too few."""
        instances = call.parameters.get("InstanceIds")
        with self._lock:
            taken = self._take(call.name, call.name, 1)
            if taken and instances is not None:
                counted = len(cast("Sequence[str]", instances))
                taken = self._take(f"{call.name}#instances", "", counted)
        return None if taken else _refusal(call)

    def _take(self, exact: str, name: str, tokens: float) -> bool:
        found = self._rates.get(exact) or next(
            (rate for pattern, rate in self._rates.items() if name and fnmatchcase(name, pattern)),
            None,
        )
        if found is None:
            return True
        now = self._clock()
        left, since = self._tokens.get(exact, (found.bucket, now))
        left = min(found.bucket, left + (now - since).total_seconds() * found.refill)
        enough = left >= tokens
        self._tokens[exact] = (left - tokens if enough else left, now)
        return enough


def _refusal(call: Call) -> AwsError:
    if call.service == "ec2":
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", status=_UNAVAILABLE)
    if call.service in {"iam", "sts"}:
        return AwsError("Throttling", "Rate exceeded")
    return AwsError("ThrottlingException", "Rate exceeded")
