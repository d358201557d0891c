"""Makes a cluster's view from its snapshot, catalogues and a plan (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.conditions import READY, TRUE, find_condition, is_true
from karpenter_core.api.labels import CAPACITY_TYPE, DISRUPTED_TAINT, INSTANCE_TYPE, PODS, ZONE
from karpenter_core.api.nodeclaim import (
    DISRUPTION_REASON,
    DRAINED,
    INITIALIZED,
    INSTANCE_TERMINATING,
    LAUNCHED,
    REGISTERED,
)
from karpenter_core.api.quantities import parse_resources
from karpenter_core.cli.command_input import recent_refusal
from karpenter_core.cli.document import plan_document, waiting_pods
from karpenter_core.cli.explain.first_cause import first_cause, refusal_text
from karpenter_core.cli.top.view import (
    ClusterView,
    DecisionRow,
    NodeRow,
    NodeState,
    PendingPod,
    PendingState,
    PoolRow,
    ResourceUse,
    Totals,
)
from karpenter_core.disruption.pricing import NodePrices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_events import DecisionEvent, PodRefusal
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.scheduling.problem import SchedulingPlan, SolveOptions
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "PodProspect",
    "RowCache",
    "build_view",
    "decision_rows",
    "pending_pods",
    "pod_prospects",
    "snapshot_view",
    "state_of",
]

_RUNNING = "Running"


def build_view(
    cluster: ClusterInput,
    plan: SchedulingPlan,
    *,
    resources: Sequence[str],
    node_selector: Mapping[str, str],
    with_prices: bool = True,
    refusals: Mapping[str, PodRefusal] | None = None,
) -> ClusterView:
    """Return the view of a cluster.

    `plan` is that of `karpenter plan`: it has the reasons of pending pods. With `node_selector` only
    the nodes with these labels are shown and counted, and the pods on them.
    """
    return snapshot_view(
        cluster.snapshot,
        cluster.options,
        pending=pending_pods(
            cluster.snapshot, pod_prospects(cluster, plan), refusals or {}, now=cluster.now
        ),
        now=cluster.now,
        well_known=cluster.problem_settings.well_known,
        resources=resources,
        node_selector=node_selector,
        with_prices=with_prices,
        notes=cluster.notes,
    )


def snapshot_view(
    snapshot: Snapshot,
    options: SolveOptions,
    *,
    pending: tuple[PendingPod, ...],
    now: datetime,
    well_known: frozenset[str],
    resources: Sequence[str],
    node_selector: Mapping[str, str],
    with_prices: bool = True,
    notes: tuple[str, ...] = (),
    row_cache: RowCache | None = None,
) -> ClusterView:
    """Return the view of a snapshot; `pending` are the pods without a node.

    `row_cache` has the rows of the view before, made with the same options.
    """
    prices = NodePrices(snapshot, options, well_known=well_known)
    price_of = prices.hourly_cost_of if with_prices else _unknown_price
    selected = (each for each in snapshot.counted_nodes if _is_selected(each, node_selector))

    def make_row(state_node: StateNode) -> NodeRow:
        return _row(state_node, resources=resources, price_of=price_of, now=now)

    cache = RowCache() if row_cache is None else row_cache
    rows = cache.rows_of(selected, make_row, catalogues=snapshot.catalogues, now=now)
    return ClusterView(
        nodes=rows,
        pools=_pool_rows(snapshot.node_pools, rows, resources),
        pending=pending,
        totals=_totals(snapshot, rows, resources=resources, with_prices=with_prices,
                       shown=frozenset(row.name for row in rows) if node_selector else None, cache=cache),
        resources=tuple(resources),
        currency=options.currency,
        has_prices=with_prices,
        notes=notes,
    )  # fmt: skip


@final
class RowCache:
    """The rows of the last view: those of nodes that are the same are used again."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[StateNode, NodeRow]] = {}
        self._catalogues: object = None
        self._counts: dict[str, tuple[tuple[PodView, ...], int, int]] = {}

    def count_pods(
        self, pods_by_node: Mapping[str, tuple[PodView, ...]], shown: frozenset[str] | None
    ) -> tuple[int, int]:
        """Return the number of active pods on the nodes, and of those that run; None is all nodes."""
        before, counts = self._counts, dict[str, tuple[tuple["PodView", ...], int, int]]()
        for name, pods in pods_by_node.items():
            kept = before.get(name)
            if kept is None or kept[0] is not pods:
                active = [pod for pod in pods if pod.is_active]
                kept = (pods, len(active), sum(pod.phase == _RUNNING for pod in active))
            counts[name] = kept
        self._counts = counts
        selected = [each for name, each in counts.items() if shown is None or name in shown]
        return sum(each[1] for each in selected), sum(each[2] for each in selected)

    def rows_of(
        self,
        state_nodes: Iterable[StateNode],
        make_row: Callable[[StateNode], NodeRow],
        *,
        catalogues: object,
        now: datetime,
    ) -> tuple[NodeRow, ...]:
        """Return the rows of nodes; all are made anew if the catalogues, which price them, are others."""
        before = self._rows if catalogues is self._catalogues else {}
        rows: dict[str, tuple[StateNode, NodeRow]] = {}
        for state_node in state_nodes:
            kept = before.get(state_node.name)
            if kept is not None and kept[0] is state_node:
                row = replace(kept[1], age_seconds=_age(kept[1].created, now))
            else:
                row = make_row(state_node)
            rows[state_node.name] = (state_node, row)
        self._rows, self._catalogues = rows, catalogues
        return tuple(row for _, row in rows.values())


