"""Declares the provider's metrics.

Where other providers have the same metric, it has the name that dashboards read;
`docs/reference/metrics.md` has a row for each. One set is declared for each started provider. The
core counts received and acknowledged interruptions and the conditions of NodeClasses.
"""

from __future__ import annotations

from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from prometheus_client import Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from karpenter_core.provider.kit.calls.metrics import CallMetrics
from karpenter_core.provider.kit.provider_metrics import ProviderMetrics
from karpenter_provider_alibabacloud.labels import INSTANCE_CPU, INSTANCE_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry, Metric

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.discovery.vswitches import DescribedVSwitch

__all__ = ["AlibabaCloudMetrics"]

ADDRESSES_KEPT: Final = timedelta(minutes=30)
"""Time for which a vSwitch is reported after its last NodeClass."""
_PAIRS: Final = (1, 2, 3, 4, 5, 8, 12, 16, 20, 30, 40, 60, 100)


@final
class AlibabaCloudMetrics(ProviderMetrics):
    """One method for each thing that happens; callable from any thread."""

    def __init__(self, registry: CollectorRegistry, clock: Clock, *, with_reserved: bool) -> None:
        """`with_reserved` is the feature gate ReservedCapacity."""
        super().__init__(
            registry,
            clock,
            cpu_label=INSTANCE_CPU,
            memory_label=INSTANCE_MEMORY,
            with_reserved=with_reserved,
        )
        self.calls: Final = CallMetrics(registry, "alibabacloud", cloud="Alibaba Cloud")
        self._pairs: Final = self.own(
            Histogram(
                "karpenter_alibabacloud_launch_pairs_tried",
                "Pairs of instance type and vSwitch in one launch call.",
                buckets=_PAIRS,
                registry=registry,
            )
        )
        self._estimated: Final = self.own(
            Gauge(
                "karpenter_alibabacloud_estimated_prices",
                "Instance types that NodePools may launch and whose on-demand price is an estimate.",
                registry=registry,
            )
        )
        self._addresses: Final = self.own(_Addresses(registry, clock))

    def observe_targets(self, count: int) -> None:
        """Note from how many pairs of type and vSwitch a call could choose."""
        self._pairs.observe(count)

    def observe_estimated(self, count: int) -> None:
        """Note the number of types that may be launched and have no known price."""
        self._estimated.set(count)

    def observe_vswitches(self, found: Iterable[DescribedVSwitch]) -> None:
        """Note how many free addresses VPC says that vSwitches have."""
        self._addresses.record(found)

    def close(self) -> None:
        """Take the metrics out of the registry, so that a provider can be started again."""
        self.calls.close()
        super().close()


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
