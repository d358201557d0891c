"""Keeps the listed catalogues of pools, and those that NodeOverlays change.

Pools that have the same listing and the same changes share one result, and a result lasts until its
listing or its changes are others: so the compiled columns of every other pool stay valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from karpenter_core.scheduling.overlays import OverlayStore, apply_overlays
from karpenter_core.state.tables import SnapshotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.problem import Catalogue

__all__ = ["OverlaidCatalogues"]


@final
class OverlaidCatalogues:
    """The listed catalogue of each pool, and the changed one."""

    __slots__ = ("_listed", "_overlaid", "_store")

    def __init__(self, *, overlays: bool) -> None:
        """Without `overlays` every catalogue is as listed."""
        self._store: OverlayStore | None = OverlayStore() if overlays else None
        self._listed: SnapshotTable[str, Catalogue] = SnapshotTable()
        self._overlaid: dict[str, _OverlaidCatalogue] = {}

    def __contains__(self, pool: str) -> bool:
        return self._listed.get(pool) is not None

    def publish(self, pool: str, catalogue: Catalogue | None) -> None:
        """Set or remove the listed catalogue of a pool."""
        if catalogue is not None:
            self._listed.put(pool, catalogue)
        elif pool in self:
            self._listed.drop(pool)
            self._overlaid.pop(pool, None)

    def listed(self) -> Mapping[str, Catalogue]:
        """Return the listed catalogues by pool."""
        return self._listed.freeze()

    def overlay(self, store: OverlayStore) -> tuple[str, ...]:
        """Take the changes of a new evaluation; return the pools for which they are others."""
        before = self._store
        self._store = store
        if before is None:
            return ()
        return tuple(
            sorted(
                pool
                for pool in before.pools.keys() | store.pools.keys()
                if pool in self and _digest(before, pool) != _digest(store, pool)
            )
        )

    def get(self, pool: str) -> Catalogue | None:
        """Return the changed catalogue of a pool; None without a listing or an evaluation."""
        listed = self._listed.get(pool)
        if listed is None or self._store is None:
            return listed
        overlays = self._store.pools.get(pool)
        if overlays is None:
            return None
        if not overlays.types:
            self._overlaid.pop(pool, None)
            return listed
        for each in (self._overlaid.get(pool), *self._overlaid.values()):
            if each and each.listed is listed and each.digest == overlays.digest:
                made = each
                break
        else:
            made = _OverlaidCatalogue(listed, overlays.digest, apply_overlays(listed, overlays))
        self._overlaid[pool] = made
        return made.result


class _OverlaidCatalogue(NamedTuple):
    """A listed catalogue, the digest of its changes, and the two as one."""

    listed: Catalogue
    digest: str
    result: Catalogue


def _digest(store: OverlayStore, pool: str) -> str | None:
    overlays = store.pools.get(pool)
    return None if overlays is None else overlays.digest
