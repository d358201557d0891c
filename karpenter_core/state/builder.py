"""The state: events in, Snapshots out.

Every watch event and every response of a write passes through `StateBuilder.fold`, which files the
object, notes what hangs on it and is done: its cost does not grow with the cluster. `snapshot()`
then rebuilds only what was noted and shares the rest with the Snapshot before.

Reading one's own writes needs no waiting: the response of a write is folded like a watch event,
whatever is older is dropped by resource version when the watch delivers it late, and the UID of a
removed object is remembered for a while so that nothing brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import NodeView, PodView, VolumeAttachmentView
from karpenter_core.state.events import (
    CallFinished,
    CallStarted,
    CataloguePublished,
    ClockSet,
    DeletionMarked,
    DeletionUnmarked,
    Nominated,
    Observed,
    OfferingsExhausted,
    PodsDecided,
    Removed,
    Synced,
    Tick,
    Wrote,
)
from karpenter_core.state.ledger import Ledger, moved
from karpenter_core.state.mask import Catalogues
from karpenter_core.state.node_index import NodeIndex
from karpenter_core.state.objects import Kind, file_key, kind_of, resource_version_of
from karpenter_core.state.pod_index import PodIndex, moved_on
from karpenter_core.state.snapshot import Snapshot
from karpenter_core.state.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.state.events import Event, Object

T = TypeVar("T")

__all__ = ["TOMBSTONE_TTL", "Change", "StateBuilder"]

TOMBSTONE_TTL: Final = timedelta(minutes=10)
"""How long a removed UID is remembered; a late response or event is far younger."""

_TABLES: Final[Mapping[Kind, str]] = {
    Kind.POD: "pods",
    Kind.NODE: "nodes",
    Kind.NODE_CLAIM: "node_claims",
    Kind.NODE_POOL: "node_pools",
    Kind.NODE_CLASS: "node_classes",
    Kind.DAEMON_SET: "daemon_sets",
    Kind.DISRUPTION_BUDGET: "disruption_budgets",
    Kind.VOLUME_CLAIM: "volume_claims",
    Kind.VOLUME: "volumes",
    Kind.STORAGE_CLASS: "storage_classes",
    Kind.CSI_NODE: "csi_nodes",
    Kind.VOLUME_ATTACHMENT: "volume_attachments",
    Kind.NAMESPACE: "namespaces",
    Kind.SERVICE: "services",
    Kind.WORKLOAD: "workloads",
}
"""Where in the Snapshot the objects of a kind are."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an event touched: who waits for it may be woken.

    `names` are names; of pods UIDs, of namespaced objects `namespace/name`.
    """

    kind: Kind
    names: tuple[str, ...] = ()


@final
class StateBuilder:
    """The one place where the state of the cluster changes.

    `managed_kinds` maps group and kind of every NodeClass that a loaded provider serves to that
    provider's name.
    """

    __slots__ = (
        "_catalogues", "_changed", "_claim_names", "_kinds", "_ledger", "_nodes", "_pods",
        "_snapshot", "_synced", "_tables", "_tombstones", "_version",
    )  # fmt: skip

    def __init__(self, managed_kinds: Mapping[tuple[str, str], str]) -> None:
        self._kinds = frozenset(managed_kinds)
        self._ledger = Ledger()
        self._tables: dict[Kind, Table[Any, Any]] = {kind: Table() for kind in _TABLES}
        self._pods = PodIndex()
        self._nodes = NodeIndex(self._kinds)
        self._catalogues = Catalogues(dict(managed_kinds))
        self._claim_names: dict[str, str] = {}
        self._tombstones: dict[str, datetime] = {}
        self._synced = False
        self._changed = True
        self._version = 0
        self._snapshot: Snapshot | None = None

    def fold(self, event: Event) -> tuple[Change, ...]:
        """Take in what happened and say what it touched; nothing when it was no news."""
        match event:
            case Observed(obj) | Wrote(obj):
                return self._store(obj, event)
            case Removed(obj):
                return self._remove(obj, event)
            case Tick(now):
                return self._tick(now, event)
            case ClockSet(by):
                return self._move(by, event)
            case _:
                self._changed |= self._ledger.fold(self._about_the_living(event))
                return self._fold_fact(event)

    def _about_the_living(self, event: Event) -> Event:
        """Leave out of a decision what has gone since it was begun: nobody would ever drop it."""
        match event:
            case PodsDecided():
                pods = self._tables[Kind.POD]
                return replace(
                    event,
                    placed={uid: name for uid, name in event.placed.items() if uid in pods},
                    failed=frozenset(uid for uid in event.failed if uid in pods),
                )
            case DeletionMarked():
                claims, nodes = self._tables[Kind.NODE_CLAIM], self._tables[Kind.NODE]
                names = tuple(name for name in event.names if name in claims or name in nodes)
                return replace(event, names=names)
            case _:
                return event

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now; the same object as before when nothing happened."""
        if self._snapshot is None or self._changed:
            self._version += 1
            self._snapshot = self._build()
            self._changed = False
        return self._snapshot

    def _build(self) -> Snapshot:
        ledger = self._ledger.view()
        pods = self._pods.freeze()
        nodes = self._nodes.freeze(pods.by_node, ledger)
        tables = {name: self._tables[kind].freeze() for kind, name in _TABLES.items()}
        return Snapshot(
            version=self._version,
            synced=self._synced,
            ledger=ledger,
            pods_by_node=pods.by_node,
            pending_pods=pods.pending,
            nominated_pods=pods.nominated,
            daemon_pods=pods.newest_daemons,
            catalogues=self._catalogues.freeze(ledger, self._ledger.now),
            state_nodes=nodes.state_nodes,
            state_nodes_by_node=nodes.by_node,
            state_nodes_by_claim=nodes.by_claim,
            nodes_by_provider_id=nodes.nodes_by_provider_id,
            claims_by_provider_id=nodes.claims_by_provider_id,
            managed_kinds=self._kinds,
            set_aside=nodes.set_aside,
            outlined=nodes.outlined,
            **tables,
        )

    def _store(self, obj: Object, event: Observed | Wrote) -> tuple[Change, ...]:
        authoritative = isinstance(event, Observed) and event.authoritative
        if authoritative:
            self._tombstones.pop(obj.uid, None)
        elif obj.uid in self._tombstones:
            return ()
        kind = kind_of(obj)
        table, key = self._tables[kind], file_key(obj)
        old: Object | None = table.get(key)
        if old is not None and not authoritative and _is_stale(obj, old):
            # The watch shows what our own write told us before: the claim is no longer unseen.
            if isinstance(event, Observed) and isinstance(obj, NodeClaim):
                self._changed |= self._ledger.fold(event)
            return ()
        changes: tuple[Change, ...] = ()
        if old is not None and old.uid != obj.uid:
            changes, old = self._remove(old, Removed(old)), None
        table.put(key, obj)
        self._ledger.fold(event)
        self._changed = True
        return _merged(changes, self._index(kind, obj, old))

    def _remove(self, obj: Object, event: Removed) -> tuple[Change, ...]:
        kind = kind_of(obj)
        table, key = self._tables[kind], file_key(obj)
        if obj.uid:
            self._tombstones.setdefault(obj.uid, self._ledger.now)
        old: Object | None = table.get(key)
        if old is None or old.uid != obj.uid:
            return ()
        table.drop(key)
        self._ledger.fold(event)
        self._changed = True
        return self._index(kind, None, old)

    def _index(self, kind: Kind, new: Object | None, old: Object | None) -> tuple[Change, ...]:
        obj = new if new is not None else old
        if obj is None:
            return ()
        key = file_key(obj)
        own = Change(kind, (key if isinstance(key, str) else key[2],))
        match obj:
            case PodView():
                return (own, *self._index_pod(_as(PodView, new), _as(PodView, old)))
            case NodeView():
                claims = self._nodes.put_node(_as(NodeView, new), _as(NodeView, old))
                return (own, Change(Kind.NODE_CLAIM, claims)) if claims else (own,)
            case NodeClaim():
                self._note_claim_name(_as(NodeClaim, new), _as(NodeClaim, old))
                nodes = self._nodes.put_claim(_as(NodeClaim, new), _as(NodeClaim, old))
                return (own, Change(Kind.NODE, nodes)) if nodes else (own,)
            case NodePool():
                self._catalogues.put_pool(_as(NodePool, new), _as(NodePool, old))
                return (own,)
            case VolumeAttachmentView():
                return (own, Change(Kind.NODE, (obj.node_name,))) if obj.node_name else (own,)
            case _:
                return (own,)

    def _index_pod(self, new: PodView | None, old: PodView | None) -> tuple[Change, ...]:
        touched = self._pods.put(new, old)
        for name in touched:
            self._nodes.touch_node(name)
        changes = (Change(Kind.NODE_PODS, touched),) if touched else ()
        moved = moved_on(new, old) if self._synced else ""
        return (*changes, Change(Kind.POD_EVENT, (moved,))) if moved else changes

    def _note_claim_name(self, new: NodeClaim | None, old: NodeClaim | None) -> None:
        if old is not None:
            self._claim_names.pop(old.uid, None)
        if new is not None:
            self._claim_names[new.uid] = new.name

    def _fold_fact(self, event: Event) -> tuple[Change, ...]:
        match event:
            case Synced():
                self._changed |= not self._synced
                self._synced = True
                return (Change(Kind.SYNCED),)
            case CataloguePublished(pool, catalogue):
                self._changed = True
                self._catalogues.publish(pool, catalogue)
                return (Change(Kind.CATALOGUE, (pool,)),)
            case OfferingsExhausted():
                return self._catalogue_changes(self._catalogues.touch_provider(event.provider))
            case Nominated() | DeletionMarked() | DeletionUnmarked():
                for name in event.names:
                    self._nodes.touch_name(name)
                if isinstance(event, Nominated):
                    return ()
                return (Change(Kind.NODE_CLAIM, event.names),)
            case CallStarted() | CallFinished():
                name = self._claim_names.get(event.claim_uid)
                return () if name is None else (Change(Kind.NODE_CLAIM, (name,)),)
            case _:
                return ()

    def _tick(self, now: datetime, event: Tick) -> tuple[Change, ...]:
        self._changed |= self._ledger.fold(event)
        horizon = self._ledger.now - TOMBSTONE_TTL
        while self._tombstones:
            uid = next(iter(self._tombstones))
            if self._tombstones[uid] > horizon:
                break
            del self._tombstones[uid]
        return self._catalogue_changes(self._catalogues.touch_expired(now))

    def _move(self, by: timedelta, event: ClockSet) -> tuple[Change, ...]:
        """Move every instant with the wall clock, and what was made of them."""
        self._changed |= self._ledger.fold(event)
        # In its order: a tombstone that is older than the others is still the first.
        self._tombstones = {uid: moved(at, by) for uid, at in self._tombstones.items()}
        for name in self._ledger.view().nominations:
            self._nodes.touch_name(name)
        return self._catalogue_changes(self._catalogues.touch_masked())

    def _catalogue_changes(self, pools: tuple[str, ...]) -> tuple[Change, ...]:
        if not pools:
            return ()
        self._changed = True
        return (Change(Kind.CATALOGUE, pools),)


def _is_stale(obj: Object, old: Object) -> bool:
    """Tell whether what we have is as new: the same version, or a later one."""
    new_version, old_version = resource_version_of(obj), resource_version_of(old)
    if new_version == old_version:
        return new_version != 0 and obj.uid == old.uid
    return new_version < old_version


def _as(cls: type[T], obj: Object | None) -> T | None:
    return obj if isinstance(obj, cls) else None


def _merged(first: tuple[Change, ...], second: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(dict.fromkeys((*first, *second)))
