"""Shows how many more requests Azure permits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

__all__ = ["RemainingRequestMetrics"]


@final
class RemainingRequestMetrics:
    """The gauge `karpenter_azure_api_requests_remaining`, with the label limit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._remaining: Final = Gauge(
            "karpenter_azure_api_requests_remaining",
            "Requests that Azure permitted at its last answer, by the limit that it counts.",
            ("limit",),
            registry=registry,
        )

    def observe(self, remaining: Mapping[str, int]) -> None:
        """Record the numbers of an answer, by limit (`ArmClient`)."""
        for limit, count in remaining.items():
            self._remaining.labels(limit).set(count)

    def close(self) -> None:
        """Unregister the metric, so that a provider can be started again."""
        self._registry.unregister(self._remaining)
