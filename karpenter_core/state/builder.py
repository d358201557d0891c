"""Builds the state: applies events and makes Snapshots.

Every watch event and every response of a write passes through `StateBuilder.apply_event`, which
stores the object and notes what depends on it: its cost does not grow with the cluster.
`snapshot()` then rebuilds only what was noted and shares the rest with the Snapshot before.

Reading our own writes needs no wait: the response of a write is applied like a watch event, older
versions that the watch delivers late are dropped by resource version, and the UID of a removed
object is remembered for a while so that no late event brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast, final

from karpenter_core.api.autoscalers import VerticalPodAutoscalerView
from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.conditions import is_true
from karpenter_core.api.devices import (
    DeviceClassView,
    ResourceClaimTemplateView,
    ResourceClaimView,
    ResourceSliceView,
)
from karpenter_core.api.labels import INITIALIZED as NODE_INITIALIZED
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED, NodeClaim
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.provisioning_request import ProvisioningRequest
from karpenter_core.api.records import NamespaceView, NodeView, PodView
from karpenter_core.api.storage_records import (
    CSINodeView,
    PersistentVolumeClaimView,
    PersistentVolumeView,
    StorageClassView,
    VolumeAttachmentView,
)
from karpenter_core.api.workload_records import (
    DaemonSetView,
    PodDisruptionBudgetView,
    PodTemplateView,
    ServiceView,
    WorkloadView,
)
from karpenter_core.state.events import (
    CataloguePublished,
    ClockSet,
    DeletionMarked,
    DeletionUnmarked,
    InformersSynced,
    LaunchCallFinished,
    LaunchCallStarted,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    OfferingsUnavailable,
    OverlaysEvaluated,
    PodReplacementEnded,
    PodReplacementStarted,
    PodsDecided,
    TimePassed,
    VirtualPodsDeclared,
    VirtualPodsPlaced,
)
from karpenter_core.state.instants import shift_time
from karpenter_core.state.ledger import Ledger
from karpenter_core.state.node_index import NodeIndex
from karpenter_core.state.object_kinds import (
    ObjectKind,
    kind_of,
    object_key,
    object_kind,
    resource_version_of,
)
from karpenter_core.state.pod_index import PodIndex, changed_node
from karpenter_core.state.pool_schedules import PoolScheduleTable
from karpenter_core.state.snapshot import Snapshot
from karpenter_core.state.tables import SnapshotTable
from karpenter_core.state.unavailable_offerings import AvailableCatalogues
from karpenter_core.state.virtual_pods import VirtualPodTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.state.events import StateEvent, StateObject

T = TypeVar("T")

_ObjectKey: TypeAlias = "str | tuple[str, str, str]"

__all__ = ["TOMBSTONE_TTL", "StateBuilder", "StateChange"]

TOMBSTONE_TTL: Final = timedelta(minutes=10)
"""Time for which a removed UID is remembered; late responses and events arrive much sooner."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The objects that an event changed, so that their controllers can be woken.

    `names` are object names; UIDs for pods, `namespace/name` for other namespaced objects.
    """

    kind: ObjectKind
    names: tuple[str, ...] = ()


@final
class StateBuilder:
    """The only place where the state of the cluster changes.

    `managed_kinds` maps group and kind of every NodeClass that a loaded provider serves to that
    provider's name. With `overlays`, a pool has no catalogue until its overlays are evaluated.
    NodePools are those in force: with what the open windows of their schedules change.
    """

    __slots__ = (
        "_catalogues", "_changed", "_claim_names", "_kinds", "_ledger", "_nodes", "_pods",
        "_schedules", "_snapshot", "_synced", "_tables", "_tombstones", "_version", "_virtual_pods",
    )  # fmt: skip

    def __init__(
        self, managed_kinds: Mapping[tuple[str, str], str], *, overlays: bool = False
    ) -> None:
        self._kinds = frozenset(managed_kinds)
        self._ledger = Ledger()
        self._tables: dict[ObjectKind, SnapshotTable[_ObjectKey, StateObject]] = {
            kind: SnapshotTable() for kind in ObjectKind
        }
        self._pods = PodIndex()
        self._nodes = NodeIndex(self._kinds)
        self._catalogues = AvailableCatalogues(dict(managed_kinds), overlays=overlays)
        self._virtual_pods = VirtualPodTable()
        self._schedules = PoolScheduleTable()
        self._claim_names: dict[str, str] = {}
        self._tombstones: dict[str, datetime] = {}
        self._synced = False
        self._changed = True
        self._version = 0
        self._snapshot: Snapshot | None = None

    def apply_event(self, event: StateEvent) -> tuple[StateChange, ...]:
        """Apply an event and return what it changed; nothing when it was not new."""
        match event:
            case ObjectObserved(obj) | ObjectWritten(obj):
                return self._store(obj, event)
            case ObjectRemoved(obj):
                return self._remove(obj, event)
            case TimePassed(now):
                return self._tick(now, event)
            case ClockSet(by):
                return self._move(by, event)
            case VirtualPodsDeclared() | VirtualPodsPlaced():
                return self._apply_virtual_pods(event)
            case _:
                self._changed |= self._ledger.apply_event(self._without_deleted_objects(event))
                return self._apply_fact(event)

    def _without_deleted_objects(self, event: StateEvent) -> StateEvent:
        """Leave objects out of a decision that were removed meanwhile: they would never expire."""
        match event:
            case PodsDecided():
                pods = self._tables[ObjectKind.POD]
                return replace(
                    event,
                    placed={uid: name for uid, name in event.placed.items() if uid in pods},
                    failed=frozenset(uid for uid in event.failed if uid in pods),
                )
            case PodReplacementStarted(uid) if uid not in self._tables[ObjectKind.POD]:
                return PodReplacementEnded(uid)
            case DeletionMarked():
                claims, nodes = self._tables[ObjectKind.NODE_CLAIM], self._tables[ObjectKind.NODE]
                names = tuple(name for name in event.names if name in claims or name in nodes)
                return replace(event, names=names)
            case _:
                return event

    @property
    def next_schedule_edge(self) -> datetime | None:
        """The time at which the next window of a NodePool may open or close; None without any."""
        return self._schedules.next_evaluation

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
        return Snapshot(
            version=self._version,
            synced=self._synced,
            ledger=ledger,
            pods_by_node=pods.by_node,
            unbound_pods=pods.unbound,
            pending_pods=pods.pending,
            nominated_pods=pods.nominated,
            untried_pods=pods.untried,
            refused_shapes=pods.refused_shapes,
            daemon_pods=pods.newest_daemons,
            catalogues=self._catalogues.freeze(ledger, self._ledger.now),
            listed_catalogues=self._catalogues.listed(),
            state_nodes=nodes.state_nodes,
            state_nodes_by_node=nodes.by_node,
            state_nodes_by_claim=nodes.by_claim,
            nodes_by_provider_id=nodes.nodes_by_provider_id,
            claims_by_provider_id=nodes.claims_by_provider_id,
            claims_by_node_name=nodes.claims_by_node_name,
            managed_kinds=self._kinds,
            pool_schedules=self._schedules.freeze(),
            virtual_pods=self._virtual_pods.pods,
            virtual_placements=self._virtual_pods.placements,
            virtual_pod_counts=self._virtual_pods.counts,
            set_aside=nodes.set_aside,
            outlined_state_nodes=nodes.outlined_state_nodes,
            pods=self._frozen(PodView),
            nodes=self._frozen(NodeView),
            node_claims=self._frozen(NodeClaim),
            node_pools=self._frozen(NodePool),
            node_classes=cast(
                "Mapping[tuple[str, str, str], NodeClass]",
                self._tables[ObjectKind.NODE_CLASS].freeze(),
            ),
            node_overlays=self._frozen(NodeOverlay),
            daemon_sets=self._frozen(DaemonSetView),
            disruption_budgets=self._frozen(PodDisruptionBudgetView),
            volume_claims=self._frozen(PersistentVolumeClaimView),
            volumes=self._frozen(PersistentVolumeView),
            storage_classes=self._frozen(StorageClassView),
            csi_nodes=self._frozen(CSINodeView),
            volume_attachments=self._frozen(VolumeAttachmentView),
            namespaces=self._frozen(NamespaceView),
            services=self._frozen(ServiceView),
            workloads=self._frozen(WorkloadView),
            resource_claims=self._frozen(ResourceClaimView),
            resource_claim_templates=self._frozen(ResourceClaimTemplateView),
            resource_slices=self._frozen(ResourceSliceView),
            device_classes=self._frozen(DeviceClassView),
            vertical_pod_autoscalers=self._frozen(VerticalPodAutoscalerView),
            pod_templates=self._frozen(PodTemplateView),
            provisioning_requests=self._frozen(ProvisioningRequest),
            capacity_buffers=self._frozen(CapacityBuffer),
            capacity_quotas=self._frozen(CapacityQuota),
        )

    def _frozen(self, model: type[T]) -> Mapping[str, T]:
        """Return the objects of a model by their keys."""
        return cast("Mapping[str, T]", self._tables[kind_of(model)].freeze())

    def _store(
        self, obj: StateObject, event: ObjectObserved | ObjectWritten
    ) -> tuple[StateChange, ...]:
        authoritative = isinstance(event, ObjectObserved) and event.authoritative
        if authoritative:
            self._tombstones.pop(obj.uid, None)
        elif obj.uid in self._tombstones:
            return ()
        kind = object_kind(obj)
        table, key = self._tables[kind], object_key(obj)
        old: StateObject | None = table.get(key)
        if old is not None and not authoritative and _is_stale(obj, old):
            # The watch shows what the response of our write showed: the claim is no longer unseen.
            if isinstance(event, ObjectObserved) and isinstance(obj, NodeClaim):
                self._changed |= self._ledger.apply_event(event)
            return ()
        changes: tuple[StateChange, ...] = ()
        if old is not None and old.uid != obj.uid:
            changes, old = self._remove(old, ObjectRemoved(old)), None
        if isinstance(obj, NodePool):
            obj = self._schedules.put(obj, self._ledger.now)
        table.put(key, obj)
        self._ledger.apply_event(event)
        if isinstance(obj, PodView) and isinstance(event, ObjectObserved):
            self._note_refusal(obj, _as(PodView, old))
        self._changed = True
        return _merged(changes, self._index(kind, obj, old))

    def _note_refusal(self, pod: PodView, old: PodView | None) -> None:
        """Note that the scheduler has refused a placed pod although the pod's node is open.

        It writes to a waiting pod whenever the reasons of its refusal change, and with them it may take
        a nomination back. A write that nominates a node is another one.
        """
        if old is None or not pod.unschedulable or pod.node_name:
            return
        is_nomination = pod.nominated_node_name not in {"", old.nominated_node_name}
        if not is_nomination and self._is_open(self._ledger.placement_target(pod.uid)):
            self._ledger.note_refusal(pod.uid)

    def _is_open(self, target: str) -> bool:
        """Tell whether a claim's node, or a node, is initialised."""
        claim = _as(NodeClaim, self._tables[ObjectKind.NODE_CLAIM].get(target))
        if claim is not None:
            return is_true(claim.status.conditions, INITIALIZED)
        node = _as(NodeView, self._tables[ObjectKind.NODE].get(target))
        return node is not None and (
            NODE_POOL not in node.labels or node.labels.get(NODE_INITIALIZED) == "true"
        )

    def _remove(self, obj: StateObject, event: ObjectRemoved) -> tuple[StateChange, ...]:
        kind = object_kind(obj)
        table, key = self._tables[kind], object_key(obj)
        if obj.uid:
            self._tombstones.setdefault(obj.uid, self._ledger.now)
        old: StateObject | None = table.get(key)
        if old is None or old.uid != obj.uid:
            return ()
        table.drop(key)
        if isinstance(old, NodePool):
            self._schedules.drop(old.name)
        self._ledger.apply_event(event)
        self._changed = True
        return self._index(kind, None, old)

    def _index(
        self, kind: ObjectKind, new: StateObject | None, old: StateObject | None
    ) -> tuple[StateChange, ...]:
        obj = new if new is not None else old
        if obj is None:
            return ()
        key = object_key(obj)
        own = StateChange(kind, (key if isinstance(key, str) else key[2],))
        match obj:
            case PodView():
                return (own, *self._index_pod(_as(PodView, new), _as(PodView, old)))
            case NodeView():
                claims = self._nodes.put_node(_as(NodeView, new), _as(NodeView, old))
                return (own, StateChange(ObjectKind.NODE_CLAIM, claims)) if claims else (own,)
            case NodeClaim():
                self._note_claim_name(_as(NodeClaim, new), _as(NodeClaim, old))
                nodes = self._nodes.put_claim(_as(NodeClaim, new), _as(NodeClaim, old))
                return (own, StateChange(ObjectKind.NODE, nodes)) if nodes else (own,)
            case NodePool():
                self._catalogues.put_pool(_as(NodePool, new), _as(NodePool, old))
                return (own,)
            case VolumeAttachmentView():
                return (
                    (own, StateChange(ObjectKind.NODE, (obj.node_name,)))
                    if obj.node_name
                    else (own,)
                )
            case _:
                return (own,)

    def _index_pod(self, new: PodView | None, old: PodView | None) -> tuple[StateChange, ...]:
        touched = self._pods.put(new, old)
        for name in touched:
            self._nodes.touch_node(name)
        changes = (StateChange(ObjectKind.NODE_PODS, touched),) if touched else ()
        moved = changed_node(new, old) if self._synced else ""
        return (*changes, StateChange(ObjectKind.POD_EVENT, (moved,))) if moved else changes

    def _note_claim_name(self, new: NodeClaim | None, old: NodeClaim | None) -> None:
        if old is not None:
            self._claim_names.pop(old.uid, None)
        if new is not None:
            self._claim_names[new.uid] = new.name

    def _apply_fact(self, event: StateEvent) -> tuple[StateChange, ...]:
        match event:
            case InformersSynced():
                self._changed |= not self._synced
                self._synced = True
                return (StateChange(ObjectKind.SYNCED),)
            case CataloguePublished(pool, catalogue):
                self._changed = True
                self._catalogues.publish(pool, catalogue)
                return (StateChange(ObjectKind.CATALOGUE, (pool,)),)
            case OverlaysEvaluated(store):
                return self._catalogue_changes(self._catalogues.overlay(store))
            case OfferingsUnavailable():
                return self._catalogue_changes(self._catalogues.touch_provider(event.provider))
            case NodesNominated() | DeletionMarked() | DeletionUnmarked():
                for name in event.names:
                    self._nodes.touch_name(name)
                if isinstance(event, NodesNominated):
                    return ()
                return (StateChange(ObjectKind.NODE_CLAIM, event.names),)
            case LaunchCallStarted() | LaunchCallFinished():
                name = self._claim_names.get(event.claim_uid)
                return () if name is None else (StateChange(ObjectKind.NODE_CLAIM, (name,)),)
            case _:
                return ()

    def _apply_virtual_pods(
        self, event: VirtualPodsDeclared | VirtualPodsPlaced
    ) -> tuple[StateChange, ...]:
        if isinstance(event, VirtualPodsPlaced):
            is_changed, moved = self._virtual_pods.place(event)
            self._changed |= is_changed
            names = tuple(source.key for source in moved)
            return (StateChange(ObjectKind.VIRTUAL_PLACEMENT, names),) if names else ()
        if not self._virtual_pods.declare(event.source, event.pods):
            return ()
        self._changed = True
        return (StateChange(ObjectKind.VIRTUAL_PODS, (event.source.key,)),)

    def _tick(self, now: datetime, event: TimePassed) -> tuple[StateChange, ...]:
        self._changed |= self._ledger.apply_event(event)
        horizon = self._ledger.now - TOMBSTONE_TTL
        while self._tombstones:
            uid = next(iter(self._tombstones))
            if self._tombstones[uid] > horizon:
                break
            del self._tombstones[uid]
        return (
            *self._evaluate_schedules(self._schedules.due(self._ledger.now)),
            *self._catalogue_changes(self._catalogues.touch_expired(now)),
        )

    def _evaluate_schedules(self, pools: Iterable[NodePool]) -> tuple[StateChange, ...]:
        """Put NodePools in force as their windows have them now; return those that changed."""
        changed: list[str] = []
        for pool in pools:
            old = self._schedules.freeze()[pool.name]
            self._tables[ObjectKind.NODE_POOL].put(
                pool.name, self._schedules.put(pool, self._ledger.now)
            )
            self._changed = True
            new = self._schedules.freeze()[pool.name]
            if replace(old, evaluate_at=None) != replace(new, evaluate_at=None):
                changed.append(pool.name)
        return (StateChange(ObjectKind.NODE_POOL, tuple(changed)),) if changed else ()

    def _move(self, by: timedelta, event: ClockSet) -> tuple[StateChange, ...]:
        """Move every instant with `now`, and rebuild what depends on them."""
        self._changed |= self._ledger.apply_event(event)
        # The order stays: the oldest tombstone is still the first.
        self._tombstones = {uid: shift_time(at, by) for uid, at in self._tombstones.items()}
        for name in self._ledger.view().nominations:
            self._nodes.touch_name(name)
        return (
            *self._evaluate_schedules(self._schedules.every_pool()),
            *self._catalogue_changes(self._catalogues.touch_unavailable()),
        )

    def _catalogue_changes(self, pools: tuple[str, ...]) -> tuple[StateChange, ...]:
        if not pools:
            return ()
        self._changed = True
        return (StateChange(ObjectKind.CATALOGUE, pools),)


def _is_stale(obj: StateObject, old: StateObject) -> bool:
    """Tell whether the stored object is as new as this one, or newer."""
    new_version, old_version = resource_version_of(obj), resource_version_of(old)
    if new_version == old_version:
        return new_version != 0 and obj.uid == old.uid
    return new_version < old_version


def _as(cls: type[T], obj: StateObject | None) -> T | None:
    return obj if isinstance(obj, cls) else None


def _merged(
    first: tuple[StateChange, ...], second: tuple[StateChange, ...]
) -> tuple[StateChange, ...]:
    return tuple(dict.fromkeys((*first, *second)))
