"""Keeps what evaluating nodes as candidates finds, from one pass to the next.

A pass evaluates every node, and most have the same pods as in the pass before. What their pods say
of them is read once; a candidate of the same node, NodePool and instance type is the same object
again, so that everything computed from it can be kept too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.api.labels import DO_NOT_DISRUPT, NODE_POOL
from karpenter_core.disruption.costs import eviction_cost, reschedule_cost
from karpenter_core.scheduling.identity_memo import IdentityMemo, are_same
from karpenter_core.state.pod_rules import may_be_protected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.pod_budgets import PodBudgets
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["CandidateMemory", "NodeProfile", "NodeProfileReader"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeProfile:
    """The part of an evaluation that depends on a node and its pods alone.

    `noted` are the pods with an annotation that may protect them, by name; `budgeted` those that a
    PodDisruptionBudget selects. `is_plain`: there is neither, and nothing about the node itself is
    an obstacle.
    """

    reschedule_cost: float
    noted: tuple[PodView, ...]
    budgeted: tuple[PodView, ...]
    is_plain: bool


@final
class NodeProfileReader:
    """Reads the profiles of nodes."""

    __slots__ = ("_budgets", "_costs")

    def __init__(self, budgets: PodBudgets) -> None:
        self._budgets: Final = budgets
        self._costs: Final = dict["PodShape", float]()

    def read(self, state_node: StateNode) -> NodeProfile:
        """Read one node."""
        pods = state_node.pods
        noted = [pod for pod in pods if may_be_protected(pod)]
        budgeted = tuple([pod for pod in pods if self._budgets.matching(pod)])
        return NodeProfile(
            reschedule_cost=reschedule_cost(
                [self._eviction_cost(pod.shape) for pod in pods if pod.is_reschedulable]
            ),
            noted=tuple(sorted(noted, key=_pod_order)),
            budgeted=budgeted,
            is_plain=not noted
            and not budgeted
            and state_node.claim is not None
            and state_node.node is not None
            and state_node.initialized
            and not state_node.marked_for_deletion
            and state_node.nominated_until is None
            and state_node.annotations.get(DO_NOT_DISRUPT) != "true"
            and NODE_POOL in state_node.labels,
        )

    def _eviction_cost(self, shape: PodShape) -> float:
        cost = self._costs.get(shape)
        if cost is None:
            cost = self._costs[shape] = eviction_cost(shape)
        return cost


class KeptCandidate(Protocol):
    """A candidate of the last pass."""

    @property
    def state_node(self) -> StateNode:
        """Its node."""
        ...

    @property
    def hosts_virtual_pods(self) -> bool:
        """Whether virtual pods are on it."""
        ...


Kept = TypeVar("Kept", bound=KeptCandidate)


@final
class CandidateMemory(Generic[Kept]):
    """The profiles and candidates of the last pass; one for each series of passes."""

    __slots__ = ("_candidates", "_profiles", "_same", "_types")

    def __init__(self) -> None:
        self._profiles: IdentityMemo[StateNode, NodeProfile | None] = IdentityMemo()
        self._candidates: dict[StateNode, Kept] = {}
        self._types: dict[str, tuple[Catalogue, Mapping[str, InstanceType]]] = {}
        self._same: tuple[object, ...] = ()

    def profiles(self, snapshot: Snapshot, budgets: PodBudgets) -> tuple[NodeProfile | None, ...]:
        """Return the profile of each state node; None where reading it fails."""
        reader = NodeProfileReader(budgets)

        def read(state_node: StateNode) -> NodeProfile | None:
            try:
                return reader.read(state_node)
            except Exception:
                return None  # the evaluation fails again, and reports the error

        return self._profiles.values(snapshot.state_nodes, read, equal=budgets.selectors)

    def candidates(self, snapshot: Snapshot) -> Mapping[StateNode, Kept]:
        """Return the candidates of the last pass, if pools and catalogues are still the same.

        Those with virtual pods are not among them.
        """
        return self._candidates if are_same(_pools(snapshot), self._same) else {}

    def keep(self, snapshot: Snapshot, candidates: Sequence[Kept]) -> None:
        """Keep the candidates of a pass."""
        self._candidates = {
            candidate.state_node: candidate
            for candidate in candidates
            if not candidate.hosts_virtual_pods
        }
        self._same = _pools(snapshot)

    def instance_types(self, snapshot: Snapshot, pool: str) -> Mapping[str, InstanceType]:
        """Return the instance types of a pool by name; none without a catalogue."""
        catalogue = snapshot.catalogues.get(pool)
        if catalogue is None:
            self._types.pop(pool, None)
            return {}
        kept = self._types.get(pool)
        if kept is None or kept[0] is not catalogue:
            types = {item.name: item for item in catalogue.instance_types}
            kept = self._types[pool] = (catalogue, types)
        return kept[1]


def _pools(snapshot: Snapshot) -> tuple[NodePool | Catalogue, ...]:
    return (*snapshot.node_pools.values(), *snapshot.catalogues.values())


def _pod_order(pod: PodView) -> tuple[str, str]:
    return pod.key, pod.uid
