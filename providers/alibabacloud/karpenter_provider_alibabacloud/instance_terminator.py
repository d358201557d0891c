"""Deletes instances in batches, and isolates those that ECS refuses.

DeleteInstances deletes all instances that it names, or none. Instances described as protected are
not sent at all. Of other refusals ECS does not always name the instance, so a refused batch is
halved until each refused instance stands alone; such an instance is left alone for a minute.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.termination_batches import terminate_batch
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.codes import ErrorClass, core_error
from karpenter_provider_alibabacloud.described_instances import AT_ONCE
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, refusal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_alibabacloud.codes import ApiError
    from karpenter_provider_alibabacloud.described_instances import DescribedInstance
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["InstanceTerminator"]

_STARTED_LIFE: Final = timedelta(hours=1)
_RETRY_AFTER: Final = timedelta(minutes=1)
"""How long an instance that was asked to go, or was refused, is not asked again."""
_MAX_REFUSALS: Final = 12
"""After so many refusals in a row without one deletion nothing more is sent: seven halvings of a hundred
instances find one, and a few more find its neighbours. The rest comes again, without those found."""
_PASSING: Final = frozenset({ErrorClass.NOT_FOUND, ErrorClass.STATE})
"""Refusals that the next listing clears up: gone already, or too early."""
_NOT_ABOUT_INSTANCES: Final = frozenset(
    {ErrorClass.THROTTLED, ErrorClass.TRANSIENT, ErrorClass.IN_PROGRESS}
)
"""Failures that say nothing about any instance."""


@final
class InstanceTerminator:
    """Asks ECS to delete instances; callable from any thread."""

    def __init__(
        self, clients: CloudClients, clock: Clock, *, observe_batch: Callable[[str, int], None]
    ) -> None:
        """`observe_batch` is a method of `AlibabaCloudMetrics`."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._observe_batch: Final = observe_batch
        self._started: Final[TtlCache[str, float]] = TtlCache(clock, _STARTED_LIFE)
        """When an instance was last asked to go, by the monotonic clock."""
        self._refused: Final[TtlCache[str, CloudProviderError]] = TtlCache(clock, _RETRY_AFTER)
        """Refusals of instances that stood alone in a call."""

    def start(self, found: Mapping[str, DescribedInstance]) -> dict[str, TerminateOutcome]:
        """Ask described instances to go; return the outcomes by id.

        One that is still being made cannot be deleted: it counts as started, and is deleted when it is
        asked for again.
        """
        outcomes: dict[str, TerminateOutcome] = {}
        names: list[str] = []
        for name, instance in sorted(found.items()):
            refusal = self._refusal(instance)
            if refusal is not None:
                outcomes[name] = refusal
            elif instance.is_pending or self._was_just_started(name):
                outcomes[name] = TerminationStatus.STARTED
            else:
                names.append(name)
        for first in range(0, len(names), AT_ONCE):
            outcomes |= self._delete_batch(names[first : first + AT_ONCE])
        return outcomes

    def is_started(self, name: str) -> bool:
        """Whether an instance was asked to go of late."""
        return self._started.get(name) is not None

    def forget(self, name: str) -> None:
        """Drop an instance that is gone."""
        self._started.drop(name)
        self._refused.drop(name)

    def _refusal(self, instance: DescribedInstance) -> CloudProviderError | None:
        if instance.is_protected:
            return TerminationRefusedError(
                f"instance {instance.id} has deletion protection, which must be disabled first"
            )
        return self._refused.get(instance.id)

    def _was_just_started(self, name: str) -> bool:
        asked_at = self._started.get(name)
        if asked_at is None:
            return False
        return self._clock.monotonic() - asked_at < _RETRY_AFTER.total_seconds()

    def _delete_batch(self, names: Sequence[str]) -> dict[str, TerminateOutcome]:
        """Delete at most a hundred instances; isolate those that are refused."""
        result = terminate_batch(
            names,
            self._send,
            read_refusal=_refusal_of_instances,
            message_of=lambda failure: failure.message,
            max_refusals=_MAX_REFUSALS,
        )
        outcomes: dict[str, TerminateOutcome] = {
            **dict.fromkeys(result.started, TerminationStatus.STARTED),
            **result.failed,
            **result.deferred,
        }
        for name, failure in result.refused.items():
            if failure.error_class in _PASSING:
                outcomes[name] = TerminationStatus.STARTED
                continue
            refused = core_error(failure)
            if result.started or failure.error_class is ErrorClass.PROTECTED:
                # Others may be deleted: the refusal is about this instance.
                refused = TerminationRefusedError(f"instance {name} cannot be deleted: {failure}")
            refused.__cause__ = failure
            self._refused.put(name, refused)
            outcomes[name] = refused
        return outcomes

    def _send(self, names: Sequence[str]) -> None:
        self._observe_batch("delete_instances", len(names))
        with core_errors_of():
            self._clients.ecs.call(
                "DeleteInstances",
                {
                    "RegionId": self._clients.region,
                    "InstanceId": list(names),
                    # Pods have been moved away: there is nothing to wait for.
                    "Force": True,
                    "ForceStop": True,
                    "TerminateSubscription": True,
                },
            )
        for name in names:
            self._started.put(name, self._clock.monotonic())


def _refusal_of_instances(error: CloudProviderError) -> ApiError | None:
    """Return the refusal of a call that may succeed without some of its instances."""
    failure = refusal_behind(error)
    if failure is None or failure.error_class in _NOT_ABOUT_INSTANCES:
        return None
    return failure
