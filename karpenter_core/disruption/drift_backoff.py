"""Delays drift of NodePools whose replacements keep failing.

A pool whose replacements never come up would otherwise be tried first for ever, and pools that
drifted later would wait behind it. Upstream's design: one minute, doubled up to ten, with a jitter
of up to half so that pools do not retry in step; the jitter derives from the command's ID.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["DriftBackoff", "backoff_duration"]

_MIN_DURATION: Final = timedelta(minutes=1)
_MAX_DURATION: Final = timedelta(minutes=10)
_DENOMINATOR: Final = 2**32


def backoff_duration(failures: int, command_id: str) -> timedelta:
    """Return the back-off after so many failures in a row, in `[w/2, w)`."""
    window = min(_MIN_DURATION * 2 ** min(failures - 1, 10), _MAX_DURATION)
    digest = blake2b(command_id.encode(), digest_size=4).digest()
    return window / 2 * (1 + int.from_bytes(digest, "big") / _DENOMINATOR)


@dataclass(frozen=True, slots=True)
class DriftBackoff:
    """The back-off of each pool: number of failures, and its end."""

    entries: Mapping[str, tuple[int, datetime]] = field(
        default_factory=dict[str, "tuple[int, datetime]"]
    )

    def active_pools(self, now: datetime) -> frozenset[str]:
        """Return the pools that are backing off now."""
        return frozenset(pool for pool, (_, until) in self.entries.items() if now < until)

    def with_failure(self, pool: str, now: datetime, command_id: str) -> DriftBackoff:
        """Return the back-off with one more failure; during a back-off it stays the same."""
        failures, until = self.entries.get(pool, (0, now))
        if now < until:
            return self
        failures += 1
        entry = (failures, now + backoff_duration(failures, command_id))
        return DriftBackoff({**self.entries, pool: entry})

    def with_success(self, pool: str) -> DriftBackoff:
        """Return the back-off without a pool's failures."""
        return DriftBackoff({name: entry for name, entry in self.entries.items() if name != pool})
