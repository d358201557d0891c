"""Counts and times the attempts of calls to a cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["CallMetrics"]

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5, 10, 15)


@final
class CallMetrics:
    """Metrics of the calls to one cloud; `observe` is an `AttemptObserver`.

    `karpenter_NAME_api_requests_total` has the labels action and code,
    `karpenter_NAME_api_duration_seconds` has the label action.
    """

    def __init__(self, registry: CollectorRegistry, name: str, *, cloud: str) -> None:
        """`name` is the provider's name, `cloud` the name for help texts."""
        self._registry: Final = registry
        self._requests: Final = Counter(
            f"karpenter_{name}_api_requests_total",
            f"Calls to {cloud}, including retries.",
            ("action", "code"),
            registry=registry,
        )
        self._durations: Final = Histogram(
            f"karpenter_{name}_api_duration_seconds",
            f"Duration of single attempts of calls to {cloud}.",
            ("action",),
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, action: str, code: str, seconds: float) -> None:
        """Record an attempt."""
        self._requests.labels(action, code).inc()
        self._durations.labels(action).observe(seconds)

    def close(self) -> None:
        """Unregister the metrics, so that a provider can be started again."""
        self._registry.unregister(self._requests)
        self._registry.unregister(self._durations)
