"""Deletes instances by ECS, for the kit's batches.

DeleteInstances deletes all instances that it names, or none. Instances described as protected are not
sent at all. Of other refusals ECS does not always name the instance.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass, core_error
from karpenter_provider_alibabacloud.described_instances import AT_ONCE, DescribedInstance
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, refusal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["instance_terminator"]

_PAUSE: Final = timedelta(minutes=1)
"""Pause after a deletion of an instance that was started or refused."""
_MAX_REFUSALS: Final = 12
"""Seven halvings of a hundred instances find one, and a few more find its neighbours."""
_PASSING: Final = frozenset({ErrorClass.NOT_FOUND, ErrorClass.STATE})
"""Refusals that the next listing clears up: gone already, or too early."""
_NOT_ABOUT_INSTANCES: Final = frozenset(
    {ErrorClass.THROTTLED, ErrorClass.TRANSIENT, ErrorClass.IN_PROGRESS}
)
"""Failures that say nothing about any instance."""


def instance_terminator(
    clients: CloudClients, clock: Clock, *, observe_batch: Callable[[str, int], None]
) -> BatchTerminator[DescribedInstance, ApiError]:
    """Return what deletes instances; `observe_batch` is a method of `AlibabaCloudMetrics`."""
    return BatchTerminator(
        _DeletionCalls(clients, observe_batch),
        batch_size=AT_ONCE,
        max_refusals=_MAX_REFUSALS,
        pause=_PAUSE,
        monotonic=clock.monotonic,
    )


@final
class _DeletionCalls:
    """Calls of DeleteInstances, and their refusals."""

    def __init__(self, clients: CloudClients, observe_batch: Callable[[str, int], None]) -> None:
        self._clients: Final = clients
        self._observe_batch: Final = observe_batch

    def known_outcome(self, instance: DescribedInstance) -> TerminateOutcome | None:
        """Return the outcome of an instance that ECS would refuse to delete.

        One that is still being made counts as started, and is deleted when it is asked for again.
        """
        if instance.is_protected:
            return TerminationRefusedError(
                f"instance {instance.id} has deletion protection, which must be disabled first"
            )
        return TerminationStatus.STARTED if instance.is_pending else None

    def send(self, instance_ids: Sequence[str]) -> None:
        self._observe_batch("delete_instances", len(instance_ids))
        with core_errors_of():
            self._clients.ecs.call(
                "DeleteInstances",
                {
                    "RegionId": self._clients.region,
                    "InstanceId": list(instance_ids),
                    # Pods have been moved away: there is nothing to wait for.
                    "Force": True,
                    "ForceStop": True,
                    "TerminateSubscription": True,
                },
            )

    def read_refusal(self, error: CloudProviderError) -> ApiError | None:
        failure = refusal_behind(error)
        if failure is None or failure.error_class in _NOT_ABOUT_INSTANCES:
            return None
        return failure

    def refused_outcome(
        self, instance_id: str, refusal: ApiError, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return STARTED for a passing refusal; where others may be deleted, it is about this one."""
        if refusal.error_class in _PASSING:
            return TerminationStatus.STARTED
        outcome = core_error(refusal)
        if not is_alone or refusal.error_class is ErrorClass.PROTECTED:
            outcome = TerminationRefusedError(
                f"instance {instance_id} cannot be deleted: {refusal}"
            )
        outcome.__cause__ = refusal
        return outcome
