"""Indexes nodes and claims by provider ID, and joins them."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.judgements import FailedJudgement, describe_failure
from karpenter_core.api.notices import ObjectRef
from karpenter_core.state.node_identity import is_node_of
from karpenter_core.state.state_nodes import join_state_node, outline_state_node, state_node_key
from karpenter_core.state.tables import SnapshotTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.state.ledger_view import LedgerView
    from karpenter_core.state.snapshot import StateNode

__all__ = ["NodeIndex", "NodeIndexView"]

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIndexView:
    """The index at one instant."""

    state_nodes: tuple[StateNode, ...]
    by_node: Mapping[str, StateNode]
    by_claim: Mapping[str, StateNode]
    nodes_by_provider_id: Mapping[str, tuple[str, ...]]
    claims_by_provider_id: Mapping[str, tuple[str, ...]]
    claims_by_node_name: Mapping[str, tuple[str, ...]]
    set_aside: tuple[FailedJudgement, ...]
    """State nodes that are not in the tables, since joining them failed."""
    outlined_state_nodes: tuple[StateNode, ...]
    """Outlines of those, which count against limits and budgets."""


@dataclass(slots=True)
class _ProviderIdObjects:
    """The nodes and claims with one provider ID; more than one of either is a mistake."""

    nodes: dict[str, NodeView] = field(default_factory=dict[str, "NodeView"])
    claims: dict[str, NodeClaim] = field(default_factory=dict[str, "NodeClaim"])

    def node(self) -> NodeView | None:
        """Return the claim's node, or the node of a missing claim; the oldest of several."""
        claim = self.claim()
        nodes = self.nodes.values()
        return min(
            (node for node in nodes if claim is None or is_node_of(claim, node)),
            key=lambda item: (item.created or _DAWN, item.name),
            default=None,
        )

    def claim(self) -> NodeClaim | None:
        """Return the claim, the oldest of several."""
        return min(
            self.claims.values(),
            key=lambda item: (item.metadata.creation_timestamp or _DAWN, item.name),
            default=None,
        )


