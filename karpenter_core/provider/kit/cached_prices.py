"""Keeps prices on disk, so that a new process plans before it reads its own.

Shipped prices are months old, and there are no shipped spot prices: consolidating by them in the first
minute of a process would move pods without a benefit.
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
"""Maximum age at which stored prices are better than shipped ones."""


class CachedPrices(NamedTuple):
    """One list of prices, and the time when it was read from the cloud."""

    read_at: datetime
    prices: dict[str, dict[str, float]]
    """Prices per hour by instance type and zone; on-demand prices have an empty zone."""


def read_cached_prices(disk: DiskCache, *, now: datetime) -> dict[str, CachedPrices]:
    """Return the lists by capacity type; ignore damaged lists."""
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
    """Replace the stored lists."""
    disk.write(msgspec.to_builtins(dict(lists)), now=now)
