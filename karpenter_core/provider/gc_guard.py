"""Decide whether garbage may be collected: what is missing from a list may only be unlisted.

Every autoscaler that deletes "what is not in the list" has one day deleted a cluster, because the
list was short: a page failed, a region was down, credentials saw another account. So nothing goes on
the strength of a partial listing or an unsynced informer, and a collection that would take a large
share at once needs each of its members to be asked for by id first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["GarbageVerdict", "judge_garbage"]

DEFAULT_MAX_SHARE: Final = 0.25
DEFAULT_ALWAYS_ALLOWED: Final = 5
"""So few may go whatever their share is: a cluster of two nodes can lose both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageVerdict:
    """What may be deleted now, and why the rest is held back.

    `confirm` are those that may go once each was asked for by id and is really gone.
    """

    delete: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    held_back: str = ""


def judge_garbage(
    candidates: Collection[str],
    *,
    total: int,
    listing_complete: bool,
    informers_synced: bool,
    confirmed: Collection[str] = (),
    max_share: float = DEFAULT_MAX_SHARE,
    always_allowed: int = DEFAULT_ALWAYS_ALLOWED,
) -> GarbageVerdict:
    """Return which of the candidates (sorted) may be deleted, out of `total` that exist.

    `confirmed` candidates were asked for by id, each, and are gone: their number does not matter.
    """
    if not candidates:
        return GarbageVerdict()
    if not informers_synced:
        return GarbageVerdict(held_back="the watches have not listed everything yet")
    if not listing_complete:
        return GarbageVerdict(held_back="the provider could list only a part of its instances")
    sure = sorted(set(candidates) & set(confirmed))
    doubtful = sorted(set(candidates) - set(confirmed))
    if len(doubtful) <= max(always_allowed, int(total * max_share)):
        return GarbageVerdict(delete=tuple(sorted(candidates)))
    return GarbageVerdict(
        delete=tuple(sure),
        confirm=tuple(doubtful),
        held_back=f"{len(doubtful)} of {total} would go at once, more than {max_share:.0%}",
    )
