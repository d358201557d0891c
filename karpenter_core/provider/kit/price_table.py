"""Holds the prices last read, and shipped ones for what was never read.

A catalogue without prices cannot be planned with, so a cloud whose price list is down, or that an
isolated network cannot reach, must not empty it: the last prices stay, and shipped ones fill the rest.
Each list that is read on its own (on-demand, spot) gets a book of its own, with its own age.
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
    """What a price is for; `zone` is empty where a region has one price."""

    instance_type: str
    capacity_type: str
    zone: str = ""


_NOTHING: Final[Mapping[PriceKey, Price]] = {}


@final
class PriceTable:
    """Prices per hour; callable from any thread.

    Without `fills_gaps` the shipped prices hold only until the first reading: where a spot market
    names no price for a zone, there is nothing to be had, and an estimate would say otherwise.
    """

    def __init__(self, shipped: Mapping[PriceKey, Price], *, fills_gaps: bool = True) -> None:
        self._fills_gaps: Final = fills_gaps
        self._lock: Final = threading.Lock()
        self._tables: tuple[Mapping[PriceKey, Price], Mapping[PriceKey, Price]] = (
            _NOTHING,
            dict(shipped),
        )
        """As read and as shipped; both are replaced together and never changed."""
        self._read_at: datetime | None = None

    def update(self, prices: Mapping[PriceKey, Price], *, now: datetime) -> bool:
        """Take in prices that were read; those that are not among them stay as they were.

        Returns whether any price is another one than before, that is, whether catalogues must be
        built anew. An empty answer is taken for a failure and changes nothing.
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
        """Return the price in a zone, else in the region, each as read, else as shipped.

        None when it was never known: such an offering cannot be had.
        """
        here = PriceKey(instance_type, capacity_type, zone)
        anywhere = PriceKey(instance_type, capacity_type)
        for table in self._tables:
            for key in (here, anywhere):
                if key in table:
                    return table[key]
        return None

    def is_stale(self, *, now: datetime, after: timedelta) -> bool:
        """Whether nothing was read for that long; what to say in `karpenter_check`."""
        return self._read_at is None or now - self._read_at > after