def state_of(state_node: StateNode) -> tuple[NodeState, str]:
    """Return the state of a node, and the reason as far as conditions name one."""
    claim, node = state_node.claim, state_node.node
    if claim is not None and (leaving := _leaving_state(claim)) is not None:
        return leaving
    if node is not None and node.is_deleting:
        return NodeState.DRAINING, ""
    if claim is not None and not is_true(claim.status.conditions, INITIALIZED):
        return _arriving_state(claim, has_node=node is not None)
    if node is None:
        return NodeState.NOT_READY, "its Node is gone"
    if any(taint.key == DISRUPTED_TAINT for taint in node.taints):
        return NodeState.DISRUPTED, ""
    if node.ready != TRUE:
        return NodeState.NOT_READY, f"the condition {READY} is {node.ready}"
    return (NodeState.CORDONED if node.unschedulable else NodeState.READY), ""


def _leaving_state(claim: NodeClaim) -> tuple[NodeState, str] | None:
    conditions = claim.status.conditions
    said = find_condition(conditions, DISRUPTION_REASON)
    why = said.reason if said is not None and said.status == TRUE else ""
    if claim.is_deleting:
        is_empty = is_true(conditions, DRAINED) or is_true(conditions, INSTANCE_TERMINATING)
        return (NodeState.TERMINATING if is_empty else NodeState.DRAINING), why
    return (NodeState.DISRUPTED, why) if why else None


def _arriving_state(claim: NodeClaim, *, has_node: bool) -> tuple[NodeState, str]:
    conditions = claim.status.conditions
    for wanted, state in (
        (LAUNCHED, NodeState.LAUNCHING),
        (REGISTERED, NodeState.REGISTERING),
        (INITIALIZED, NodeState.INITIALIZING if has_node else NodeState.REGISTERING),
    ):
        found = find_condition(conditions, wanted)
        if found is None or found.status != TRUE:
            return state, "" if found is None else found.reason
    return NodeState.INITIALIZING, ""


def _unknown_price(_: StateNode) -> float | None:
    return None


def _is_selected(state_node: StateNode, selector: Mapping[str, str]) -> bool:
    return all(state_node.labels.get(key) == value for key, value in selector.items())


def _row(
    state_node: StateNode,
    *,
    resources: Sequence[str],
    price_of: Callable[[StateNode], float | None],
    now: datetime,
) -> NodeRow:
    state, reason = state_of(state_node)
    labels, claim, node = state_node.labels, state_node.claim, state_node.node
    created = node.created if node is not None else None
    if created is None and claim is not None:
        created = claim.metadata.creation_timestamp
    return NodeRow(
        name=state_node.name,
        node_claim="" if claim is None else claim.name,
        pool=state_node.pool,
        instance_type=labels.get(INSTANCE_TYPE, ""),
        zone=labels.get(ZONE, ""),
        capacity_type=labels.get(CAPACITY_TYPE, ""),
        state=state,
        reason=reason,
        age_seconds=_age(created, now),
        uses={
            name: ResourceUse(state_node.requests.get(name, 0), state_node.allocatable.get(name, 0))
            for name in dict.fromkeys((*resources, PODS))
        },
        price_per_hour=price_of(state_node),
        pods=state_node.pods,
        created=created,
    )


def _age(created: datetime | None, now: datetime) -> float | None:
    return None if created is None else max((now - created).total_seconds(), 0.0)


def _sums(rows: Iterable[NodeRow], resources: Sequence[str]) -> dict[str, ResourceUse]:
    sums = {name: [0, 0] for name in dict.fromkeys((*resources, PODS))}
    for row in rows:
        for name, use in row.uses.items():
            sums[name][0] += use.requested
            sums[name][1] += use.allocatable
    return {name: ResourceUse(*both) for name, both in sums.items()}


