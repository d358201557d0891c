"""Records failed launches: what becomes unavailable, metrics and logs; returns the core's error.

A failure is recorded the same whether Azure refused the request or failed its operation later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from karpenter_provider_azure.labels import zone_label
from karpenter_provider_azure.launch.failures import classify_failure
from karpenter_provider_azure.launch.shortages import LaunchAttempt, failed_marks, launch_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.arm.errors import ArmError
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.launch.failures import LaunchFailure
    from karpenter_provider_azure.launch.shortages import FailedMarks

__all__ = ["FAILED", "LOG_NAME", "REFUSED", "FailureRecorder", "LaunchObserver"]

LOG_NAME: Final = "azure.launch"
REFUSED: Final = "sync"
"""The phase of a failure in metrics: Azure refused the request."""
FAILED: Final = "async"
"""Azure accepted the request, and its operation failed."""


class LaunchObserver(Protocol):
    """Counts requests for virtual machines and their failures; callable from any thread."""

    def note_requested(self, attempt: LaunchAttempt, *, image: str, node_pool: str) -> None:
        """Count a request that is about to be sent."""
        ...

    def note_failed(
        self, attempt: LaunchAttempt, *, image: str, node_pool: str, phase: str, code: str
    ) -> None:
        """Count a failure; `phase` is `REFUSED` or `FAILED`."""
        ...


@final
class FailureRecorder:
    """Records failed launches; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        location: str,
        sizes: Callable[[], Mapping[str, VmSize]],
        unavailable_offerings: UnavailableOfferings,
        observer: LaunchObserver,
    ) -> None:
        """`sizes` returns the VM sizes of the region by name."""
        self.observer: Final = observer
        self._clock: Final = clock
        self._location: Final = location
        self._sizes: Final = sizes
        self._unavailable_offerings: Final = unavailable_offerings
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)

    def attempt(self, instance_type: str, zone: str, capacity_type: str) -> LaunchAttempt:
        """Return an attempt with what the catalogue knows of its size; nothing of an unknown one."""
        size = self._sizes().get(instance_type)
        return LaunchAttempt(
            instance_type=instance_type,
            zone=zone,
            capacity_type=capacity_type,
            group="" if size is None else size.quota_group,
            cpu_milli=0 if size is None else size.cpus * 1000,
            size_zones=()
            if size is None
            else tuple(zone_label(self._location, each) for each in size.zones),
        )

    def record(
        self, error: ArmError, attempt: LaunchAttempt, *, image: str, node_pool: str, phase: str
    ) -> CloudProviderError:
        """Record the failure of an attempt, and return the core's error.

        `phase` is `REFUSED` or `FAILED`.
        """
        self.observer.note_failed(
            attempt, image=image, node_pool=node_pool, phase=phase, code=error.code
        )
        failure = classify_failure(error, capacity_type=attempt.capacity_type)
        marks = failed_marks(failure, attempt)
        if marks:
            self._mark(failure, marks, attempt)
        raised = launch_error(failure, marks, self._sizes_of)
        raised.__cause__ = error
        return raised

    def _mark(self, failure: LaunchFailure, marks: FailedMarks, attempt: LaunchAttempt) -> None:
        now = self._clock.now()
        if marks.shortages:
            self._unavailable_offerings.mark_shortages(*marks.shortages, now=now, life=failure.life)
        if marks.offerings:
            self._unavailable_offerings.mark(*marks.offerings, now=now, life=failure.life)
        if marks.offerings and not attempt.group:
            self._log.warning(
                "the quota family of a VM size is not known: larger sizes stay available",
                instance_type=attempt.instance_type,
            )
        self._log.info(
            "offerings are unavailable",
            code=failure.code,
            instance_type=attempt.instance_type,
            zone=attempt.zone,
            capacity_type=attempt.capacity_type,
            family=attempt.group,
            least_cpu_milli=attempt.cpu_milli,
            kind=str(failure.kind),
            seconds=failure.life.total_seconds(),
        )

    def _sizes_of(self, group: str) -> list[str]:
        return [name for name, size in self._sizes().items() if size.quota_group == group]