@final
class NodeIndex:
    """Indexes nodes and claims one by one; the order of events does not matter.

    Claims whose NodeClass kind no loaded provider serves are ignored: their nodes are unmanaged.
    """

    __slots__ = (
        "_by_claim", "_by_node", "_claims_by_id", "_claims_by_node_name", "_failed", "_joined", "_key_of_claim",
        "_key_of_node", "_managed_kinds", "_nodes_by_id", "_objects_by_key", "_order", "_ordered",
        "_outlined", "_sorted", "_stale",
    )  # fmt: skip

    def __init__(self, managed_kinds: frozenset[tuple[str, str]]) -> None:
        self._managed_kinds = managed_kinds
        self._objects_by_key: dict[str, _ProviderIdObjects] = {}
        self._key_of_node: dict[str, str] = {}
        self._key_of_claim: dict[str, str] = {}
        self._stale: set[str] = set()
        self._joined: dict[str, StateNode] = {}
        self._failed: dict[str, FailedJudgement] = {}
        self._outlined: dict[str, StateNode] = {}
        self._by_node: SnapshotTable[str, StateNode] = SnapshotTable()
        self._by_claim: SnapshotTable[str, StateNode] = SnapshotTable()
        self._nodes_by_id: SnapshotTable[str, tuple[str, ...]] = SnapshotTable()
        self._claims_by_id: SnapshotTable[str, tuple[str, ...]] = SnapshotTable()
        self._claims_by_node_name: SnapshotTable[str, tuple[str, ...]] = SnapshotTable()
        self._order: list[tuple[str, str, str]] = []
        self._ordered: list[StateNode] = []
        self._sorted: tuple[StateNode, ...] = ()

    def put_node(self, new: NodeView | None, old: NodeView | None) -> tuple[str, ...]:
        """Replace a node; return the claims whose state node changed."""
        if old is not None:
            key = self._key_of_node.pop(old.name, "")
            if key:
                self._objects_of(key).nodes.pop(old.name, None)
                self._forget_unseen(key)
            _remove_name(self._nodes_by_id, old.provider_id, old.name)
        if new is not None:
            key = state_node_key(new)
            if key:
                self._key_of_node[new.name] = key
                self._objects_of(key).nodes[new.name] = new
            _add_name(self._nodes_by_id, new.provider_id, new.name)
        ids = {obj.provider_id for obj in (new, old) if obj is not None and obj.provider_id}
        return tuple(sorted({name for i in ids for name in self._claims_by_id.get(i) or ()}))

    def put_claim(self, new: NodeClaim | None, old: NodeClaim | None) -> tuple[str, ...]:
        """Replace a claim; return the nodes whose state node changed."""
        if old is not None:
            key = self._key_of_claim.pop(old.name, "")
            if key:
                self._objects_of(key).claims.pop(old.name, None)
                self._forget_unseen(key)
            _remove_name(self._claims_by_id, old.status.provider_id, old.name)
            _remove_name(self._claims_by_node_name, old.status.node_name, old.name)
        if new is not None and self._is_managed(new):
            key = state_node_key(new)
            self._key_of_claim[new.name] = key
            self._objects_of(key).claims[new.name] = new
            _add_name(self._claims_by_id, new.status.provider_id, new.name)
            _add_name(self._claims_by_node_name, new.status.node_name, new.name)
        ids = {obj.status.provider_id for obj in (new, old) if obj is not None}
        return tuple(sorted({name for i in ids - {""} for name in self._nodes_by_id.get(i) or ()}))

    def touch_node(self, name: str) -> None:
        """Note that a node's pods changed."""
        key = self._key_of_node.get(name)
        if key is not None:
            self._stale.add(key)

    def touch_name(self, name: str) -> None:
        """Note that the ledger's entry about a claim or node of this name changed."""
        self.touch_node(name)
        key = self._key_of_claim.get(name)
        if key is not None:
            self._stale.add(key)

    def freeze(
        self, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> NodeIndexView:
        """Join the changed nodes and claims again and return the index as it is now."""
        before = {key: self._joined.pop(key, None) for key in sorted(self._stale)}
        self._stale.clear()
        for state_node in before.values():
            if state_node is not None:
                self._unfile(state_node)
        for key in before:
            state_node = self._joined_or_aside(key, pods_by_node, ledger)
            if state_node is not None:
                self._joined[key] = state_node
                self._file(state_node)
        self._sort(before)
        return NodeIndexView(
            state_nodes=self._sorted,
            by_node=self._by_node.freeze(),
            by_claim=self._by_claim.freeze(),
            nodes_by_provider_id=self._nodes_by_id.freeze(),
            claims_by_provider_id=self._claims_by_id.freeze(),
            claims_by_node_name=self._claims_by_node_name.freeze(),
            set_aside=tuple(self._failed[key] for key in sorted(self._failed)),
            outlined_state_nodes=tuple(self._outlined[key] for key in sorted(self._outlined)),
        )

    def _joined_or_aside(
        self, key: str, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> StateNode | None:
        """Join one state node; set it aside if that fails, so that all others stay."""
        self._failed.pop(key, None)
        self._outlined.pop(key, None)
        try:
            return self._join(key, pods_by_node, ledger)
        except Exception as error:
            self._failed[key] = FailedJudgement(
                regarding=self._ref(key), step="state", error=describe_failure(error)
            )
        objects = self._objects_by_key[key]
        with suppress(Exception):  # reported above already
            self._outlined[key] = outline_state_node(objects.node(), objects.claim(), ledger)
        return None

    def _ref(self, key: str) -> ObjectRef:
        objects = self._objects_by_key[key]
        node, claim = objects.node(), objects.claim()
        if node is None and claim is not None:
            return claim.ref
        name, uid = (key, "") if node is None else (node.name, node.uid)
        return ObjectRef(api_version="v1", kind="Node", name=name, uid=uid)

    def _sort(self, before: Mapping[str, StateNode | None]) -> None:
        """Update the sorted list: of a thousand state nodes mostly one has changed."""
        for key, old in before.items():
            new = self._joined.get(key)
            old_key = None if old is None else _sort_key(key, old)
            new_key = None if new is None else _sort_key(key, new)
            if old_key is not None:
                index = bisect_left(self._order, old_key)
                if new is not None and new_key == old_key:
                    self._ordered[index] = new
                    continue
                del self._order[index], self._ordered[index]
            if new is not None and new_key is not None:
                index = bisect_left(self._order, new_key)
                self._order.insert(index, new_key)
                self._ordered.insert(index, new)
        if before:
            self._sorted = tuple(self._ordered)

    def _join(
        self, key: str, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> StateNode | None:
        objects = self._objects_by_key.get(key)
        if objects is None:
            return None
        if not objects.nodes and not objects.claims:
            del self._objects_by_key[key]
            return None
        node = objects.node()
        pods = () if node is None else pods_by_node.get(node.name, ())
        return join_state_node(node, objects.claim(), pods, ledger)

    def _file(self, state_node: StateNode) -> None:
        if state_node.node is not None:
            self._by_node.put(state_node.node.name, state_node)
        if state_node.claim is not None:
            self._by_claim.put(state_node.claim.name, state_node)

    def _unfile(self, state_node: StateNode) -> None:
        if state_node.node is not None:
            self._by_node.drop(state_node.node.name)
        if state_node.claim is not None:
            self._by_claim.drop(state_node.claim.name)

    def _objects_of(self, key: str) -> _ProviderIdObjects:
        self._stale.add(key)
        return self._objects_by_key.setdefault(key, _ProviderIdObjects())

    def _forget_unseen(self, key: str) -> None:
        """Forget a key without objects that no snapshot has shown: a standby takes none for weeks."""
        objects = self._objects_by_key[key]
        shown = (self._joined, self._failed, self._outlined)
        if not objects.nodes and not objects.claims and not any(key in each for each in shown):
            del self._objects_by_key[key]
            self._stale.discard(key)

    def _is_managed(self, claim: NodeClaim) -> bool:
        ref = claim.spec.node_class_ref
        return (ref.group, ref.kind) in self._managed_kinds


def _sort_key(key: str, state_node: StateNode) -> tuple[str, str, str]:
    return state_node.name, state_node.provider_id, key


def _add_name(table: SnapshotTable[str, tuple[str, ...]], key: str, name: str) -> None:
    if key:
        names = table.get(key) or ()
        if name not in names:
            table.put(key, tuple(sorted((*names, name))))


def _remove_name(table: SnapshotTable[str, tuple[str, ...]], key: str, name: str) -> None:
    if key:
        names = tuple(item for item in table.get(key) or () if item != name)
        if names:
            table.put(key, names)
        else:
            table.drop(key)
