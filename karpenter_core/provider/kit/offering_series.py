"""Exports availability and price of each offering as metrics.

The lists of NodePools overlap; if one cannot be listed, the series of the others stay. Tens of
thousands of series are created from the last lists during a scrape, and are not stored. The
providers of one process share the gauges.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from prometheus_client.registry import Collector

from karpenter_core.api.labels import CPU, MEMORY, RESERVED
from karpenter_core.provider.kit.series_text import SeriesFamily, labels_text
from karpenter_core.provider.kit.shared_metrics import acquire_metric, release_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry, Metric

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType

__all__ = ["LISTING_LIFE", "OfferingSeries"]

LISTING_LIFE: Final = timedelta(minutes=30)
"""As long as the core uses a list that it cannot renew; a deleted NodePool has no list."""
_MIB: Final = 2**20
_NAME: Final = "karpenter_cloudprovider_instance_type_offering"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingTable:
    """The offerings of one provider at one moment: labels as text, and their numbers."""

    offerings: tuple[str, ...]
    available: tuple[float, ...]
    prices: tuple[float, ...]
    types: tuple[str, ...]
    cores: tuple[float, ...]
    memory_bytes: tuple[float, ...]


@final
class OfferingSeries:
    """The offerings of one provider; callable from any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        cpu_label: str,
        memory_label: str,
        with_reserved: bool,
    ) -> None:
        """`cpu_label` and `memory_label` are the labels with vCPUs and MiB of a type.

        With `with_reserved`, every type and zone also has a series with capacity type reserved.
        """
        self._registry: Final = registry
        self._clock: Final = clock
        self._with_reserved: Final = with_reserved
        self._cpu_label: Final = cpu_label
        self._memory_label: Final = memory_label
        self._lock: Final = Lock()
        self._listings: Final[dict[str, tuple[float, Sequence[InstanceType]]]] = {}
        self._gauges: Final = acquire_metric(registry, _NAME, lambda: _Gauges(registry))
        self._gauges.add(self)

    def record(self, node_pool: str, instance_types: Sequence[InstanceType]) -> None:
        """Record the list for a NodePool."""
        ends = self._clock.monotonic() + LISTING_LIFE.total_seconds()
        with self._lock:
            self._listings[node_pool] = (ends, instance_types)

    def close(self) -> None:
        """Stop exporting."""
        self._gauges.remove(self)
        release_metric(self._registry, _NAME)

    def table(self) -> OfferingTable:
        """Return the current offerings."""
        offered: dict[tuple[str, str, str], bool] = {}
        priced: dict[tuple[str, str, str], float] = {}
        types: dict[str, InstanceType] = {}
        for listing in self._current():
            for instance_type in listing:
                name = instance_type.name
                types[name] = instance_type
                for offering in instance_type.offerings:
                    key = (name, offering.capacity_type, offering.zone)
                    offered[key] = offered.get(key, False) or offering.available
                    priced[key] = offering.price.amount
                    if self._with_reserved:
                        reserved = (name, RESERVED, offering.zone)
                        offered.setdefault(reserved, False)
                        priced.setdefault(reserved, 0.0)
        keys = sorted(offered)
        return OfferingTable(
            offerings=tuple(_offering_labels(*key) for key in keys),
            available=tuple(float(offered[key]) for key in keys),
            prices=tuple(priced[key] for key in keys),
            types=tuple(labels_text({"instance_type": name}) for name in sorted(types)),
            cores=tuple(self._cores(types[name]) for name in sorted(types)),
            memory_bytes=tuple(self._memory_bytes(types[name]) for name in sorted(types)),
        )

    def _current(self) -> list[Sequence[InstanceType]]:
        now = self._clock.monotonic()
        with self._lock:
            for name in [name for name, (ends, _) in self._listings.items() if ends <= now]:
                del self._listings[name]
            return [self._listings[name][1] for name in sorted(self._listings)]

    def _cores(self, instance_type: InstanceType) -> float:
        """Return the vCPUs of the label."""
        value = instance_type.requirements.single_value(self._cpu_label)
        return float(value) if value else instance_type.capacity.get(CPU, 0) / 1000

    def _memory_bytes(self, instance_type: InstanceType) -> float:
        """Return the published memory, which is more than nodes will report."""
        value = instance_type.requirements.single_value(self._memory_label)
        return float(value) * _MIB if value else float(instance_type.capacity.get(MEMORY, 0))


@final
class _Gauges(Collector):
    """The gauges of all providers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock: Final = Lock()
        self._series: Final[list[OfferingSeries]] = []
        registry.register(self)

    def add(self, series: OfferingSeries) -> None:
        """Add a provider."""
        with self._lock:
            self._series.append(series)

    def remove(self, series: OfferingSeries) -> None:
        """Remove a provider."""
        with self._lock:
            self._series.remove(series)

    def describe(self) -> Iterable[Metric]:
        """Return the gauges without series."""
        return _families(())

    def collect(self) -> Iterable[Metric]:
        """Return the gauges with their current series."""
        with self._lock:
            recorded_series = tuple(self._series)
        return _families([series.table() for series in recorded_series])


def _families(tables: Sequence[OfferingTable]) -> tuple[SeriesFamily, ...]:
    prefix = "karpenter_cloudprovider_instance_type_"

    def family(
        name: str,
        text: str,
        labels: Callable[[OfferingTable], tuple[str, ...]],
        numbers: Callable[[OfferingTable], tuple[float, ...]],
    ) -> SeriesFamily:
        full = f"{prefix}{name}"
        return SeriesFamily(
            full,
            text,
            lambda: (
                f"{full}{{{each}}} {number!r}\n"
                for table in tables
                for each, number in zip(labels(table), numbers(table), strict=True)
            ),
        )

    return (
        family(
            "offering_available",
            "1 if the offering is available.",
            lambda table: table.offerings,
            lambda table: table.available,
        ),
        family(
            "offering_price_estimate",
            "Price of the offering per hour, as used for launches.",
            lambda table: table.offerings,
            lambda table: table.prices,
        ),
        family(
            "cpu_cores",
            "vCPUs of the instance type.",
            lambda table: table.types,
            lambda table: table.cores,
        ),
        family(
            "memory_bytes",
            "Memory of the instance type.",
            lambda table: table.types,
            lambda table: table.memory_bytes,
        ),
    )


def _offering_labels(instance_type: str, capacity_type: str, zone: str) -> str:
    return labels_text(
        {"instance_type": instance_type, "capacity_type": capacity_type, "zone": zone}
    )
