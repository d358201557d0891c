"""Writes a view as the JSON that `docs/reference/top.md` specifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.quantities import format_amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.cli.top.view import ClusterView, NodeRow, ResourceUse

__all__ = ["node_identity", "view_document"]

_DIGITS: Final = 9


def view_document(view: ClusterView, rows: Sequence[NodeRow]) -> dict[str, object]:
    """Return a view with these rows in the documented form."""
    totals = view.totals
    return {
        "totals": {
            "nodes": totals.nodes,
            "states": dict(sorted(totals.states.items())),
            "pods": totals.pods,
            "runningPods": totals.running_pods,
            "boundPods": totals.bound_pods,
            "pendingPods": totals.pending_pods,
            "resources": _uses(totals.uses),
            "pricePerHour": round(totals.price_per_hour, _DIGITS) if view.has_prices else None,
            "pricePerMonth": round(totals.price_per_month, _DIGITS) if view.has_prices else None,
            "currency": view.currency,
            "unpricedNodes": totals.unpriced_nodes,
        },
        "nodes": [_node(row) for row in rows],
        "nodePools": [
            {
                "name": pool.name,
                "nodes": pool.nodes,
                "pricePerHour": round(pool.price_per_hour, _DIGITS) if view.has_prices else None,
                "resources": _uses(pool.uses),
                "limits": {
                    name: format_amount(name, amount)
                    for name, amount in sorted(pool.limits.items())
                },
            }
            for pool in view.pools
        ],
        "pendingPods": [
            {
                "pod": pod.key,
                "state": pod.state.value,
                "message": pod.message,
                "ageSeconds": pod.age_seconds,
                "pools": {name: dict(reason) for name, reason in pod.pools.items()},
            }
            for pod in view.pending
        ],
        "decisions": [
            {
                "at": decision.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "objects": list(decision.objects),
                "reason": decision.reason,
                "message": decision.message,
                "warning": decision.is_warning,
                "count": decision.count,
            }
            for decision in view.decisions
        ],
        "notes": list(view.notes),
    }


def node_identity(row: NodeRow) -> dict[str, object]:
    """Return the fields of a node that every document of it has, in their order."""
    return {
        "name": row.name,
        "nodeClaim": row.node_claim,
        "nodePool": row.pool,
        "instanceType": row.instance_type,
        "zone": row.zone,
        "capacityType": row.capacity_type,
        "state": row.state.value,
        "reason": row.reason,
    }


def _node(row: NodeRow) -> dict[str, object]:
    return {
        **node_identity(row),
        "ageSeconds": row.age_seconds,
        "pods": len(row.pods),
        "pricePerHour": row.price_per_hour,
        "resources": _uses(row.uses),
    }


def _uses(uses: Mapping[str, ResourceUse]) -> dict[str, object]:
    return {
        name: {
            "requested": format_amount(name, use.requested),
            "allocatable": format_amount(name, use.allocatable),
            "share": round(use.share, 4),
        }
        for name, use in uses.items()
    }
