"""Holds the prices last read, and shipped prices for offerings never read.

The core cannot plan with a catalogue without prices. If the price list is down, or unreachable from an
isolated network, the last prices are kept, and shipped prices fill the gaps. Each list that is read
separately (on-demand, spot) has its own table with its own age.
"""

from __future__ import annotations

import threading
from sys import intern
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.prices import DEFAULT_CURRENCY, Price
from karpenter_core.provider.kit.cached_prices import CachedPrices

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

__all__ = ["PriceTable"]

_Amounts: TypeAlias = "Mapping[str, float]"
"""By instance type."""
_EVERYWHERE: Final = ""
"""In the place of a zone: the region has one price."""
_NOTHING: Final[_Amounts] = {}
_LARGEST_AMOUNT: Final = 1e6
"""Per hour, in any currency: hundreds of times the price of the largest instance."""


@final
class PriceTable:
    """Prices per hour of one capacity type, in one currency; callable from any thread.

    A region has thousands, so they are held as amounts, in one dictionary for each zone.
    Without `fills_gaps`, shipped prices apply only until the first reading: if the spot market has
    no price for a zone, there is no capacity, and an estimate would suggest some.
    """

    def __init__(
        self, shipped: _Amounts, *, currency: str = DEFAULT_CURRENCY, fills_gaps: bool = True
    ) -> None:
        self._currency: Final = currency
        self._fills_gaps: Final = fills_gaps
        self._lock: Final = threading.Lock()
        self._tables: tuple[Mapping[str, _Amounts], _Amounts] = ({}, shipped)
        """Prices as read, by zone, and as shipped; both are replaced together and never modified."""
        self._read_at: datetime | None = None

    @property
    def read_at(self) -> datetime | None:
        """Time of the last reading; None while the prices are as shipped."""
        return self._read_at

    def update(self, prices: Mapping[str, Mapping[str, float]], *, now: datetime) -> bool:
        """Merge prices that were read, by instance type and zone; those of other offerings are kept.

        The zone is empty if the region has one price. Return whether any price has changed, so that
        catalogues must be rebuilt. An empty argument counts as a failed reading and changes nothing.
        An amount that no offering can have (negative, not finite, above a million) is left out: nodes
        would be replaced because of it.
        """
        if not prices:
            return False
        with self._lock:
            read, shipped = self._tables
            fallback = shipped if self._fills_gaps else _NOTHING
            merged = {zone: dict(amounts) for zone, amounts in read.items()}
            for name, by_zone in prices.items():
                for zone, amount in by_zone.items():
                    if not 0 <= amount <= _LARGEST_AMOUNT:
                        continue
                    # Each reading has texts of its own, which thousands of amounts would hold.
                    merged.setdefault(intern(zone), {})[intern(name)] = amount
            self._tables = merged, fallback
            self._read_at = now
            return _in_force(read, shipped) != _in_force(merged, fallback)

    def find(self, instance_type: str, *, zone: str = _EVERYWHERE) -> Price | None:
        """Return the price in a zone, or else in the region: as read, or else as shipped.

        None if there is no price: the offering is unavailable then.
        """
        read, shipped = self._tables
        for amounts in (read.get(zone), read.get(_EVERYWHERE), shipped):
            if amounts and (amount := amounts.get(instance_type)) is not None:
                return Price(amount, self._currency)
        return None

    def is_stale(self, *, now: datetime, after: timedelta) -> bool:
        """Return whether the last reading is older than this, for `karpenter_check`."""
        return self._read_at is None or now - self._read_at > after

    def to_cache(self) -> CachedPrices | None:
        """Return all prices that were read, to be stored; None if none were."""
        if self._read_at is None:
            return None
        prices: dict[str, dict[str, float]] = {}
        for zone, amounts in self._tables[0].items():
            for name, amount in amounts.items():
                prices.setdefault(name, {})[zone] = amount
        return CachedPrices(self._read_at, prices)


def _in_force(read: Mapping[str, _Amounts], shipped: _Amounts) -> Mapping[str, _Amounts]:
    return {**read, _EVERYWHERE: {**shipped, **read.get(_EVERYWHERE, _NOTHING)}}
