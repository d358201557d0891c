"""Measures provider calls under the metric names of Karpenter's dashboards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from prometheus_client import Counter, Gauge, Histogram

from karpenter_core.errors import CloudProviderError, KarpenterError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PluginCallMetrics"]

DURATION_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip  # the Go client's defaults, which upstream uses here


@final
class PluginCallMetrics:
    """Durations and errors by calling controller, method and provider; calls that are overdue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("controller", "method", "provider")
        self._duration: Final = Histogram(
            "karpenter_cloudprovider_duration_seconds",
            "Duration of provider calls, including the wait for a batch.",
            labels,
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._errors: Final = Counter(
            "karpenter_cloudprovider_errors_total",
            "Failed provider calls, by typed error.",
            (*labels, "error"),
            registry=registry,
        )
        self._overdue: Final = Gauge(
            "karpenter_cloudprovider_overdue_calls",
            "Open provider calls that have exceeded their time limit.",
            ("provider",),
            registry=registry,
        )

    def observe(
        self, method: str, provider: str, seconds: float, error: BaseException | None
    ) -> None:
        """Count one call; the controller is the one that logs are bound to."""
        controller = str(structlog.contextvars.get_contextvars().get("controller", ""))
        self._duration.labels(controller, method, provider).observe(seconds)
        if error is not None:
            self._errors.labels(controller, method, provider, _name(error)).inc()

    def set_overdue(self, provider: str, count: int) -> None:
        """Say how many calls to a provider are overdue now."""
        self._overdue.labels(provider).set(count)


def _name(error: BaseException) -> str:
    """Name a typed error; anything else has none, as upstream."""
    is_typed = isinstance(error, KarpenterError) and type(error) is not CloudProviderError
    return type(error).__name__ if is_typed else ""
