"""Writes the dashboard's documents (pure), in which every list is bounded.

No field changes with time alone (ages are times of creation), so that an update of the page has only
what changed in the cluster. `docs/dashboard.md` specifies the JSON.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CPU, DO_NOT_DISRUPT, MEMORY, PODS
from karpenter_core.cli.document import hold_reason, waiting_pods
from karpenter_core.cli.plan_notes import plan_notes
from karpenter_core.cli.top.build_view import RowCache, snapshot_view
from karpenter_core.cli.top.document import node_identity
from karpenter_core.cli.top.text import amount_text
from karpenter_core.cli.top.view import NodeState, PendingPod, PendingState
from karpenter_core.errors import BadInputError
from karpenter_core.operator.dashboard_content import Role
from karpenter_core.state.unusable_pools import unusable_pools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.decisions import Decision
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import PodView
    from karpenter_core.cli.top.view import ClusterView, NodeRow, PoolRow, ResourceUse
    from karpenter_core.operator.dashboard_content import ClusterMoment, Json

__all__ = [
    "MOST_NODES",
    "MOST_PENDING",
    "MOST_PODS",
    "DocumentCache",
    "pods_document",
    "short_decision",
    "short_rebalance",
    "state_document",
]  # fmt: skip

API_VERSION: Final = 1
MOST_NODES: Final = 2_000
MOST_PENDING: Final = 200
MOST_PODS: Final = 500
MOST_STEPS: Final = 100
MOST_NAMES: Final = 10
MOST_NOTES: Final = 50
_RESOURCES: Final = (CPU, MEMORY)
_DIGITS: Final = 9


@final
class DocumentCache:
    """The rows of the last state, and their JSON: those of nodes that are the same are used again."""

    def __init__(self) -> None:
        self.rows: Final = RowCache()
        self._nodes: dict[str, tuple[NodeRow, Json]] = {}

    def nodes(self, rows: Sequence[NodeRow]) -> list[Json]:
        """Return the JSON of rows, whose age is not part of it."""
        found: dict[str, tuple[NodeRow, Json]] = {}
        for row in rows:
            kept = self._nodes.get(row.name)
            # A row that was used again is a copy with another age: it has the same mapping.
            if kept is None or kept[0].uses is not row.uses:
                kept = (row, _node(row))
            found[row.name] = kept
        self._nodes = found
        return [document for _, document in found.values()]


def state_document(moment: ClusterMoment, cache: DocumentCache | None = None) -> Json:
    """Return everything that the page shows without a question; `cache` is that of the state before."""
    cache = DocumentCache() if cache is None else cache
    snapshot = moment.snapshot
    view = snapshot_view(
        snapshot,
        moment.solve,
        pending=_pending(moment),
        now=moment.now,
        well_known=moment.problem_settings.well_known,
        resources=_RESOURCES,
        node_selector={},
        notes=plan_notes(snapshot),
        row_cache=cache.rows,
    )
    # Nodes that are not ready are seen first where a list has an end.
    rows = sorted(view.nodes, key=lambda row: (row.state is NodeState.READY, row.name))
    # A standby lists no instance types: of every NodePool it would say that none are sold.
    unusable = {} if moment.role is Role.STANDBY else unusable_pools(snapshot, {})
    return {
        "apiVersion": API_VERSION,
        "cluster": moment.cluster_name,
        "role": moment.role.value,
        "leader": moment.leader,
        "synced": snapshot.synced,
        "paused": moment.is_paused,
        "problems": list(moment.problems),
        "currency": view.currency,
        "totals": _totals(view),
        "nodePools": [_pool(pool, unusable.get(pool.name, "")) for pool in view.pools],
        "nodes": cache.nodes(rows[:MOST_NODES]),
        "omittedNodes": max(len(rows) - MOST_NODES, 0),
        "pendingPods": [_pending_pod(pod) for pod in view.pending[:MOST_PENDING]],
        "pendingStates": dict(sorted(Counter(pod.state.value for pod in view.pending).items())),
        "notes": list(view.notes[:MOST_NOTES]),
    }


def pods_document(moment: ClusterMoment, name: str) -> Json:
    """Return the pods of a node, the largest first.

    Raises:
        BadInputError: there is no such node.
    """
    snapshot = moment.snapshot
    state_node = snapshot.state_nodes_by_node.get(name) or snapshot.state_nodes_by_claim.get(name)
    if state_node is None:
        raise BadInputError(f'no node "{name}"')
    pods = sorted(state_node.pods, key=lambda pod: (-pod.shape.requests.get(CPU, 0), pod.key))
    return {
        "node": name,
        "pods": [_pod(pod) for pod in pods[:MOST_PODS]],
        "omitted": max(len(pods) - MOST_PODS, 0),
    }


def short_rebalance(document: JsonObject) -> Json:
    """Return the JSON of a rebalance with the first steps, names and blockers, and what was left out."""
    steps, blocked = document["steps"], document["blocked"]
    return {
        **document,
        "steps": [_short_step(step) for step in steps[:MOST_STEPS]],
        "omittedSteps": max(len(steps) - MOST_STEPS, 0),
        "blocked": blocked[:MOST_NOTES],
    }


def _short_step(step: JsonObject) -> Json:
    nodes, claims = step["nodes"], step["nodeClaims"]
    return {
        "method": step["method"],
        "reason": step["reason"],
        "nodes": nodes[:MOST_NAMES],
        "omittedNodes": max(len(nodes) - MOST_NAMES, 0),
        "nodeClaims": [
            {"nodePool": claim["nodePool"], "cheapest": claim["cheapest"]}
            for claim in claims[:MOST_NAMES]
        ],
        "omittedNodeClaims": max(len(claims) - MOST_NAMES, 0),
        "podsMoved": step["podsMoved"],
        "savingsPerHour": step["savingsPerHour"],
        "pricePerHour": step["pricePerHour"],
    }


def short_decision(decision: Decision) -> Json:
    """Return a decision with the first names of each list."""
    return {
        "id": decision.id,
        "at": _instant(decision.at),
        "kind": decision.kind,
        "method": decision.method,
        "reason": decision.reason,
        "summary": decision.summary,
        "rejection": decision.rejection,
        "failure": decision.failure,
        "removed": [item.node or item.node_claim for item in decision.candidates[:MOST_NAMES]],
        "launched": [
            " ".join(filter(None, (item.node_claim, item.instance_type, item.zone)))
            for item in decision.launches[:MOST_NAMES]
        ],
        "more": max(len(decision.candidates) - MOST_NAMES, 0)
        + max(len(decision.launches) - MOST_NAMES, 0)
        + sum(decision.omitted.get(name, 0) for name in ("candidates", "launches")),
        "priceBefore": _amount(decision.price_per_hour_before),
        "priceAfter": _amount(decision.price_per_hour_after),
        "currency": _currency(decision.price_per_hour_before, decision.price_per_hour_after),
    }


# -- parts -----------------------------------------------------------------------------------------


def _totals(view: ClusterView) -> Json:
    totals = view.totals
    return {
        "nodes": totals.nodes,
        "states": dict(sorted(totals.states.items())),
        "pods": totals.pods,
        "runningPods": totals.running_pods,
        "pendingPods": totals.pending_pods,
        "resources": _uses(totals.uses),
        "pricePerHour": round(totals.price_per_hour, _DIGITS),
        "pricePerMonth": round(totals.price_per_month, _DIGITS),
        "unpricedNodes": totals.unpriced_nodes,
    }


def _pool(pool: PoolRow, problem: str) -> Json:
    return {
        "name": pool.name,
        "nodes": pool.nodes,
        "pricePerHour": round(pool.price_per_hour, _DIGITS),
        "resources": _uses(pool.uses),
        "limits": {name: amount_text(name, pool.limits[name]) for name in sorted(pool.limits)},
        "problem": problem,
    }


def _node(row: NodeRow) -> Json:
    return {
        **node_identity(row),
        "createdAt": _created(row.created),
        "pods": row.use_of(PODS).requested,
        "pricePerHour": row.price_per_hour,
        "resources": _uses(row.uses),
    }


def _uses(uses: Mapping[str, ResourceUse]) -> Json:
    return {
        name: {
            "requested": amount_text(name, use.requested),
            "allocatable": amount_text(name, use.allocatable),
            "share": round(use.share, 4),
        }
        for name, use in uses.items()
        if name != PODS
    }


def _pending_pod(pod: PendingPod) -> Json:
    return {
        "pod": pod.key,
        "state": pod.state.value,
        "message": pod.message,
        "createdAt": _created(pod.created),
    }


def _pod(pod: PodView) -> Json:
    return {
        "pod": pod.key,
        "phase": "Terminating" if pod.is_terminating else pod.phase,
        "cpu": amount_text(CPU, pod.shape.requests.get(CPU, 0)),
        "memory": amount_text(MEMORY, pod.shape.requests.get(MEMORY, 0)),
        "createdAt": _created(pod.created),
        "daemon": pod.is_daemon,
        "doNotDisrupt": DO_NOT_DISRUPT in pod.shape.annotations,
    }


def _pending(moment: ClusterMoment) -> tuple[PendingPod, ...]:
    """Return the pods without a node, those that cannot be placed first, then by name."""
    pods = [_pending_of(pod, moment) for pod in waiting_pods(moment.snapshot)]
    return tuple(sorted(pods, key=lambda pod: (_ORDER[pod.state], pod.key)))


_ORDER: Final[Mapping[PendingState, int]] = {
    PendingState.UNSCHEDULABLE: 0,
    PendingState.HELD: 1,
    PendingState.LAUNCH: 2,
    PendingState.EXISTING: 3,
}


def _pending_of(pod: PodView, moment: ClusterMoment) -> PendingPod:
    state, message = _prospect(pod, moment)
    age = None if pod.created is None else (moment.now - pod.created).total_seconds()
    return PendingPod(
        key=pod.key, state=state, message=message, age_seconds=age, created=pod.created
    )


def _prospect(pod: PodView, moment: ClusterMoment) -> tuple[PendingState, str]:
    snapshot = moment.snapshot
    placement = snapshot.ledger.placements.get(pod.uid)
    if placement is not None:
        if placement.target in snapshot.nodes:
            return PendingState.EXISTING, f"a place on node {placement.target} is kept for it"
        return PendingState.LAUNCH, f"NodeClaim {placement.target} is launched for it"
    if (message := moment.reasons.get(pod.uid, "")) != "":
        return PendingState.UNSCHEDULABLE, message
    if (held := hold_reason(pod)) != "":
        return PendingState.HELD, held
    if moment.role is Role.STANDBY:
        return PendingState.HELD, "only the leader plans pods, and this replica is a standby"
    if moment.role is Role.OBSERVER:
        return PendingState.HELD, "this process only observes: its plans are among the decisions"
    return PendingState.HELD, "waits for the next pass"


def _created(at: datetime | None) -> str | None:
    return None if at is None else _instant(at)


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _amount(price: Price | None) -> float | None:
    return None if price is None else round(price.amount, _DIGITS)


def _currency(*prices: Price | None) -> str:
    return next((price.currency for price in prices if price is not None), "")
