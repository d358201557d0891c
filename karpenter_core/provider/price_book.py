"""Prices as they were last read, and the ones that were shipped for what was never read.

A catalogue without prices cannot be planned with, so a cloud whose price list is down, or that an
isolated network cannot reach, must not empty it: the last prices stay, and shipped ones fill the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from karpenter_core.api.prices import Price

__all__ = ["PriceBook", "PriceKey"]


class PriceKey(NamedTuple):
    """What a price is for; `zone` is empty where a region has one price."""

    instance_type: str
    capacity_type: str
    zone: str = ""


@final
class PriceBook:
    """Prices per hour; callable from any thread, since a table is replaced and never changed."""

    def __init__(self, shipped: Mapping[PriceKey, Price]) -> None:
        self._shipped: Final = dict(shipped)
        self._read: dict[PriceKey, Price] = {}
        self._read_at: datetime | None = None

    def update(self, prices: Mapping[PriceKey, Price], *, now: datetime) -> bool:
        """Take in prices that were read; those that are not among them stay as they were.

        Returns whether any price is another one than before, that is, whether catalogues must be
        built anew. An empty answer is taken for a failure and changes nothing.
        """
        if not prices:
            return False
        before = self._shipped | self._read
        self._read = self._read | dict(prices)
        self._read_at = now
        return any(before.get(key) != price for key, price in prices.items())

    def find(self, instance_type: str, capacity_type: str, *, zone: str = "") -> Price | None:
        """Return the price in a zone, else in the region, each as read, else as shipped.

        None when it was never known: such an offering cannot be had.
        """
        here = PriceKey(instance_type, capacity_type, zone)
        anywhere = PriceKey(instance_type, capacity_type)
        for table in (self._read, self._shipped):
            for key in (here, anywhere):
                if key in table:
                    return table[key]
        return None

    def is_stale(self, *, now: datetime, after: timedelta) -> bool:
        """Whether nothing was read for that long; what to say in `karpenter_check`."""
        return self._read_at is None or now - self._read_at > after
