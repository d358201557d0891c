"""Terminates instances by EC2, for the kit's batches.

TerminateInstances refuses a whole call because of one instance: one with termination protection, one
whose tags were changed so that no policy permits the call, or one that EC2 does not know.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_provider_aws.codes import error_text, is_not_found, is_permission_missing
from karpenter_provider_aws.discovery.call_errors import core_errors_of, is_refusal, refusal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_aws.codes import ApiFailure
    from karpenter_provider_aws.described_instances import DescribedInstance
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["InstanceTerminator", "TerminationCounter", "no_terminations_counted"]

_ACTION: Final = "ec2:TerminateInstances"
_AT_ONCE: Final = 500
"""Instances terminated by one call (section 17)."""
_REFUSALS: Final = 16
"""Enough to find one of 500 instances by halving."""


class TerminationCounter(Protocol):
    """Counts instances that could not be terminated (`AwsMetrics.count_termination_failure`)."""

    def __call__(self, *, zone: str, zone_id: str) -> None:
        """Count one."""
        ...


def no_terminations_counted(*, zone: str, zone_id: str) -> None:
    """Count nothing."""


@final
class InstanceTerminator:
    """Terminates described instances, and counts failures; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        count_failure: TerminationCounter,
        observe_batch: Callable[[str, int], None],
    ) -> None:
        self._count_failure: Final = count_failure
        batches = BatchTerminator(
            _TerminationCalls(clients, observe_batch),
            batch_size=_AT_ONCE,
            max_refusals=_REFUSALS,
            pause=timedelta(),
            monotonic=clock.monotonic,
        )
        self._start: Final = batches.start
        self.forget: Final = batches.forget
        self.keep_only: Final = batches.keep_only

    def start(self, instances: Mapping[str, DescribedInstance]) -> Mapping[str, TerminateOutcome]:
        """Terminate instances; return an outcome for each, by id."""
        outcomes = self._start(instances)
        for name, outcome in outcomes.items():
            if isinstance(outcome, CloudProviderError):
                instance = instances[name]
                self._count_failure(zone=instance.zone, zone_id=instance.zone_id)
        return outcomes


@final
class _TerminationCalls:
    """Calls of TerminateInstances, and their refusals."""

    def __init__(self, clients: CloudClients, observe_batch: Callable[[str, int], None]) -> None:
        self._clients: Final = clients
        self._observe_batch: Final = observe_batch

    def known_outcome(self, instance: DescribedInstance) -> TerminateOutcome | None:
        return TerminationStatus.STARTED if instance.is_leaving else None

    def send(self, instance_ids: Sequence[str]) -> None:
        self._observe_batch("terminate_instances", len(instance_ids))
        with core_errors_of(_ACTION):
            self._clients.ec2.terminate_instances(InstanceIds=instance_ids)

    def read_refusal(self, error: CloudProviderError) -> ApiFailure | None:
        """Return no refusal if the credentials themselves are refused, or nothing was answered."""
        failure = refusal_behind(error)
        if failure is None:
            return None
        is_about_instances = (
            is_permission_missing(failure.code)
            if isinstance(error, AuthError)
            else is_refusal(error)
        )
        return failure if is_about_instances else None

    def refused_outcome(
        self, instance_id: str, refusal: ApiFailure, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return STARTED for an instance that EC2 does not know: it is gone, or not shown yet."""
        del is_alone
        if is_not_found(refusal.code):
            return TerminationStatus.STARTED
        advice = (
            "permit it, and check that it still has the tags that the policy requires: "
            if is_permission_missing(refusal.code)
            else ""
        )
        said = f"{_ACTION}: {error_text(refusal.code, refusal.message)}"
        return TerminationRefusedError(
            f"instance {instance_id} cannot be terminated: {advice}{said}"
        )
