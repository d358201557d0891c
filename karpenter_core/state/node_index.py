"""Nodes and claims by provider id, and the machines they make up."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.judgements import FailedJudgement, describe_failure
from karpenter_core.api.notices import ObjectRef
from karpenter_core.state.machines import join, machine_key, outline
from karpenter_core.state.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.state.ledger import LedgerView
    from karpenter_core.state.snapshot import StateNode

__all__ = ["NodeIndex", "NodeTables"]

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTables:
    """The index at one instant."""

    state_nodes: tuple[StateNode, ...]
    by_node: Mapping[str, StateNode]
    by_claim: Mapping[str, StateNode]
    nodes_by_provider_id: Mapping[str, tuple[str, ...]]
    claims_by_provider_id: Mapping[str, tuple[str, ...]]
    set_aside: tuple[FailedJudgement, ...] = ()
    """Machines that are not in the tables, since joining them failed."""
    outlined: tuple[StateNode, ...] = ()
    """What counts of them against limits and budgets."""


@dataclass(slots=True)
class _Machine:
    """Everything that shows one provider id; more than one of either is somebody's mistake."""

    nodes: dict[str, NodeView] = field(default_factory=dict[str, "NodeView"])
    claims: dict[str, NodeClaim] = field(default_factory=dict[str, "NodeClaim"])

    def node(self) -> NodeView | None:
        """Return the node, the oldest of several."""
        return min(
            self.nodes.values(), key=lambda item: (item.created or _DAWN, item.name), default=None
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
    """Follows nodes and claims one by one; the order of events does not matter.

    Claims of kinds that nobody here serves are somebody else's: their nodes are plain capacity.
    """

    __slots__ = (
        "_by_claim", "_by_node", "_claims_by_id", "_failed", "_joined", "_key_of_claim", "_key_of_node",
        "_machines", "_managed_kinds", "_nodes_by_id", "_order", "_ordered", "_outlined", "_sorted",
        "_stale",
    )  # fmt: skip

    def __init__(self, managed_kinds: frozenset[tuple[str, str]]) -> None:
        self._managed_kinds = managed_kinds
        self._machines: dict[str, _Machine] = {}
        self._key_of_node: dict[str, str] = {}
        self._key_of_claim: dict[str, str] = {}
        self._stale: set[str] = set()
        self._joined: dict[str, StateNode] = {}
        self._failed: dict[str, FailedJudgement] = {}
        self._outlined: dict[str, StateNode] = {}
        self._by_node: Table[str, StateNode] = Table()
        self._by_claim: Table[str, StateNode] = Table()
        self._nodes_by_id: Table[str, tuple[str, ...]] = Table()
        self._claims_by_id: Table[str, tuple[str, ...]] = Table()
        self._order: list[tuple[str, str, str]] = []
        self._ordered: list[StateNode] = []
        self._sorted: tuple[StateNode, ...] = ()

    def put_node(self, new: NodeView | None, old: NodeView | None) -> tuple[str, ...]:
        """Replace what is known of a node; return the claims whose machine changed."""
        if old is not None:
            key = self._key_of_node.pop(old.name, "")
            if key:
                self._machine(key).nodes.pop(old.name, None)
            _unlist(self._nodes_by_id, old.provider_id, old.name)
        if new is not None:
            key = machine_key(new)
            if key:
                self._key_of_node[new.name] = key
                self._machine(key).nodes[new.name] = new
            _list(self._nodes_by_id, new.provider_id, new.name)
        ids = {obj.provider_id for obj in (new, old) if obj is not None and obj.provider_id}
        return tuple(sorted({name for i in ids for name in self._claims_by_id.get(i) or ()}))

    def put_claim(self, new: NodeClaim | None, old: NodeClaim | None) -> tuple[str, ...]:
        """Replace what is known of a claim; return the nodes whose machine changed."""
        if old is not None:
            key = self._key_of_claim.pop(old.name, "")
            if key:
                self._machine(key).claims.pop(old.name, None)
            _unlist(self._claims_by_id, old.status.provider_id, old.name)
        if new is not None and self._is_managed(new):
            key = machine_key(new)
            self._key_of_claim[new.name] = key
            self._machine(key).claims[new.name] = new
            _list(self._claims_by_id, new.status.provider_id, new.name)
        ids = {obj.status.provider_id for obj in (new, old) if obj is not None}
        return tuple(sorted({name for i in ids - {""} for name in self._nodes_by_id.get(i) or ()}))

    def touch_node(self, name: str) -> None:
        """Note that a node's pods changed."""
        key = self._key_of_node.get(name)
        if key is not None:
            self._stale.add(key)

    def touch_name(self, name: str) -> None:
        """Note that something about a claim or node of this name changed in the ledger."""
        self.touch_node(name)
        key = self._key_of_claim.get(name)
        if key is not None:
            self._stale.add(key)

    def freeze(
        self, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> NodeTables:
        """Join what changed anew and return the index as it is now."""
        before = {key: self._joined.pop(key, None) for key in sorted(self._stale)}
        self._stale.clear()
        for machine in before.values():
            if machine is not None:
                self._unfile(machine)
        for key in before:
            machine = self._joined_or_aside(key, pods_by_node, ledger)
            if machine is not None:
                self._joined[key] = machine
                self._file(machine)
        self._sort(before)
        return NodeTables(
            state_nodes=self._sorted,
            by_node=self._by_node.freeze(),
            by_claim=self._by_claim.freeze(),
            nodes_by_provider_id=self._nodes_by_id.freeze(),
            claims_by_provider_id=self._claims_by_id.freeze(),
            set_aside=tuple(self._failed[key] for key in sorted(self._failed)),
            outlined=tuple(self._outlined[key] for key in sorted(self._outlined)),
        )

    def _joined_or_aside(
        self, key: str, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> StateNode | None:
        """Join one machine; one that cannot be is left out, so that all others are still known."""
        self._failed.pop(key, None)
        self._outlined.pop(key, None)
        try:
            return self._join(key, pods_by_node, ledger)
        except Exception as error:
            self._failed[key] = FailedJudgement(
                regarding=self._ref(key), step="state", error=describe_failure(error)
            )
        machine = self._machines[key]
        with suppress(Exception):  # told above already
            self._outlined[key] = outline(machine.node(), machine.claim(), ledger)
        return None

    def _ref(self, key: str) -> ObjectRef:
        machine = self._machines[key]
        node, claim = machine.node(), machine.claim()
        if node is None and claim is not None:
            return claim.ref
        name, uid = (key, "") if node is None else (node.name, node.uid)
        return ObjectRef(api_version="v1", kind="Node", name=name, uid=uid)

    def _sort(self, before: Mapping[str, StateNode | None]) -> None:
        """Bring the sorted list up to date: of a thousand machines mostly one has changed."""
        for key, old in before.items():
            new = self._joined.get(key)
            old_place = None if old is None else _place(key, old)
            new_place = None if new is None else _place(key, new)
            if old_place is not None:
                index = bisect_left(self._order, old_place)
                if new is not None and new_place == old_place:
                    self._ordered[index] = new
                    continue
                del self._order[index], self._ordered[index]
            if new is not None and new_place is not None:
                index = bisect_left(self._order, new_place)
                self._order.insert(index, new_place)
                self._ordered.insert(index, new)
        if before:
            self._sorted = tuple(self._ordered)

    def _join(
        self, key: str, pods_by_node: Mapping[str, tuple[PodView, ...]], ledger: LedgerView
    ) -> StateNode | None:
        machine = self._machines.get(key)
        if machine is None:
            return None
        if not machine.nodes and not machine.claims:
            del self._machines[key]
            return None
        node = machine.node()
        pods = () if node is None else pods_by_node.get(node.name, ())
        return join(node, machine.claim(), pods, ledger)

    def _file(self, machine: StateNode) -> None:
        if machine.node is not None:
            self._by_node.put(machine.node.name, machine)
        if machine.claim is not None:
            self._by_claim.put(machine.claim.name, machine)

    def _unfile(self, machine: StateNode) -> None:
        if machine.node is not None:
            self._by_node.drop(machine.node.name)
        if machine.claim is not None:
            self._by_claim.drop(machine.claim.name)

    def _machine(self, key: str) -> _Machine:
        self._stale.add(key)
        return self._machines.setdefault(key, _Machine())

    def _is_managed(self, claim: NodeClaim) -> bool:
        ref = claim.spec.node_class_ref
        return (ref.group, ref.kind) in self._managed_kinds


def _place(key: str, machine: StateNode) -> tuple[str, str, str]:
    return machine.name, machine.provider_id, key


def _list(table: Table[str, tuple[str, ...]], provider_id: str, name: str) -> None:
    if provider_id:
        names = table.get(provider_id) or ()
        if name not in names:
            table.put(provider_id, tuple(sorted((*names, name))))


def _unlist(table: Table[str, tuple[str, ...]], provider_id: str, name: str) -> None:
    if provider_id:
        names = tuple(item for item in table.get(provider_id) or () if item != name)
        if names:
            table.put(provider_id, names)
        else:
            table.drop(provider_id)
