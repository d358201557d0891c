"""Explains the decision of a plan for one pod.

Returns the placement and what the pod waits for, or for each NodePool the first constraint that
fails, the instance type that comes closest, and the required change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.json_objects import JsonMapping, JsonObject
from karpenter_core.api.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED
from karpenter_core.cli.document import constraint_of_ignored, hold_reason, no_pools_text, offering
from karpenter_core.cli.explain.first_cause import first_cause, refusal_text
from karpenter_core.cli.explain.tables import STATES
from karpenter_core.cli.missing_objects import names_or_none
from karpenter_core.cli.name_lists import some_names
from karpenter_core.cli.provisioning_requests import consumer_message
from karpenter_core.cli.tables import counted
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_events import PodRefusal
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.scheduling.problem import (
        PlannedNodeClaim,
        SchedulingPlan,
    )

__all__ = ["existing_text", "find_pod", "pod_explanation"]

_NEAR: Final = 5

_REMEDIES: Final = {
    PoolConstraint.PRIORITY: "remove the annotation karpenter.sh/expendable, or give the pod a higher priority",
    PoolConstraint.TAINT: "add a toleration to the pod, or remove the taint from the NodePool",
    PoolConstraint.REQUIREMENT: "change the pod's node selector or affinity, or the NodePool's "
    "requirements and labels",
    PoolConstraint.RESOURCE: "reduce the requests of the pod, or let the NodePool use larger instance types",
    PoolConstraint.PORT: "use another host port",
    PoolConstraint.VOLUME: "correct the PersistentVolumeClaim, or let the NodePool launch in the zone of the volume",
    PoolConstraint.DEVICE: "correct the ResourceClaim, or let the NodePool use instance types with such devices",
    PoolConstraint.TOPOLOGY: "relax the pod's topology spread, or let the NodePool use more domains",
    PoolConstraint.AFFINITY: "relax the pod's affinity to other pods",
    PoolConstraint.LIMIT: "raise the limits of the NodePool",
    PoolConstraint.MIN_VALUES: "lower minValues of the NodePool, or let it use more instance types",
    PoolConstraint.RESERVATION: "wait for the next pass, or allow other capacity types than reserved",
    PoolConstraint.OFFERING: "allow more zones or capacity types, or wait for capacity",
    PoolConstraint.DAEMON: "reduce the requests of DaemonSets, or let the NodePool use larger instance types",
}
"""General remedies, for reasons without a more specific one."""


def find_pod(cluster: ClusterInput, key: str) -> PodView:
    """Return the pod of this `namespace/name`.

    Raises:
        BadInputError: there is none; suggests similar names.
    """
    by_key = {pod.key: pod for pod in cluster.snapshot.pods.values()}
    if key not in by_key:
        raise BadInputError(f'no pod "{key}"{_hint(key, sorted(by_key))}')
    return by_key[key]


def _hint(key: str, listed_names: Sequence[str]) -> str:
    """Return suggestions: pods of this name in other namespaces, else with similar names.

    Includes pods of a workload with this name.
    """
    namespace, _, name = key.rpartition("/")
    here = [other.rpartition("/")[2] for other in listed_names if other.startswith(f"{namespace}/")]
    alike = [other for other in here if name and other.startswith(f"{name}-")]
    alike = alike or get_close_matches(name, here, n=_NEAR)
    near = [other for other in listed_names if other.endswith(f"/{name}")]
    near = near or [f"{namespace}/{other}" for other in alike]
    if near:
        return f"; near: {some_names(near, _NEAR)}"
    if here:
        return f"; pods there: {names_or_none(here)}"
    namespaces = sorted({other.rpartition("/")[0] for other in listed_names})
    return f"; namespaces with pods: {', '.join(namespaces) or 'none'}"


def pod_explanation(
    cluster: ClusterInput,
    pod: PodView,
    plan: SchedulingPlan,
    *,
    is_live: bool,
    refusal: PodRefusal | None = None,
) -> JsonObject:
    """Return the JSON of `karpenter explain pod` for a pod.

    `refusal` is why the controller has launched no node for it; it may know of stock-outs and pauses
    that the plan of a command cannot know.
    """
    fate = _pod_outcome(cluster, pod, plan, is_live=is_live)
    if refusal is not None and fate.state == "launch":
        fate = replace(fate, state="refused", message=refusal_text(refusal), placement=None)
    return {
        "pod": pod.key,
        "state": fate.state,
        "answer": f"{pod.key}: {_lead(fate.state)}{_cause(cluster, pod, fate, plan)}",
        "message": fate.message,
        "placement": fate.placement,
        "pools": dict(fate.pools),
        "unusablePools": dict(cluster.unusable_pools),
    }


def _lead(state: str) -> str:
    """Return the words for a state before the cause; nothing where the cause says it."""
    return "" if state in {"bound", "ended", "existing", "launch"} else f"{STATES[state]}: "


def _cause(cluster: ClusterInput, pod: PodView, fate: _PodOutcome, plan: SchedulingPlan) -> str:
    """Return the first cause, and for a pod that fits nowhere how many NodePools have another."""
    rejected = {name: pool for name, pool in fate.pools.items() if not pool["fits"]}
    if fate.state != "unschedulable" or not rejected:
        return fate.message
    cause = first_cause(cluster, pod, rejected, plan)
    if not cause.others:
        return cause.text
    return f"{cause.text} ({counted(cause.others, 'other NodePool')} below)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodOutcome:
    """State and placement of a pod, and the result of each NodePool."""

    state: str
    message: str
    placement: JsonMapping | None = None
    pools: Mapping[str, JsonMapping] = field(default_factory=dict[str, "JsonMapping"])


def _pod_outcome(
    cluster: ClusterInput, pod: PodView, plan: SchedulingPlan, *, is_live: bool
) -> _PodOutcome:
    if pod.is_terminal:
        return _PodOutcome(state="ended", message=f"it has finished ({pod.phase})")
    why = plan.unschedulable.get(pod.uid)
    if why is not None:
        pools = {name: _rejected(reason) for name, reason in why.pools.items()}
        message = why.message if pools else f"{why.message}: {no_pools_text(cluster)}"
        return _PodOutcome(state="unschedulable", message=message, pools=pools)
    message = "" if pod.node_name else consumer_message(cluster, pod)
    if message:
        return _PodOutcome(state="held", message=message)
    ignored = next((item for item in cluster.input.ignored if item.pod.uid == pod.uid), None)
    if ignored is not None:
        reason = PoolRejection(
            constraint=constraint_of_ignored(cluster, ignored), detail=ignored.reason
        )
        pools = {pool.name: _rejected(reason) for pool in cluster.input.problem.pools}
        return _PodOutcome(state="unschedulable", message=ignored.reason, pools=pools)
    # A pod whose node is going is planned for as well.
    prefix = f'its node "{pod.node_name}" is being removed; ' if pod.node_name else ""
    claim = _claim_of(pod, plan)
    if claim is not None:
        return _PodOutcome(
            state="launch",
            message=prefix + _launch_message(claim, is_live=is_live),
            placement=_launch(claim, pod),
            pools=_rejections_by_pool(cluster, pod, claim),
        )
    target = _existing_target(cluster, pod, plan)
    if target:
        return _PodOutcome(
            state="existing",
            message=prefix + _existing_message(cluster, pod, target, is_live=is_live),
            placement=_existing(cluster, target),
        )
    return _unplanned_pod_outcome(cluster, pod)


def _unplanned_pod_outcome(cluster: ClusterInput, pod: PodView) -> _PodOutcome:
    """Return why no node is planned for a pod."""
    if pod.node_name:
        message = f'it is on node "{pod.node_name}"'
        state_node = cluster.snapshot.state_nodes_by_node.get(pod.node_name)
        if state_node is not None and state_node.pool:
            message += f' of NodePool "{state_node.pool}"'
        if pod.node_name not in cluster.snapshot.nodes:
            message += ", which does not exist"
        elif pod.is_terminating:
            message += " and being deleted"
        elif state_node is not None and state_node.marked_for_deletion:
            message += ", which is being removed; nothing is planned for the pod"
        return _PodOutcome(
            state="bound", message=message, placement=_existing(cluster, pod.node_name)
        )
    if pod.is_terminating:
        return _PodOutcome(state="ended", message="it is being deleted")
    return _PodOutcome(
        state="held", message=hold_reason(pod) or "this pass ended before it was reached"
    )


def _claim_of(pod: PodView, plan: SchedulingPlan) -> PlannedNodeClaim | None:
    """Return the claim that is planned for a pod; planned pods may be copies with defaults."""
    return next(
        (claim for claim in plan.claims if any(other.uid == pod.uid for other in claim.pods)), None
    )


# -- new nodes -------------------------------------------------------------------------------------


def _launch(claim: PlannedNodeClaim, pod: PodView) -> JsonObject:
    return {
        "nodePool": claim.pool,
        "instanceTypes": list(claim.instance_types),
        "cheapest": offering(claim.cheapest),
        "pods": [
            other.key for other in claim.pods if other.uid != pod.uid and not other.is_virtual
        ],
    }


def _launch_message(claim: PlannedNodeClaim, *, is_live: bool) -> str:
    cheapest = claim.cheapest
    message = (
        f'a node of NodePool "{claim.pool}" is to be launched for it: '
        f"{cheapest.instance_type} {cheapest.zone} {cheapest.capacity_type}"
    )
    others = len(claim.instance_types) - 1
    if others:
        message += f", or {counted(others, 'other instance type')}"
    if is_live:
        message += (
            ". No NodeClaim has been made yet: pods are gathered for some seconds before each "
            "pass; if this lasts, see whether `karpenter run` leads and what it logs"
        )
    return message


def _rejections_by_pool(
    cluster: ClusterInput, pod: PodView, chosen: PlannedNodeClaim
) -> JsonObject:
    """Return for every NodePool whether it could take a pod that one NodePool takes.

    Each NodePool is evaluated alone. Pods that depend on others by topology or affinity are
    evaluated together with the whole batch, since the others may not be placed yet.
    """
    problem = cluster.input.problem
    asked_about = tuple(item for item in problem.pods if item.uid == pod.uid)
    shapes = [item.shape for item in asked_about]
    if any(s.topology_spread or s.pod_affinity or s.pod_anti_affinity for s in shapes):
        asked_about = problem.pods
    nodes = tuple(replace(node, closed=True) for node in problem.nodes)
    answers: JsonObject = {}
    for pool in sorted(problem.pools, key=lambda pool: pool.name):
        if pool.name == chosen.pool:
            answers[pool.name] = _accepted(chosen)
            continue
        pool_problem = replace(problem, pods=asked_about, pools=(pool,), nodes=nodes)
        plan = solve_isolated(pool_problem, cluster.options)
        claim = _claim_of(pod, plan)
        why = plan.unschedulable.get(pod.uid)
        if claim is not None:
            answers[pool.name] = _accepted(claim)
        elif why is not None and pool.name in why.pools:
            answers[pool.name] = _rejected(why.pools[pool.name])
    return answers


def _accepted(claim: PlannedNodeClaim) -> JsonObject:
    return {"fits": True, "cheapest": offering(claim.cheapest)}


def _rejected(reason: PoolRejection) -> JsonObject:
    return {
        "fits": False,
        "constraint": reason.constraint.value,
        "detail": reason.detail,
        "closest": reason.closest,
        "remedy": reason.remedy or _REMEDIES[reason.constraint],
    }


# -- existing nodes ------------------------------------------------------------------------------


def _existing_target(cluster: ClusterInput, pod: PodView, plan: SchedulingPlan) -> str:
    """Return the existing node that a pod is placed on; empty if there is none."""
    places: tuple[Mapping[str, tuple[PodView, ...]], ...] = (
        plan.existing,
        cluster.input.placed_pods,
    )
    return next((name for place in places for name, pods in place.items() if pod in pods), "")


def _existing(cluster: ClusterInput, name: str) -> JsonObject:
    state_node = cluster.snapshot.state_node(name)
    if state_node is None:
        return {"node": name, "nodeClaim": "", "nodePool": ""}
    return {
        "node": "" if state_node.node is None else state_node.node.name,
        "nodeClaim": "" if state_node.claim is None else state_node.claim.name,
        "nodePool": state_node.pool,
    }


def _starting_claim(cluster: ClusterInput, name: str) -> NodeClaim | None:
    """Return the NodeClaim of this node or name if its Node is not ready for pods yet."""
    state_node = cluster.snapshot.state_node(name)
    return None if state_node is None or state_node.initialized else state_node.claim


def existing_text(cluster: ClusterInput, pod: PodView, name: str) -> str:
    """Return what a pod waits for that is planned for an existing node or NodeClaim."""
    if (claim := _starting_claim(cluster, name)) is not None:
        return f'it waits for NodeClaim "{claim.name}", which {_stage(cluster, name)}'
    message = f'node "{name}" has room for it'
    if pod.nominated_node_name == name:
        message = f'node "{name}" is kept for it (status.nominatedNodeName)'
    return message


def _existing_message(cluster: ClusterInput, pod: PodView, name: str, *, is_live: bool) -> str:
    message = existing_text(cluster, pod, name)
    if is_live and _starting_claim(cluster, name) is None:
        message += "; the Kubernetes scheduler is expected to bind it there"
    return message


def _stage(cluster: ClusterInput, name: str) -> str:
    """Return the stage of a claim."""
    state_node = cluster.snapshot.state_node(name)
    conditions = (
        () if state_node is None or state_node.claim is None else state_node.claim.status.conditions
    )
    for type_, text in (
        (LAUNCHED, "has no instance yet"),
        (REGISTERED, "has an instance whose Node has not joined yet"),
        (INITIALIZED, "has a Node that is not ready for pods yet"),
    ):
        condition = find_condition(conditions, type_)
        if condition is None or condition.status != "True":
            said = "" if condition is None else condition.message
            return f"{text} ({said})" if said and said != type_ else text
    return "is ready"
