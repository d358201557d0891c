"""Explains a NodePool: the nodes it may launch now, and its obstacles.

An obstacle is a limit, a quota or a condition. The numbers are those of a provisioning pass; the
plan is solved as in `karpenter plan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import NODES, PRICE_PER_HOUR, SPOT_SHARE
from karpenter_core.api.quantities import format_amount, parse_amount, parse_resources
from karpenter_core.cli.document import instant_text, offering
from karpenter_core.cli.explain.tables import NODE_POOL_STATES
from karpenter_core.cli.missing_objects import missing_object
from karpenter_core.cli.static_pools import static_pool_document
from karpenter_core.cli.tables import counted
from karpenter_core.scheduling.compiled.pool_templates import SIMULATION_LABELS, read_pool_template
from karpenter_core.state.capacity_quotas import planned_amounts, planned_types
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import is_static, static_pool_claims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.cli.cluster_events import PodRefusal
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.scheduling.problem import (
        CheapestOffering,
        LaunchQuota,
        PlannedNodeClaim,
        SchedulingPlan,
    )

__all__ = ["find_node_pool", "node_pool_explanation"]

_SHOWN: Final = 5
"""NodeClaims that a message names."""


def find_node_pool(cluster: ClusterInput, name: str) -> NodePool:
    """Return the NodePool of this name.

    Raises:
        BadInputError: there is none; suggests similar names.
    """
    pools = cluster.snapshot.node_pools
    if name in pools:
        return pools[name]
    raise missing_object("NodePool", name, pools)


def node_pool_explanation(
    command_input: CommandInput, pool: NodePool, plan: SchedulingPlan
) -> dict[str, object]:
    """Return the answer for one NodePool, as JSON values."""
    cluster = command_input.cluster
    settings = cluster.problem_settings
    typical = plan_static_claim(
        cluster.snapshot,
        pool,
        aliases=settings.aliases,
        well_known=settings.well_known,
        solve=cluster.options,
    )
    limits = _limits(cluster, pool, typical)
    quotas = _quotas(cluster, typical)
    static = (
        static_pool_document(cluster, pool, static_capacity=command_input.static_capacity)
        if is_static(pool) and cluster.snapshot.manages(pool.spec.template.spec.node_class_ref)
        else None
    )
    launches = [claim for claim in plan.claims if claim.pool == pool.name]
    refusals = [
        found
        for claim in launches
        for pod in claim.pods
        if (found := command_input.refusal_of(pod)) is not None
    ]
    state, message = _answer(cluster, pool, typical, static, [*limits, *quotas], launches)
    if state == "launching" and len(refusals) == sum(len(claim.pods) for claim in launches):
        latest = max(refusals, key=lambda refusal: refusal.at)
        state, message = "held-back", _refused_text(latest, len(refusals))
    share = pool.metadata.annotations.get(SPOT_SHARE)
    return {
        "nodePool": pool.name,
        "state": state,
        "answer": f"{pool.name}: {_lead(state)}{message}",
        "message": message,
        "nodes": cluster.input.problem.pool_usage.get(pool.name, {}).get(NODES, 0),
        "cheapest": None if typical is None else offering(_cheapest(typical, launches)),
        "limits": {item["name"]: _without_name(item) for item in limits},
        "quotas": {item["name"]: _without_name(item) for item in quotas},
        "launches": _launches(launches),
        **({} if static is None else {"static": static}),
        **({} if share is None else {"spotShare": share}),
    }


def _refused_text(refusal: PodRefusal, pods: int) -> str:
    return (
        f"the controller launches no node for {counted(pods, 'pod')} that it suits: "
        f"{refusal.message} (said at {instant_text(refusal.at)})"
    )


def _lead(state: str) -> str:
    """Return the words for a state before the message; nothing where the message says it."""
    return "" if state in {"launching", "open", "static"} else f"{NODE_POOL_STATES[state]}: "


def _cheapest(typical: PlannedNodeClaim, launches: list[PlannedNodeClaim]) -> CheapestOffering:
    """Return the cheapest offering; commitments lower the price of a launch below the list prices."""
    offers = (typical.cheapest, *(claim.cheapest for claim in launches))
    return min(offers, key=lambda offer: offer.price_per_hour)


def _answer(
    cluster: ClusterInput,
    pool: NodePool,
    typical: PlannedNodeClaim | None,
    static: Mapping[str, object] | None,
    ceilings: list[dict[str, object]],
    launches: list[PlannedNodeClaim],
) -> tuple[str, str]:
    """Return the state of a NodePool and the sentence for it; the first that holds."""
    if static is not None:
        return "static", _static_text(static)
    if pool.name in cluster.unusable_pools:
        return "unusable", cluster.unusable_pools[pool.name]
    refusal = cluster.input.refused_pools.get(pool.name)
    if refusal is not None:
        return "held-back", refusal.message
    for item in ceilings:
        if item["message"]:
            return "limited", str(item["message"])
    if typical is None:
        return "unusable", _nothing_to_launch(cluster, pool)
    if not launches:
        return "open", "it may launch nodes, and no pod needs one of it now"
    pods = sum(len(claim.pods) for claim in launches)
    return "launching", f"it launches {counted(len(launches), 'node')} for {counted(pods, 'pod')}"


def _nothing_to_launch(cluster: ClusterInput, pool: NodePool) -> str:
    """Return why there is no claim that the NodePool could launch now."""
    catalogue = cluster.snapshot.catalogues.get(pool.name)
    if catalogue is None:
        return "its instance types are not known"
    template = read_pool_template(pool, aliases=cluster.problem_settings.aliases)
    if template.unreadable_reason:
        return template.unreadable_reason
    requirements = template.requirements.without(SIMULATION_LABELS)
    types = catalogue.instance_types
    matching = sum(each.requirements.intersects(requirements) for each in types)
    if not matching:
        return f"no instance type meets its requirements ({len(types)} are known)"
    return (
        "no instance type that it may launch is available now "
        f"({counted(matching, 'instance type')} fit its requirements, in no zone and capacity type that it allows)"
    )


def _static_text(static: Mapping[str, object]) -> str:
    if static["problem"]:
        return str(static["problem"])
    if static["create"]:
        return f"{static['create']} of its {static['replicas']} replica(s) are created now"
    leaving = cast("list[str]", static["delete"])
    if leaving:
        return f"{counted(len(leaving), 'NodeClaim')} too many: {', '.join(leaving[:_SHOWN])}"
    return f"it has its {static['replicas']} replica(s)"


# -- limits and quotas -----------------------------------------------------------------------------


def _limits(
    cluster: ClusterInput, pool: NodePool, typical: PlannedNodeClaim | None
) -> list[dict[str, object]]:
    """Return the limits of a NodePool, with what its nodes hold; of a static one that of its nodes."""
    if not pool.spec.limits:
        return []
    limits = parse_resources(pool.spec.limits)
    if is_static(pool):
        used = {NODES: static_pool_claims(cluster.snapshot, pool.name).node_count}
        limits = {name: limit for name, limit in limits.items() if name == NODES}
    else:
        used = cluster.input.problem.pool_usage.get(pool.name, {})
    smallest = _smallest_amounts(cluster, typical)
    return [
        _ceiling(name, name, limit, used.get(name, 0), smallest)
        for name, limit in sorted(limits.items())
    ]


def _quotas(cluster: ClusterInput, typical: PlannedNodeClaim | None) -> list[dict[str, object]]:
    """Return the CapacityQuotas that may count a node of the NodePool."""
    if typical is None:
        return []
    return [
        _quota(quota, _smallest_amounts(cluster, typical))
        for quota in cluster.input.problem.quotas
        if _counts(cluster, quota, typical)
    ]


def _counts(cluster: ClusterInput, quota: LaunchQuota, typical: PlannedNodeClaim) -> bool:
    limits = cluster.problem_settings.launch_limits
    return bool(
        planned_amounts(
            typical,
            quota.requirements,
            cluster.snapshot.catalogues.get(typical.pool),
            limits.rates,
            well_known=limits.well_known,
            aliases=limits.aliases,
        )
    )


def _quota(quota: LaunchQuota, smallest: Mapping[str, int]) -> dict[str, object]:
    resources = [
        _ceiling(name, f"{name} of {quota.name}", limit, quota.used.get(name, 0), smallest)
        for name, limit in sorted(quota.limits.items())
    ]
    spent = (str(item["message"]) for item in resources if item["message"])
    return {
        "name": quota.name,
        "resources": {str(item["name"]): _without_name(item) for item in resources},
        "message": quota.refusal or next(spent, ""),
    }


def _ceiling(
    resource: str, title: str, limit: int, used: int, smallest: Mapping[str, int]
) -> dict[str, object]:
    """Return one limit: what is used and left of it, and a message if no node fits into the rest."""
    left = max(limit - used, 0)
    message = ""
    if not left:
        message = f"the limit of {title} is used up: {format_amount(resource, used)} of {format_amount(resource, limit)}"
    elif smallest.get(resource, 0) > left:
        message = (
            f"the limit of {title} has {format_amount(resource, left)} left, and its smallest node"
            f" has {format_amount(resource, smallest[resource])}"
        )
    return {
        "name": resource,
        "used": format_amount(resource, used),
        "limit": format_amount(resource, limit),
        "left": format_amount(resource, left),
        "message": message,
    }


def _smallest_amounts(cluster: ClusterInput, typical: PlannedNodeClaim | None) -> dict[str, int]:
    """Return the least of each resource that a new node of the NodePool counts for."""
    if typical is None:
        return {}
    types = planned_types(typical, cluster.snapshot.catalogues.get(typical.pool))
    names = {name for item in types for name in item.capacity}
    least = {name: min(item.capacity.get(name, 0) for item in types) for name in names}
    price = parse_amount(PRICE_PER_HOUR, f"{typical.cheapest.price_per_hour:.9f}")
    return {**least, NODES: 1, PRICE_PER_HOUR: price}


# -- parts -----------------------------------------------------------------------------------------


def _launches(claims: list[PlannedNodeClaim]) -> dict[str, object]:
    """Return what a pass would launch for the NodePool now; virtual pods by the object they are of."""
    virtual: dict[str, int] = {}
    for claim in claims:
        for pod in claim.pods:
            if pod.shape.virtual_source is not None:
                source = str(pod.shape.virtual_source)
                virtual[source] = virtual.get(source, 0) + 1
    return {
        "nodes": len(claims),
        "pods": sum(not pod.is_virtual for claim in claims for pod in claim.pods),
        **({"virtualPods": dict(sorted(virtual.items()))} if virtual else {}),
    }


def _without_name(item: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in item.items() if key != "name"}
