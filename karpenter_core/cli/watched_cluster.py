"""Keeps the state of a live cluster current: one list per kind, then watches.

It uses the informers and the state of the controller. Kinds that cannot be listed are left out with a
note, as when a cluster is listed once; if one kind may be listed but not watched, nothing is watched, since
a part that stands still would look like the present.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.cli.cluster_listing import CLUSTER, is_needed, read_pages
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.contact import ContactTimes
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import CataloguePublished, InformersSynced, TimePassed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.live_cluster import LiveCluster
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.wire.kind_codec import InvalidObject
    from karpenter_core.state.events import ObjectObserved, ObjectRemoved
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["WatchRights", "WatchedCluster", "find_watch_rights", "kind_names", "watch_cluster"]

CATALOGUE_SECONDS: Final = 300.0
"""Time after which instance types are listed again although no NodePool has changed."""
_FORBIDDEN: Final = 403
_PROBE_WATCH_SECONDS: Final = 1
_MOST_INVALID: Final = 20
_MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRights:
    """The kinds of a cluster that can be followed."""

    kinds: tuple[ResourceKind, ...]
    absent: frozenset[ResourceKind]
    """Those of `kinds` that the cluster does not know now."""
    refused: tuple[ResourceKind, ...]
    """Kinds that may be listed and not watched."""
    notes: tuple[str, ...]


async def find_watch_rights(live: LiveCluster) -> WatchRights:
    """Ask for one object of each kind, and open a watch for a moment.

    Raises:
        ApiError: pods, nodes, NodePools or NodeClaims cannot be listed.
    """
    kinds = live.codecs.kinds
    found = await asyncio.gather(*(_probe(live, kind) for kind in kinds))
    answers = dict(zip(kinds, found, strict=True))
    notes: list[str] = []
    for kind, answer in answers.items():
        if answer.error is None:
            continue
        if is_needed(kind):
            raise answer.error
        notes.append(f"{answer.error}; shown as if there were none")
    absent = frozenset(kind for kind, answer in answers.items() if answer.is_absent)
    notes += (
        f"the cluster does not know {kind.plural} ({kind.api_version})"
        for kind in kinds
        if kind in absent and is_needed(kind)
    )
    return WatchRights(
        kinds=tuple(kind for kind, answer in answers.items() if answer.error is None),
        absent=absent,
        refused=tuple(kind for kind, answer in answers.items() if answer.cannot_watch),
        notes=tuple(notes),
    )


def kind_names(kinds: Sequence[ResourceKind]) -> str:
    """Return the plurals of the first kinds, and the number of the others."""
    names = ", ".join(kind.plural for kind in kinds[:_MOST_NAMES])
    omitted = len(kinds) - _MOST_NAMES
    return f"{names} and {omitted} more" if omitted > 0 else names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """The answers about one kind."""

    error: ApiError | None = None
    """The refusal to list it; None if it may be listed."""
    is_absent: bool = False
    cannot_watch: bool = False


async def _probe(live: LiveCluster, kind: ResourceKind) -> _Probe:
    """Find out what may be done with a kind.

    Raises:
        ApiError: the API server answers neither yes nor no.
    """
    api = live.apis.api_for(kind)
    try:
        page = live.codecs.for_kind(kind).decode_list(await api.list_page(kind, limit=1))
    except NotFoundError:
        return _Probe(is_absent=True)
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return _Probe(error=error)
    try:
        async with api.watch(
            kind,
            resource_version=page.resource_version,
            timeout_seconds=_PROBE_WATCH_SECONDS,
        ):
            return _Probe()
    except ApiError as error:
        # Any other answer is no refusal: the informer handles it.
        return _Probe(cannot_watch=error.status == _FORBIDDEN)


async def watch_cluster(live: LiveCluster, rights: WatchRights) -> WatchedCluster:
    """Return the cluster, which `WatchedCluster.run` has to follow."""
    pools: list[NodePool] = []
    if NODE_POOLS in rights.kinds and NODE_POOLS not in rights.absent:
        codec = live.codecs.for_kind(NODE_POOLS)
        pages = await read_pages(live.apis, NODE_POOLS, lambda _, body: codec.decode_list(body))
        pools = [pool for page in pages for pool in page.objects]
    return WatchedCluster(live, rights, live.catalogues.owners(pools))


@final
class WatchedCluster:
    """The state of a cluster; it only grows older if a watch is lost, and is never emptied by that."""

    def __init__(
        self, live: LiveCluster, rights: WatchRights, owners: dict[tuple[str, str], str]
    ) -> None:
        self.changed: Final = asyncio.Event()
        """Set by every change; the reader that waits for it clears it."""
        self._live: Final = live
        self._notes: Final = rights.notes
        self._kinds: Final = rights.kinds
        self._builder: Final = StateBuilder(owners, overlays=KindGroup.OVERLAYS in live.groups)
        self._informers: Final = Informers(
            live.apis,
            live.codecs,
            clock=live.clock,
            sink=self._take,
            on_invalid=self._note_invalid,
            kinds=rights.kinds,
            optional=rights.absent,
            watch_list=False,
            times=ContactTimes(proves_recovery=True),
        )
        self._invalid: Final[dict[str, str]] = {}
        self._problems: dict[str, str] = {}
        self._listed: dict[str, str] = {}
        """Version of the catalogue of each NodePool."""
        self._listed_for: object = None
        self._listed_at = 0.0

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await self._informers.run()

    async def wait_synced(self) -> None:
        """Wait until every kind has been listed once."""
        await self._informers.wait_synced()
        self._builder.apply_event(InformersSynced())

    @property
    def held(self) -> tuple[tuple[ResourceKind, int], ...]:
        """Number of objects of each kind that are held, the most first."""
        counts = ((kind, len(self._informers[kind])) for kind in self._kinds)
        return tuple(sorted(counts, key=lambda each: -each[1]))

    @property
    def unsynced(self) -> tuple[ResourceKind, ...]:
        """The kinds that have not been listed yet."""
        return self._informers.unsynced

    def lost(self) -> tuple[StaleKind, ...]:
        """Return the kinds whose watch is broken or silent for too long, the longest first."""
        return tuple(
            sorted(self._informers.lost(), key=lambda each: -(each.seconds or float("inf")))
        )

    @property
    def live(self) -> LiveCluster:
        """The connection."""
        return self._live

    async def snapshot(self) -> Snapshot:
        """Return the cluster as it is now, with instance types; the same object if nothing changed."""
        self._builder.apply_event(TimePassed(self._live.clock.now()))
        await self._list_catalogues()
        return self._builder.snapshot()

    async def cluster(self) -> ClusterInput:
        """Return the scheduling problem of this moment."""
        await self.snapshot()
        invalid = tuple(f"left out: {text}" for text in self._invalid.values())
        return self._live.input_of(
            self._builder, problems=self._problems, notes=(*self._notes, *invalid)
        )

    def _take(self, change: ObjectObserved | ObjectRemoved) -> None:
        if self._builder.apply_event(change):
            self.changed.set()

    def _note_invalid(self, invalid: InvalidObject) -> None:
        self._invalid[invalid.uid] = str(invalid)
        while len(self._invalid) > _MOST_INVALID:
            del self._invalid[next(iter(self._invalid))]
        self.changed.set()

    async def _list_catalogues(self) -> None:
        """List instance types, if a NodePool or a NodeClass has changed, or they are old."""
        snapshot = self._builder.snapshot()
        pools = sorted(snapshot.node_pools.items())
        classes = list(snapshot.node_classes.values())
        wanted = (
            [(pool.uid, pool.metadata.generation) for _, pool in pools],
            sorted((each.uid, each.metadata.resource_version) for each in classes),
        )
        now = self._live.clock.monotonic()
        if wanted == self._listed_for and now - self._listed_at < CATALOGUE_SECONDS:
            return
        located = [(CLUSTER, pool) for _, pool in pools]
        catalogues, self._problems = await self._live.catalogues.catalogues(
            located, classes, is_lenient=True
        )
        self._listed_for, self._listed_at = wanted, now
        for name, catalogue in sorted(catalogues.items()):
            if self._listed.get(name) != catalogue.version:
                self._listed[name] = catalogue.version
                self._builder.apply_event(CataloguePublished(name, catalogue))
