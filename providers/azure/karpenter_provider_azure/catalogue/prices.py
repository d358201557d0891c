"""Keeps a region's prices: on-demand and spot, as read or as shipped.

Shipped on-demand prices apply until a list was read, and stand for spot prices as well. A size
without a known price has `UNKNOWN_PRICE`: it is launched only if nothing else is left. So is a size of a
series that this version does not know, because a price alone does not say that it works.
"""

from __future__ import annotations

from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.cached_prices import read_cached_prices, write_cached_prices
from karpenter_core.provider.kit.price_table import PriceTable
from karpenter_provider_azure.catalogue.size_names import read_size_name
from karpenter_provider_azure.data import named_sizes, shipped_prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.provider.kit.disk_cache import DiskCache

__all__ = [
    "DISK_VERSION",
    "UNKNOWN_PRICE",
    "ListedPrices",
    "RegionPrices",
    "known_series",
    "unknown_series",
]

DISK_VERSION: Final = "1"
"""Of the disk cache that is given to `restore` and `save`."""
UNKNOWN_PRICE: Final = Price(999.0)
"""More than every size costs."""
CAPACITY_TYPES: Final = (ON_DEMAND, SPOT)

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)


class ListedPrices(NamedTuple):
    """Prices in USD per hour, by VM size."""

    on_demand: dict[str, float]
    spot: dict[str, float]


@cache
def known_series() -> frozenset[str]:
    """Return the series (`Ds_v5`) of all sizes that the shipped tables name."""
    return frozenset(read_size_name(name).series for name in named_sizes())


@lru_cache(maxsize=8192)
def unknown_series(name: str) -> str:
    """Return the series of a size if the shipped tables do not name it; empty if they do."""
    try:
        series = read_size_name(name).series
    except ValueError:
        return name
    return "" if series in known_series() else series


@final
class RegionPrices:
    """The prices of one region in USD per hour; callable from any thread."""

    def __init__(self, region: str) -> None:
        shipped = shipped_prices(region).prices
        self._tables: Final = {
            capacity_type: PriceTable(shipped, fills_gaps=False) for capacity_type in CAPACITY_TYPES
        }
        self._lock: Final = Lock()
        self._revision = 0
        self._reported: Final[set[str]] = set()

    @property
    def revision(self) -> int:
        """A number that grows whenever a price changes."""
        return self._revision

    def on_demand(self, name: str) -> Price:
        """Return the on-demand price of a size, or `UNKNOWN_PRICE`."""
        return self._price(name, ON_DEMAND)

    def spot(self, name: str) -> Price:
        """Return the spot price of a size, or `UNKNOWN_PRICE`."""
        return self._price(name, SPOT)

    def read_at(self, capacity_type: str) -> datetime | None:
        """Return when the prices were read; None while they are as shipped."""
        return self._tables[capacity_type].read_at

    def update(self, listed: ListedPrices, *, now: datetime) -> bool:
        """Take in prices that were read; return True if one is different.

        Without any prices of a capacity type its last ones stay.
        """
        before = self._revision
        self._update(ON_DEMAND, listed.on_demand, now=now)
        self._update(SPOT, listed.spot, now=now)
        return self._revision != before

    def restore(self, disk: DiskCache, *, now: datetime) -> None:
        """Begin with the prices that an earlier process read."""
        for capacity_type, cached in read_cached_prices(disk, now=now).items():
            if capacity_type in self._tables:
                prices = {name: of[""] for name, of in cached.prices.items() if "" in of}
                self._update(capacity_type, prices, now=cached.read_at)

    def save(self, disk: DiskCache, *, now: datetime) -> None:
        """Store the prices that were read."""
        cached = {name: table.to_cache() for name, table in self._tables.items()}
        lists = {name: prices for name, prices in cached.items() if prices is not None}
        if lists:
            write_cached_prices(disk, lists, now=now)

    def report_unknown(self, names: Iterable[str]) -> None:
        """Log the series of these sizes that are unknown, each once."""
        series = {found for name in names if (found := unknown_series(name))} - self._reported
        if series:
            self._reported.update(series)
            _log.warning(
                "VM sizes of unknown series are launched only if nothing else fits",
                series=sorted(series),
            )

    def _price(self, name: str, capacity_type: str) -> Price:
        if unknown_series(name):
            return UNKNOWN_PRICE
        return self._tables[capacity_type].find(name) or UNKNOWN_PRICE

    def _update(self, capacity_type: str, prices: Mapping[str, float], *, now: datetime) -> None:
        if not prices:
            return
        with self._lock:
            by_zone = {name: {"": amount} for name, amount in prices.items()}
            self._revision += self._tables[capacity_type].update(by_zone, now=now)
