"""Estimates the savings of planning a cluster afresh, for `run --observe`.

All pods that may move are planned as if their nodes did not exist, by the same solver as in a pass,
and the price of the planned nodes is compared with that of the nodes they run on. Both sides carry
the same pods: pods that wait are left out, and so are nodes that could not be replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.decisions import (
    OBSERVE,
    Decision,
    DecisionCandidate,
    DecisionObstacle,
    DecisionPlacement,
    bounded,
)
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    INSTANCE_TYPE,
    ON_DEMAND,
    SCALE_DOWN_DISABLED,
    SPOT,
    ZONE,
)
from karpenter_core.api.prices import Price
from karpenter_core.disruption.pricing import NodePrices, current_price
from karpenter_core.scheduling.journal import inputs_digest, planned_launch
from karpenter_core.scheduling.resources import subtract
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_volumes import PodVolumeReader
from karpenter_core.state.request_predictions import RequestPredictions
from karpenter_core.state.static_pools import is_static

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import (
        PodVolumes,
        SchedulingPlan,
        SchedulingProblem,
        SolveOptions,
    )
    from karpenter_core.state.provisioning_input import ProblemSettings
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "METHOD",
    "FreshProblem",
    "ReplaceableNode",
    "SavingsEstimate",
    "build_fresh_problem",
    "estimate_savings",
    "nodes_of_unplaced_pods",
    "observed_decision",
]

METHOD: Final = "fresh-plan"
"""The method of such records in the decision journal."""

_NO_PRICE: Final = "its price is not known"
_NO_CATALOGUE: Final = f"{_NO_PRICE}, because no NodePool has instance types"
_PROTECTED: Final = "a pod on it may not be moved"
_ANNOTATED: Final = "an annotation of the node forbids its removal"
_STATIC: Final = "its NodePool has a fixed number of nodes"
_UNPLACED: Final = "a pod on it fits on no node that a NodePool can launch"
_NAMED: Final = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplaceableNode:
    """A node that the plan does without, its price per hour in the reporting currency, its pods."""

    state_node: StateNode
    price_per_hour: float
    pods: tuple[PodView, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreshProblem:
    """The problem of all pods that may move, and the nodes that it does without.

    `kept` are the nodes that were considered and stay, by name, with the reason.
    """

    problem: SchedulingProblem
    nodes: tuple[ReplaceableNode, ...]
    kept: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsEstimate:
    """Numbers and prices per hour of nodes, as they are and as they would be planned."""

    nodes: int
    planned_nodes: int
    price_per_hour: float
    planned_price_per_hour: float
    kept_nodes: int
    currency: str

    @property
    def savings_per_hour(self) -> float:
        """Savings of the plan; 0 if the nodes as they are cost less, since they would stay."""
        return max(0.0, self.price_per_hour - self.planned_price_per_hour)

    def __str__(self) -> str:
        """Return one line for people."""
        if not self.nodes and not self.kept_nodes:
            return (
                "no node can be compared: none of a NodePool is initialised, and none has the labels of "
                "--observe-nodes, which names nodes without a NodePool"
            )
        if not self.nodes:
            return f"no node can be compared, {self.kept_nodes} are kept"
        share = self.savings_per_hour / self.price_per_hour if self.price_per_hour else 0.0
        return (
            f"{self.nodes} node(s) at {self.price_per_hour:.4f} {self.currency} per hour would be "
            f"{self.planned_nodes} at {self.planned_price_per_hour:.4f}, {share:.0%} less; "
            f"{self.kept_nodes} node(s) are kept"
        )


def build_fresh_problem(
    snapshot: Snapshot,
    problem: SchedulingProblem,
    *,
    now: datetime,
    problem_settings: ProblemSettings,
    options: SolveOptions,
    other_nodes: Mapping[str, str | None],
    keep: Collection[str],
) -> FreshProblem:
    """Return the problem of the pods on the nodes of NodePools, and on those with certain labels.

    `other_nodes` are these labels, each with its value, or with None for any; without labels no other
    node is considered.
    A node stays if its price is not known, if it or one of its pods may not be moved, or if it is among
    `keep`, to which the caller adds nodes whose pods found no place. `problem` is that of a
    provisioning pass over the snapshot.
    """
    volumes = problem_settings.volume_reader(snapshot)
    predictions = RequestPredictions(snapshot, now)
    spread = DefaultSpread(snapshot, problem_settings.default_spread)
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    prices = _PricesOfNodes(snapshot, options)
    nodes: list[ReplaceableNode] = []
    kept: dict[str, str] = {}
    volumes_by_pod: dict[str, PodVolumes] = {}
    for node in problem.nodes:
        state_node = None if node.closed else snapshot.state_node(node.name)
        if state_node is None or not _is_considered(state_node, other_nodes):
            continue
        if _is_of_static_pool(state_node, snapshot):
            kept[node.name] = _STATIC
            continue
        if _is_annotated_to_stay(state_node):
            kept[node.name] = _ANNOTATED
            continue
        price = prices.price_per_hour(state_node)
        moving = tuple(pod for pod in state_node.pods if pod.is_reschedulable)
        if price is None:
            kept[node.name] = _NO_PRICE if snapshot.catalogues else _NO_CATALOGUE
        elif not all(budgets.is_reschedulable_now(pod, now) for pod in moving):
            kept[node.name] = _PROTECTED
        elif node.name in keep:
            kept[node.name] = _UNPLACED
        else:
            nodes.append(
                ReplaceableNode(
                    state_node=state_node,
                    price_per_hour=price,
                    pods=tuple(spread.apply(predictions.apply(pod)) for pod in moving),
                )
            )
            volumes_by_pod |= _volumes_of(moving, volumes)
    # The room of CapacityBuffers is on both sides: the plan keeps as much free as the nodes do.
    buffers = tuple(pod for pod in problem.pods if pod.is_virtual)
    volumes_by_pod |= {
        pod.uid: problem.volumes[pod.uid] for pod in buffers if pod.uid in problem.volumes
    }
    gone = {node.state_node.name for node in nodes}
    usage = dict(problem.pool_usage)
    for node in nodes:
        if node.state_node.pool in usage:
            usage[node.state_node.pool] = subtract(
                usage[node.state_node.pool], node.state_node.capacity
            )
    limit = problem.max_new_nodes
    fresh = replace(
        problem,
        pods=(*buffers, *(pod for node in nodes for pod in node.pods)),
        nodes=tuple(node for node in problem.nodes if node.name not in gone),
        pool_usage=usage,
        volumes=volumes_by_pod,
        max_new_nodes=None if limit is None else limit + len(nodes),
    )
    return FreshProblem(problem=fresh, nodes=tuple(nodes), kept=kept)


def nodes_of_unplaced_pods(fresh: FreshProblem, plan: SchedulingPlan) -> frozenset[str]:
    """Return the nodes with a pod that the plan has no place for: they cannot be replaced."""
    placed = {pod.uid for claim in plan.claims for pod in claim.pods}
    placed |= {pod.uid for pods in plan.existing.values() for pod in pods}
    return frozenset(
        node.state_node.name
        for node in fresh.nodes
        if any(pod.uid not in placed for pod in node.pods)
    )


def estimate_savings(
    fresh: FreshProblem, plan: SchedulingPlan, *, currency: str
) -> SavingsEstimate:
    """Return the comparison; every pod of the problem must have a place in the plan."""
    return SavingsEstimate(
        nodes=len(fresh.nodes),
        planned_nodes=len(plan.claims),
        price_per_hour=fsum(node.price_per_hour for node in fresh.nodes),
        planned_price_per_hour=plan.cost.hourly,
        kept_nodes=len(fresh.kept),
        currency=currency,
    )


def observed_decision(
    fresh: FreshProblem,
    plan: SchedulingPlan,
    estimate: SavingsEstimate,
    *,
    id: str,  # noqa: A002 - the name of the field
    cause: str,
    at: datetime,
) -> Decision:
    """Return the record of an estimate for the decision journal."""
    currency = estimate.currency
    reasons: dict[str, list[str]] = {}
    for name, reason in fresh.kept.items():
        reasons.setdefault(reason, []).append(name)
    obstacles = [
        DecisionObstacle(
            kind="Node",
            reason="Kept",
            message=reason,
            count=len(names),
            names=tuple(sorted(names)[:_NAMED]),
        )
        for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return Decision(
        id=id,
        cause=cause,
        kind=OBSERVE,
        at=at,
        summary=str(estimate),
        inputs=inputs_digest(fresh.problem),
        method=METHOD,
        price_per_hour_before=Price(estimate.price_per_hour, currency),
        price_per_hour_after=Price(estimate.planned_price_per_hour, currency),
        **bounded(
            candidates=[_candidate(node, currency) for node in fresh.nodes],
            launches=[planned_launch(claim, name="", currency=currency) for claim in plan.claims],
            placements=[
                DecisionPlacement(node=name, pods=len(pods))
                for name, pods in sorted(plan.existing.items())
            ],
            obstacles=obstacles,
        ),
    )


def _candidate(node: ReplaceableNode, currency: str) -> DecisionCandidate:
    claim = node.state_node.claim
    return DecisionCandidate(
        node=node.state_node.name,
        node_claim="" if claim is None else claim.name,
        node_pool=node.state_node.pool,
        price_per_hour=Price(node.price_per_hour, currency),
        pods=len(node.pods),
    )


def _volumes_of(pods: Iterable[PodView], volumes: PodVolumeReader) -> dict[str, PodVolumes]:
    found = {pod.uid: volumes.volumes_to_move(pod) for pod in pods}
    return {uid: asked for uid, asked in found.items() if asked is not None}


def _is_of_static_pool(state_node: StateNode, snapshot: Snapshot) -> bool:
    pool = snapshot.node_pools.get(state_node.pool)
    return pool is not None and is_static(pool)


def _is_annotated_to_stay(state_node: StateNode) -> bool:
    annotations = state_node.annotations
    if annotations.get(DO_NOT_DISRUPT) == "true":
        return True
    return not state_node.managed and annotations.get(SCALE_DOWN_DISABLED) == "true"


def _is_considered(state_node: StateNode, other_nodes: Mapping[str, str | None]) -> bool:
    if state_node.managed:
        return state_node.initialized
    labels = state_node.labels
    return bool(other_nodes) and all(
        key in labels and value in {None, labels[key]} for key, value in other_nodes.items()
    )


@final
class _PricesOfNodes:
    """Prices of managed nodes by their NodePool, and of others by any catalogue with their type."""

    def __init__(self, snapshot: Snapshot, options: SolveOptions) -> None:
        self._prices: Final = NodePrices(snapshot, options)
        self._rates: Final = {options.currency: 1.0, **options.exchange_rates}
        self._types: Final[dict[str, InstanceType]] = {
            item.name: item
            for _, catalogue in sorted(snapshot.catalogues.items(), reverse=True)
            for item in catalogue.instance_types
        }

    def price_per_hour(self, state_node: StateNode) -> float | None:
        """Return the price in the reporting currency; None if it is not known."""
        if state_node.managed:
            return self._prices.hourly_cost_of(state_node)
        labels = state_node.labels
        price = current_price(
            self._types.get(labels.get(INSTANCE_TYPE, "")),
            labels.get(ZONE, ""),
            _capacity_type(labels),
        )
        if price.amount <= 0 or price.currency not in self._rates:
            return None
        return self._prices.convert(price)


def _capacity_type(labels: Mapping[str, str]) -> str:
    """Return the capacity type of a node of another autoscaler.

    Clouds mark spot nodes by labels of their own, whose value is the word spot: EKS by
    `eks.amazonaws.com/capacityType: SPOT`, AKS by `kubernetes.azure.com/scalesetpriority: spot`.
    """
    if CAPACITY_TYPE in labels:
        return labels[CAPACITY_TYPE]
    is_spot = any(value.lower() == SPOT for value in labels.values())
    return SPOT if is_spot else ON_DEMAND
