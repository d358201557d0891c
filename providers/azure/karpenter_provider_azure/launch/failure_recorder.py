"""Records failed launches: shortages, metrics, logs; returns the core's error.

A failure is recorded the same whether Azure refused the request or failed its operation later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from prometheus_client import Counter

from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.labels import NODE_POOL_TAG, zone_label
from karpenter_provider_azure.launch.failures import (
    LaunchAttempt,
    classify_failure,
    failed_marks,
    launch_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.failures import FailedMarks, LaunchFailure

__all__ = ["FAILED", "LOG_NAME", "REFUSED", "FailureRecorder", "LaunchMetrics"]

LOG_NAME: Final = "azure.launch"
REFUSED: Final = "sync"
"""The phase of a failure in metrics: Azure refused the request."""
FAILED: Final = "async"
"""Azure accepted the request, and its operation failed."""
UNKNOWN_CODE: Final = "UnknownError"
_LABELS: Final = ("image", "size", "zone", "capacity_type", "nodepool")


@final
class LaunchMetrics:
    """Counts requests and failures, under the names of Karpenter's provider; callable from any thread."""

    def __init__(self, registry: CollectorRegistry, own: Callable[[Counter], Counter]) -> None:
        """`own` is that of `ProviderMetrics`: the metrics are unregistered with the provider's."""
        self._requested: Final = own(
            Counter(
                "karpenter_instance_vm_create_start",
                "Requests for virtual machines.",
                _LABELS,
                registry=registry,
            )
        )
        self._failed: Final = own(
            Counter(
                "karpenter_instance_vm_create_failure",
                "Virtual machines that were refused (phase sync) or failed later (phase async).",
                (*_LABELS, "phase", "error_code"),
                registry=registry,
            )
        )

    def note_requested(self, attempt: LaunchAttempt) -> None:
        """Count a request that is about to be sent."""
        self._requested.labels(*_label_values(attempt)).inc()

    def note_failed(self, attempt: LaunchAttempt, *, phase: str, code: str) -> None:
        """Count a failure; `phase` is `REFUSED` or `FAILED`."""
        self._failed.labels(*_label_values(attempt), phase, code or UNKNOWN_CODE).inc()


def _label_values(it: LaunchAttempt) -> tuple[str, ...]:
    return it.image, it.instance_type, it.zone, it.capacity_type, it.node_pool


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
        metrics: LaunchMetrics,
    ) -> None:
        """`sizes` returns the VM sizes of the region by name."""
        self.metrics: Final = metrics
        self._clock: Final = clock
        self._location: Final = location
        self._sizes: Final = sizes
        self._unavailable_offerings: Final = unavailable_offerings
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)

    def attempt(
        self,
        instance_type: str,
        zone: str,
        capacity_type: str,
        *,
        image: str,
        node_pool: str,
    ) -> LaunchAttempt:
        """Return an attempt with what the catalogue knows of its size; nothing of an unknown one."""
        size = self._sizes().get(instance_type)
        zones = () if size is None else size.zones
        return LaunchAttempt(
            instance_type=instance_type,
            zone=zone,
            capacity_type=capacity_type,
            group="" if size is None else size.quota_group,
            cpu_milli=0 if size is None else size.cpus * 1000,
            size_zones=tuple(zone_label(self._location, each) for each in zones),
            image=image,
            node_pool=node_pool,
        )

    def record_vm(self, vm: DescribedVm, error: ArmError | None) -> CloudProviderError:
        """Record the failed launch of a virtual machine that exists, and return the core's error."""
        attempt = self.attempt(
            vm.instance_type,
            vm.zone,
            vm.capacity_type,
            image=vm.image_id,
            node_pool=vm.tags.get(NODE_POOL_TAG, ""),
        )
        unexplained = f"virtual machine {vm.name} failed, and Azure gives no reason"
        return self.record(error or ArmError(unexplained), attempt, phase=FAILED)

    def record(self, error: ArmError, attempt: LaunchAttempt, *, phase: str) -> CloudProviderError:
        """Record the failure of an attempt, and return the core's error.

        `phase` is `REFUSED` or `FAILED`.
        """
        self.metrics.note_failed(attempt, phase=phase, code=error.code)
        failure = classify_failure(
            error, size=attempt.instance_type, capacity_type=attempt.capacity_type
        )
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
            if not attempt.group:
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
