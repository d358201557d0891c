"""Declares the provider's metrics.

Metrics that Karpenter's provider for Azure has too have its names; `docs/reference/metrics.md` has a row for
each. One set is declared for each started provider. The core counts received and acknowledged interruptions
and the conditions of NodeClasses.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.calls.metrics import CallMetrics
from karpenter_core.provider.kit.provider_metrics import ProviderMetrics
from karpenter_provider_azure.catalogue.quotas import counts_vcpus
from karpenter_provider_azure.labels import SKU_CPU, SKU_MEMORY
from karpenter_provider_azure.launch.failure_recorder import LaunchMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import CollectorRegistry, Metric

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.catalogue.prices import RegionPrices
    from karpenter_provider_azure.catalogue.quotas import RegionQuotas

__all__ = ["AzureMetrics"]

_ANY: Final = "any"
"""Label value of a mark that covers all capacity types."""
_LONG_LIMIT: Final = "30Min"
"""End of the names of limits of half an hour, such as `Microsoft.Compute/DeleteVM30Min`."""
_LONG_LIMIT_KEPT_SECONDS: Final = 1800.0
_LIMIT_KEPT_SECONDS: Final = 300.0
"""The others are renewed within a minute, or three: an older answer says nothing about them."""


@final
class AzureMetrics(ProviderMetrics):
    """One method for each thing that happens; callable from any thread."""

    def __init__(self, registry: CollectorRegistry, clock: Clock, *, with_reserved: bool) -> None:
        """`with_reserved` is the feature gate ReservedCapacity."""
        super().__init__(
            registry,
            clock,
            cpu_label=SKU_CPU,
            memory_label=SKU_MEMORY,
            with_reserved=with_reserved,
        )
        self._clock: Final = clock
        self.calls: Final = CallMetrics(registry, "azure", cloud="Azure")
        self.launches: Final = LaunchMetrics(registry, self.own)
        self._image_errors: Final = self.own(
            Gauge(  # The name has no suffix `_total`, which a Counter would get.
                "karpenter_image_selection_error_count",
                "Launches for which the NodeClass had no image.",
                ("family",),
                registry=registry,
            )
        )
        self._remaining: Final = self.own(_RemainingRequests(registry, clock))

    def observe_image_error(self, family: str) -> None:
        """Count a launch without an image; `family` is the NodeClass's image family."""
        self._image_errors.labels(family).inc()

    def observe_remaining(self, remaining: Mapping[str, int]) -> None:
        """Record how many requests Azure still permits, by limit."""
        self._remaining.record(remaining)

    def watch_region(
        self,
        *,
        quotas: RegionQuotas,
        prices: RegionPrices,
        unavailable_offerings: UnavailableOfferings,
    ) -> None:
        """Export quotas, age of prices and marks of the region as they are at each scrape."""
        self.own(
            _RegionSeries(
                self._registry,
                self._clock,
                quotas=quotas,
                prices=prices,
                unavailable_offerings=unavailable_offerings,
            )
        )

    def close(self) -> None:
        """Unregister the metrics, so that a provider can be started again."""
        self.calls.close()
        super().close()


@final
class _RemainingRequests(Collector):
    """Requests that Azure still permits, until the limits are renewed."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._counts: Final[dict[str, tuple[float, int]]] = {}
        registry.register(self)

    def record(self, remaining: Mapping[str, int]) -> None:
        """Take what the last answer said."""
        now = self._clock.monotonic()
        with self._lock:
            for limit, count in remaining.items():
                is_long = limit.endswith(_LONG_LIMIT)
                kept = _LONG_LIMIT_KEPT_SECONDS if is_long else _LIMIT_KEPT_SECONDS
                self._counts[limit] = (now + kept, count)

    def describe(self) -> Iterable[Metric]:
        """Return the gauge without series."""
        return (_remaining_family(),)

    def collect(self) -> Iterable[Metric]:
        """Return the gauge as it is now."""
        now, family = self._clock.monotonic(), _remaining_family()
        with self._lock:
            for limit in [each for each, (ends, _) in self._counts.items() if ends <= now]:
                del self._counts[limit]
            counts = dict(self._counts)
        for limit in sorted(counts):
            family.add_metric((limit,), counts[limit][1])
        return (family,)


def _remaining_family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "karpenter_azure_remaining_requests",
        "Requests that Azure still permits, as its last answer said; no series once it has renewed them.",
        labels=("limit",),
    )


@final
class _RegionSeries(Collector):
    """Quotas, age of prices and marks of the region."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        quotas: RegionQuotas,
        prices: RegionPrices,
        unavailable_offerings: UnavailableOfferings,
    ) -> None:
        self._clock: Final = clock
        self._quotas: Final = quotas
        self._prices: Final = prices
        self._unavailable_offerings: Final = unavailable_offerings
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the gauges without series."""
        return _families()

    def collect(self) -> Iterable[Metric]:
        """Return the gauges as they are now."""
        quotas, ages, marks = families = _families()
        view, now = self._quotas.view(), self._clock.now()
        for name in view.quotas:
            left = view.remaining(name)
            # Azure also limits other things there, such as availability sets.
            if left is not None and counts_vcpus(name):
                quotas.add_metric((name,), left)
        for capacity_type in (ON_DEMAND, SPOT):
            read_at = self._prices.read_at(capacity_type)
            if read_at is not None:
                ages.add_metric((capacity_type,), max(0.0, (now - read_at).total_seconds()))
        found = self._unavailable_offerings.view(now=now)
        counts = Counter(("offering", each.capacity_type or _ANY) for each in found.offerings)
        counts.update(("shortage", each.capacity_type or _ANY) for each in found.shortages)
        for key in sorted(counts):
            marks.add_metric(key, counts[key])
        return families


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    """Return the gauges of quotas, ages of prices, and marks, without series."""
    return (
        GaugeMetricFamily(
            "karpenter_azure_quota_remaining_vcpus",
            "vCPUs left of a quota, without those of launches in flight; below zero if it is "
            "exceeded.",
            labels=("quota",),
        ),
        GaugeMetricFamily(
            "karpenter_azure_price_age_seconds",
            "Time since prices were read from the price list; no series while they are as shipped.",
            labels=("capacity_type",),
        ),
        GaugeMetricFamily(
            "karpenter_azure_unavailable_marks",
            "Marks by which offerings are unavailable after failed launches: single offerings, or "
            "shortages of a quota family or zone.",
            labels=("scope", "capacity_type"),
        ),
    )
