"""Counts requests for virtual machines and their failures, under the names of Karpenter's provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from karpenter_provider_azure.launch.shortages import LaunchAttempt

__all__ = ["LaunchMetrics"]

UNKNOWN_CODE: Final = "UnknownError"
_LABELS: Final = ("image", "size", "zone", "capacity_type", "nodepool")


@final
class LaunchMetrics:
    """The launch metrics of one started provider (`LaunchObserver`); callable from any thread."""

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

    def note_requested(self, attempt: LaunchAttempt, *, image: str, node_pool: str) -> None:
        """Count a request."""
        self._requested.labels(*_values(attempt, image, node_pool)).inc()

    def note_failed(
        self, attempt: LaunchAttempt, *, image: str, node_pool: str, phase: str, code: str
    ) -> None:
        """Count a failure."""
        values = _values(attempt, image, node_pool)
        self._failed.labels(*values, phase, code or UNKNOWN_CODE).inc()


def _values(attempt: LaunchAttempt, image: str, node_pool: str) -> tuple[str, ...]:
    return image, attempt.instance_type, attempt.zone, attempt.capacity_type, node_pool