def _pool_rows(
    pools: Mapping[str, NodePool], rows: Sequence[NodeRow], resources: Sequence[str]
) -> tuple[PoolRow, ...]:
    by_pool: dict[str, list[NodeRow]] = {name: [] for name in pools}
    for row in rows:
        if row.pool:
            by_pool.setdefault(row.pool, []).append(row)
    return tuple(
        PoolRow(
            name=name,
            nodes=len(members),
            price_per_hour=sum(row.price_per_hour or 0.0 for row in members),
            uses=_sums(members, resources),
            limits=parse_resources(pools[name].spec.limits or {}) if name in pools else {},
        )
        for name, members in sorted(by_pool.items())
    )


def _totals(
    snapshot: Snapshot,
    rows: Sequence[NodeRow],
    *,
    resources: Sequence[str],
    with_prices: bool,
    shown: frozenset[str] | None,
    cache: RowCache,
) -> Totals:
    bound, running = cache.count_pods(snapshot.pods_by_node, shown)
    unbound = sum(pod.is_active for pod in snapshot.unbound_pods.values())
    priced = [row.price_per_hour for row in rows if row.price_per_hour is not None]
    return Totals(
        nodes=len(rows),
        states=dict(Counter(row.state.value for row in rows)),
        uses=_sums(rows, resources),
        price_per_hour=sum(priced),
        unpriced_nodes=len(rows) - len(priced) if with_prices else 0,
        pods=bound + unbound,
        running_pods=running,
        bound_pods=bound,
        pending_pods=unbound,
    )


def decision_rows(events: Iterable[DecisionEvent], *, now: datetime) -> tuple[DecisionRow, ...]:
    """Return the rows of decisions that were read from a cluster."""
    return tuple(
        DecisionRow(
            title=event.title,
            objects=event.objects,
            reason=event.reason,
            message=event.message,
            is_warning=event.is_warning,
            count=event.count,
            at=event.at,
            age_seconds=max((now - event.at).total_seconds(), 0.0),
        )
        for event in events
    )


# -- pods without a node ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodProspect:
    """The verdict of a plan about one pod."""

    state: PendingState
    message: str
    pools: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])


def pod_prospects(cluster: ClusterInput, plan: SchedulingPlan) -> dict[str, PodProspect]:
    """Return what a plan says about each pod without a node, by UID."""
    from karpenter_core.cli.explain.pod import existing_text

    document = plan_document(cluster, plan)
    refused = cast("Mapping[str, Mapping[str, object]]", document["unschedulable"])
    existing = cast("Mapping[str, Sequence[str]]", document["existingNodes"])
    targets = {key: name for name, keys in existing.items() for key in keys}
    places: dict[str, PodProspect] = {}
    for claim in plan.claims:
        cheapest = claim.cheapest
        launch = f"{cheapest.instance_type} {cheapest.zone} {cheapest.capacity_type}"
        message = f"a node is to be launched: {launch}, NodePool {claim.pool}"
        places |= {pod.key: PodProspect(PendingState.LAUNCH, message) for pod in claim.pods}
    prospects: dict[str, PodProspect] = {}
    for pod in waiting_pods(cluster.snapshot):
        found = places.get(pod.key) or PodProspect(PendingState.HELD, "waits for the scheduler")
        if pod.key in targets:
            text = existing_text(cluster, pod, targets[pod.key])
            found = PodProspect(PendingState.EXISTING, text)
        if (why := refused.get(pod.key)) is not None:
            pools = cast("Mapping[str, Mapping[str, str]]", why["pools"])
            is_refused = bool(pools) or pod.uid in plan.unschedulable
            state = PendingState.UNSCHEDULABLE if is_refused else PendingState.HELD
            message = first_cause(cluster, pod, pools, plan).text if pools else str(why["message"])
            found = PodProspect(state, message, pools)
        prospects[pod.uid] = found
    return prospects


_NOT_PLANNED: Final = PodProspect(PendingState.HELD, "not planned yet")


def pending_pods(
    snapshot: Snapshot,
    prospects: Mapping[str, PodProspect],
    refusals: Mapping[str, PodRefusal],
    *,
    now: datetime,
) -> tuple[PendingPod, ...]:
    """Return the pods without a node, in the order of their names.

    `refusals` are why the controller has launched no node for pods for which the plan has one.
    """
    waiting: list[tuple[PodView, PodProspect]] = []
    for pod in waiting_pods(snapshot):
        found = prospects.get(pod.uid, _NOT_PLANNED)
        if found.state is PendingState.LAUNCH:
            refusal = recent_refusal(refusals, pod, snapshot, now=now)
            if refusal is not None:
                found = PodProspect(PendingState.UNSCHEDULABLE, refusal_text(refusal))
        waiting.append((pod, found))
    return tuple(
        PendingPod(
            key=pod.key, state=found.state, message=found.message, pools=found.pools,
            age_seconds=_age(pod.created, now), created=pod.created,
        )
        for pod, found in sorted(waiting, key=lambda each: each[0].key)
    )  # fmt: skip
