"""Writes a plan as the JSON that `docs/reference/plan.md` specifies.

Apart from `timings`, which the command adds, the same input gives the same bytes in every process.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from karpenter_core.scheduling.virtual_pods import virtual_placements, without_virtual_pods

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.scheduling.problem import (
        CheapestOffering,
        PlannedNodeClaim,
        PoolConstraint,
        SchedulingPlan,
        UnschedulablePod,
    )
    from karpenter_core.state.ignored_pods import IgnoredPod
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "constraint_of_ignored", "hold_reason", "instant_text", "json_text", "no_pools_text", "offering", "plan_document",
    "waiting_pods",
]  # fmt: skip

_COST_DIGITS: Final = 9
"""Digits to which sums of prices are rounded, so that a bound never exceeds the cost."""


def plan_document(cluster: ClusterInput, plan: SchedulingPlan) -> dict[str, object]:
    """Return a plan in the documented form, without `timings`."""
    virtual = _virtual_pods(cluster, plan)
    uids = {pod.uid for pods in cluster.snapshot.virtual_pods.values() for pod in pods}
    whole, plan = plan, without_virtual_pods(plan, uids)
    existing = {name: [pod.key for pod in pods] for name, pods in cluster.input.placed_pods.items()}
    for name, pods in plan.existing.items():
        existing.setdefault(name, []).extend(pod.key for pod in pods)
    bound = plan.cost.lower_bound
    return {
        "nodeClaims": [_claim(claim) for claim in whole.claims],
        "existingNodes": {name: sorted(existing[name]) for name in sorted(existing)},
        "unschedulable": dict(sorted(_unschedulable(cluster, plan).items())),
        "cost": {
            "hourly": float(plan.cost.hourly),
            "lowerBound": None if bound is None else round(bound, _COST_DIGITS),
            "firstFit": None
            if plan.cost.first_fit_hourly is None
            else float(plan.cost.first_fit_hourly),
        },
        **({"virtualPods": virtual} if virtual else {}),
    }


def no_pools_text(cluster: ClusterInput) -> str:
    """Return why no NodePool is used."""
    unusable = cluster.unusable_pools
    if not unusable:
        return "there is no NodePool"
    return "; ".join(f'NodePool "{name}": {why}' for name, why in unusable.items())


def _virtual_pods(cluster: ClusterInput, plan: SchedulingPlan) -> dict[str, object]:
    """Return for each object that asks for virtual pods how many have room, and why some have none."""
    sources = cluster.snapshot.virtual_pods
    found: dict[str, object] = {}
    for source, placement in virtual_placements(plan, sources).items():
        reasons = (plan.unschedulable.get(pod.uid) for pod in sources[source])
        why = next((reason for reason in reasons if reason is not None), None)
        found[str(source)] = {
            "wanted": placement.wanted,
            "existingNodes": placement.on_existing,
            "newNodes": placement.on_new,
            "unschedulable": placement.failed,
            "message": "" if why is None else why.message,
        }
    return dict(sorted(found.items()))


def instant_text(at: datetime) -> str:
    """Return an instant as Kubernetes writes it, in whole seconds."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def json_text(document: Mapping[str, object]) -> str:
    """Return a document as indented JSON, fast enough for large ones."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def offering(cheapest: CheapestOffering) -> dict[str, object]:
    """Return the cheapest offering of a claim; with the list price, if the price is another."""
    document: dict[str, object] = {
        "instanceType": cheapest.instance_type,
        "zone": cheapest.zone,
        "capacityType": cheapest.capacity_type,
        "price": cheapest.price_per_hour,
    }
    if cheapest.price_source:
        document |= {
            "listPrice": cheapest.list_price_per_hour,
            "priceSource": cheapest.price_source,
        }
    return document


def _claim(claim: PlannedNodeClaim) -> dict[str, object]:
    return {
        "nodePool": claim.pool,
        "pods": sorted(pod.key for pod in claim.pods if not pod.is_virtual),
        **_virtual_part(claim),
        "instanceTypes": list(claim.instance_types),
        "cheapest": offering(claim.cheapest),
        "requirements": [
            {"key": spec.key, "operator": spec.operator, "values": list(spec.values)}
            for requirement in claim.requirements
            for spec in requirement.to_specs()
        ],
    }


def _virtual_part(claim: PlannedNodeClaim) -> dict[str, object]:
    """Return the number of virtual pods by source; nothing for a claim without any."""
    sources = (pod.shape.virtual_source for pod in claim.pods)
    counts = Counter(str(source) for source in sources if source is not None)
    return {"virtualPods": dict(sorted(counts.items()))} if counts else {}


# -- pods that stay pending ------------------------------------------------------------------------


def waiting_pods(snapshot: Snapshot) -> Iterator[PodView]:
    """Yield the pods without a node that wait for one."""
    return (pod for pod in snapshot.unbound_pods.values() if pod.is_active)


def hold_reason(pod: PodView) -> str:
    """Return why a pod without a node is not planned; empty if it is."""
    if pod.is_provisionable:
        return ""
    if pod.shape.scheduling_gates:
        return f"held by scheduling gates: {', '.join(pod.shape.scheduling_gates)}"
    if pod.nominated_node_name:
        return f'the scheduler makes room for it on node "{pod.nominated_node_name}" (preemption)'
    if pod.is_daemon:
        return "a DaemonSet's pod belongs to one node; none is launched for it"
    if pod.is_mirror:
        return "a static pod belongs to one node; none is launched for it"
    return (
        f'scheduler "{pod.shape.scheduler_name}" has not reported it as unschedulable '
        "(condition PodScheduled, reason Unschedulable)"
    )


def constraint_of_ignored(cluster: ClusterInput, ignored: IgnoredPod) -> PoolConstraint:
    """Return the constraint because of which a pod is not planned: selectors, volumes, priority."""
    from karpenter_core.scheduling.pod_selectors import selector_error
    from karpenter_core.scheduling.problem import PoolConstraint

    problem = cluster.input.problem
    shape = ignored.pod.shape
    if ignored.expendable:
        return PoolConstraint.PRIORITY
    if ignored.silent or selector_error(
        shape, well_known=problem.well_known, aliases=problem.aliases
    ):
        return PoolConstraint.REQUIREMENT
    return PoolConstraint.VOLUME


def _unschedulable(cluster: ClusterInput, plan: SchedulingPlan) -> dict[str, object]:
    """Return the reasons of pods that stay pending, planned or not."""
    from karpenter_core.api.provisioning_request import consumed_request

    pools = sorted(pool.name for pool in cluster.input.problem.pools)
    pending: dict[str, object] = {}
    for pod in cluster.input.problem.pods:
        why = plan.unschedulable.get(pod.uid)
        if why is not None and not pod.is_virtual:
            pending[pod.key] = _reasons(cluster, why)
    for ignored in cluster.input.ignored:
        constraint = constraint_of_ignored(cluster, ignored).value
        reason = {"constraint": constraint, "detail": ignored.reason, "closest": ""}
        pending[ignored.pod.key] = {
            "message": ignored.reason,
            "pools": {}
            if consumed_request(ignored.pod.shape.annotations)
            else {name: dict(reason) for name in pools},
        }
    settled = {pod.uid for pod in cluster.input.problem.pods}
    settled.update(pod.uid for pods in cluster.input.placed_pods.values() for pod in pods)
    for pod in waiting_pods(cluster.snapshot):
        reason = "" if pod.uid in settled else hold_reason(pod)
        if reason:
            pending[pod.key] = {"message": reason, "pools": {}}
    return pending


def _reasons(cluster: ClusterInput, why: UnschedulablePod) -> dict[str, object]:
    return {
        "message": why.message if why.pools else f"{why.message}: {no_pools_text(cluster)}",
        "pools": {
            name: {
                "constraint": rejection.constraint.value,
                "detail": rejection.detail,
                "closest": rejection.closest,
            }
            for name, rejection in why.pools.items()
        },
    }
