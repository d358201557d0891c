"""Declares the provider's metrics.

Where other providers have the same metric, it has the name that dashboards read;
`docs/reference/metrics.md` has a row for each. One set is declared for each started provider. The
core counts received and acknowledged interruptions and the conditions of NodeClasses.
"""

from __future__ import annotations

from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from karpenter_core.provider.kit.batch_sizes import BatchSizeMetric
from karpenter_core.provider.kit.offering_series import OfferingSeries
from karpenter_provider_alibabacloud.labels import INSTANCE_CPU, INSTANCE_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry, Metric

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.discovery.vswitches import DescribedVSwitch

__all__ = ["AlibabaCloudMetrics"]

ADDRESSES_KEPT: Final = timedelta(minutes=30)
"""How long a vSwitch is told that no NodeClass was resolved with."""
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 5, 10, 15)
_PAIRS: Final = (1, 2, 3, 4, 5, 8, 12, 16, 20, 30, 40, 60, 100)


@final
class AlibabaCloudMetrics:
    """One method for each thing that happens; callable from any thread."""

    def __init__(
        self, registry: CollectorRegistry, clock: Clock, *, with_reserved: bool = True
    ) -> None:
        """`with_reserved` is the feature gate ReservedCapacity."""
        self._registry: Final = registry
        self._requests: Final = Counter(
            "karpenter_alibabacloud_api_requests_total",
            "Calls to Alibaba Cloud, including retries.",
            ("action", "code"),
            registry=registry,
        )
        self._durations: Final = Histogram(
            "karpenter_alibabacloud_api_duration_seconds",
            "Duration of single attempts of calls to Alibaba Cloud.",
            ("action",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._pairs: Final = Histogram(
            "karpenter_alibabacloud_launch_pairs_tried",
            "Pairs of instance type and vSwitch in one launch call.",
            buckets=_PAIRS,
            registry=registry,
        )
        self._estimated: Final = Gauge(
            "karpenter_alibabacloud_estimated_prices",
            "Instance types that NodePools may launch and whose on-demand price is an estimate.",
            registry=registry,
        )
        self._addresses: Final = _Addresses(registry, clock)
        self._batches: Final = BatchSizeMetric(registry)
        self.offerings: Final = OfferingSeries(
            registry,
            clock,
            cpu_label=INSTANCE_CPU,
            memory_label=INSTANCE_MEMORY,
            with_reserved=with_reserved,
        )

    def observe_call(self, action: str, code: str, seconds: float) -> None:
        """Note how a try of a call ended (`sdk.Observer`)."""
        self._requests.labels(action, code).inc()
        self._durations.labels(action).observe(seconds)

    def observe_targets(self, count: int) -> None:
        """Note from how many pairs of type and vSwitch a call could choose."""
        self._pairs.observe(count)

    def observe_estimated(self, count: int) -> None:
        """Note of how many types that may be launched nobody has said the price."""
        self._estimated.set(count)

    def observe_batch(self, batcher: str, size: int) -> None:
        """Note for how many items a call was made: `delete_instances` …."""
        self._batches.observe(batcher, size)

    def observe_vswitches(self, found: Iterable[DescribedVSwitch]) -> None:
        """Note how many free addresses VPC says that vSwitches have."""
        self._addresses.record(found)

    def close(self) -> None:
        """Take the metrics out of the registry, so that a provider can be started again."""
        own: tuple[Collector, ...] = (
            self._requests,
            self._durations,
            self._pairs,
            self._estimated,
            self._addresses,
        )
        for collector in own:
            self._registry.unregister(collector)
        self._batches.close()
        self.offerings.close()


@final
class _Addresses(Collector):
    """Free addresses of the vSwitches that NodeClasses use."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._counts: Final[dict[tuple[str, str], tuple[float, int]]] = {}
        registry.register(self)

    def record(self, found: Iterable[DescribedVSwitch]) -> None:
        """Take what was just found."""
        ends = self._clock.monotonic() + ADDRESSES_KEPT.total_seconds()
        with self._lock:
            for vswitch in found:
                self._counts[vswitch.id, vswitch.zone] = (ends, vswitch.free_addresses)

    def describe(self) -> Iterable[Metric]:
        """Name the gauge without its series."""
        return (_address_family(),)

    def collect(self) -> Iterable[Metric]:
        """Return the gauge as it is now."""
        now, family = self._clock.monotonic(), _address_family()
        with self._lock:
            for key in [key for key, (ends, _) in self._counts.items() if ends <= now]:
                del self._counts[key]
            counts = dict(self._counts)
        for key in sorted(counts):
            family.add_metric(key, counts[key][1])
        return (family,)


def _address_family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "karpenter_alibabacloud_vswitch_available_ips",
        "Free addresses of a vSwitch, as VPC reports them.",
        labels=("vswitch", "zone"),
    )
