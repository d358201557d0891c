"""Back-off of pools whose drifted machines cannot be replaced.

A pool whose replacements never come up would otherwise be tried first for ever, and pools that
drifted later would wait behind it. Upstream's design: one minute, doubled up to ten, half of it
shortened by chance so that pools do not move in step; here the chance is the command's id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["Resting", "rest_for"]

_SHORTEST: Final = timedelta(minutes=1)
_LONGEST: Final = timedelta(minutes=10)
_DENOMINATOR: Final = 2**32


def rest_for(failures: int, command_id: str) -> timedelta:
    """Return how long a pool rests after so many failures in a row: in `[w/2, w)`."""
    window = min(_SHORTEST * 2 ** min(failures - 1, 10), _LONGEST)
    digest = blake2b(command_id.encode(), digest_size=4).digest()
    return window / 2 * (1 + int.from_bytes(digest, "big") / _DENOMINATOR)


@dataclass(frozen=True, slots=True)
class Resting:
    """Which pools rest until when, and after how many failures."""

    entries: Mapping[str, tuple[int, datetime]] = field(
        default_factory=dict[str, "tuple[int, datetime]"]
    )

    def pools(self, now: datetime) -> frozenset[str]:
        """Return the pools that rest now."""
        return frozenset(pool for pool, (_, until) in self.entries.items() if now < until)

    def failed(self, pool: str, now: datetime, command_id: str) -> Resting:
        """Note a failure; one that comes while the pool rests already changes nothing."""
        failures, until = self.entries.get(pool, (0, now))
        if now < until:
            return self
        failures += 1
        entry = (failures, now + rest_for(failures, command_id))
        return Resting({**self.entries, pool: entry})

    def succeeded(self, pool: str) -> Resting:
        """Forget a pool's failures."""
        return Resting({name: entry for name, entry in self.entries.items() if name != pool})
