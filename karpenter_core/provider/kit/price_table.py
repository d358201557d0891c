"""Holds the prices last read, and shipped prices for offerings never read.

The core cannot plan with a catalogue without prices. If the price list is down, or unreachable from an
isolated network, the last prices are kept, and shipped prices fill the gaps. Each list that is read
separately (on-demand, spot) has its own table with its own age.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from karpenter_core.api.prices import Price

__all__ = ["PriceKey", "PriceTable"]


class PriceKey(NamedTuple):
    """Key of a price; `zone` is empty if the region has one price."""

    instance_type: str
    capacity_type: str
    zone: str = ""


_NOTHING: Final[Mapping[PriceKey, Price]] = {}


@final
class PriceTable:
    """Prices per hour; callable from any thread.

    Without `fills_gaps`, shipped prices apply only until the first reading: if the spot market has
    no price for a zone, there is no capacity, and an estimate would suggest some.
    """

    def __init__(self, shipped: Mapping[PriceKey, Price], *, fills_gaps: bool = True) -> None:
        self._fills_gaps: Final = fills_gaps
        self._lock: Final = threading.Lock()
        self._tables: tuple[Mapping[PriceKey, Price], Mapping[PriceKey, Price]] = (
            _NOTHING,
            dict(shipped),
        )
        """Prices as read and as shipped; both are replaced together and never modified."""
        self._read_at: datetime | None = None

    def update(self, prices: Mapping[PriceKey, Price], *, now: datetime) -> bool:
        """Merge prices that were read; prices of other offerings are kept.

        Return whether any price has changed, so that catalogues must be rebuilt. An empty argument
        counts as a failed reading and changes nothing.
        """
        if not prices:
            return False
        with self._lock:
            read, shipped = self._tables
            fallback = shipped if self._fills_gaps else _NOTHING
            self._tables = {**read, **prices}, fallback
            self._read_at = now
            return {**shipped, **read} != {**fallback, **read, **prices}

    def find(self, instance_type: str, capacity_type: str, *, zone: str = "") -> Price | None:
        """Return the price in a zone, or else in the region: as read, or else as shipped.

        None if there is no price: the offering is unavailable then.
        """
        here = PriceKey(instance_type, capacity_type, zone)
        anywhere = PriceKey(instance_type, capacity_type)
        for table in self._tables:
            for key in (here, anywhere):
                if key in table:
                    return table[key]
        return None

    def is_stale(self, *, now: datetime, after: timedelta) -> bool:
        """Return whether the last reading is older than this, for `karpenter_check`."""
        return self._read_at is None or now - self._read_at > after
