"""Keeps prices on disk, for a new process to plan with until it has read its own.

Shipped prices are months old, and of spot they know nothing at all: a process that consolidates in its
first minute by them moves pods for nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.kit.disk_cache import DiskCache

__all__ = ["CachedPrices", "read_cached_prices", "write_cached_prices"]

LIFE: Final = timedelta(days=7)
"""How old prices may be that are better than shipped ones."""


class CachedPrices(NamedTuple):
    """One list of prices, and when it was read from the cloud."""

    read_at: datetime
    prices: dict[str, dict[str, float]]
    """Per hour, by instance type and zone; on-demand prices have the empty zone."""


def read_cached_prices(disk: DiskCache, *, now: datetime) -> dict[str, CachedPrices]:
    """Return the lists by capacity type; what is damaged is as if it were not there."""
    value: object = disk.read(now=now, max_age=LIFE)
    if value is None:
        return {}
    try:
        return msgspec.convert(value, dict[str, CachedPrices])
    except (msgspec.ValidationError, TypeError):
        return {}


def write_cached_prices(
    disk: DiskCache, lists: Mapping[str, CachedPrices], *, now: datetime
) -> None:
    """Replace what is on disk."""
    disk.write(msgspec.to_builtins(dict(lists)), now=now)
