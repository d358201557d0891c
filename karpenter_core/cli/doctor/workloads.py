"""Checks workloads and NodePools for `karpenter doctor`: costly mistakes.

They keep nodes, or launch too many. The findings are functions of the objects; nothing of them is
an error, since a cluster may be meant so.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import HOSTNAME
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import PodView
from karpenter_core.api.workload_records import PodDisruptionBudgetView
from karpenter_core.cli.cluster_listing import read_manifests
from karpenter_core.cli.doctor.permissions import Permission, is_permitted
from karpenter_core.cli.name_lists import some_names
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import DAEMON_SETS, DEPLOYMENTS
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.scheduling.requirements.requirement_set import Requirements
from karpenter_core.state.pod_budgets import PodBudgets, budget_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.records import TopologySpread
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.kube.wire.codecs import Codecs
    from karpenter_core.state.events import StateObject

__all__ = [
    "CONTROLLER_KINDS",
    "check_workloads",
    "conflicting_images",
    "controller_findings",
    "trap_findings",
    "workload_findings",
]

_FORBIDDEN: Final = 403
_LONGEST_LABEL: Final = 63
_SHOWN: Final = 5
_MANY_PODS: Final = 5
"""Pods of one workload from which on a strict spread over nodes is worth a warning."""

CONTROLLER_KINDS: Final = (DEPLOYMENTS, DAEMON_SETS)
"""Kinds that run such controllers."""

_CONFLICTS: Final = {
    "cluster-autoscaler": "both launch nodes for the same pods: give each its own nodes, or scale one to zero",
    "aws-node-termination-handler": "both drain interrupted nodes: remove it, or leave the setting "
    "interruption-queue empty",
    "descheduler": "it evicts pods that consolidation has packed: leave out its LowNodeUtilization "
    "and topology plug-ins",
}
"""Controllers that act on the same nodes or pods, by the name of their image."""


async def check_workloads(apis: ClusterApis, codecs: Codecs) -> list[Finding]:
    """List the cluster, and return its findings; none if a permission is missing, which is named elsewhere.

    Raises:
        ApiError: the API server cannot be reached.
    """
    from karpenter_core.cli.cluster_listing import list_cluster

    try:
        listing = await list_cluster(apis, codecs)
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return []
    controllers = [item for kind in CONTROLLER_KINDS for item in await _manifests(apis, kind)]
    return trap_findings(listing.objects, controllers)


def trap_findings(
    objects: Iterable[StateObject], controllers: Iterable[JsonObject]
) -> list[Finding]:
    """Return the findings of a cluster and its controllers, or one that there are none."""
    findings = [*workload_findings(objects), *controller_findings(controllers)]
    return findings or [
        Finding(
            severity=Severity.OK,
            message="no common mistake in workloads, NodePools and controllers",
        )
    ]


async def _manifests(apis: ClusterApis, kind: ResourceKind) -> list[JsonObject]:
    """List a kind; without the permission to, return none, as if no object had a controller there."""
    try:
        if not await is_permitted(apis, Permission("list", kind)):
            return []
        return await read_manifests(apis, kind)
    except NotFoundError:
        return []


def workload_findings(objects: Iterable[StateObject]) -> Iterator[Finding]:
    """Yield the findings of a cluster's pods, PodDisruptionBudgets and NodePools."""
    everything = list(objects)
    pods = [each for each in everything if isinstance(each, PodView) and each.is_active]
    budgets = [each for each in everything if isinstance(each, PodDisruptionBudgetView)]
    pools = [each for each in everything if isinstance(each, NodePool)]
    yield from _budget_findings(budgets, pods)
    yield from _spread_findings(pods)
    yield from _pool_findings(sorted(pools, key=lambda pool: pool.name))


# -- PodDisruptionBudgets --------------------------------------------------------------------------


def _budget_findings(
    budgets: Sequence[PodDisruptionBudgetView], pods: Sequence[PodView]
) -> Iterator[Finding]:
    index = PodBudgets(budgets)
    members: dict[str, list[PodView]] = defaultdict(list)
    shared: dict[tuple[str, ...], int] = defaultdict(int)
    for pod in pods:
        matching = [budget_key(budget) for budget in index.matching(pod)]
        for key in matching:
            members[key].append(pod)
        if len(matching) > 1:
            shared[tuple(sorted(matching))] += 1
    for budget in sorted(budgets, key=budget_key):
        why = _never_permits(budget, len(members[budget_key(budget)]))
        if why:
            yield _warning(
                f'PodDisruptionBudget "{budget_key(budget)}" never permits an eviction ({why}): nodes '
                "with its pods are neither consolidated nor drained",
                "permit one pod at least, or set spec.template.spec.terminationGracePeriod of the NodePool",
            )
    for keys, count in sorted(shared.items()):
        yield _warning(
            f"{_counted(count, 'pod')} matched by several PodDisruptionBudgets ({', '.join(keys)}): the "
            "API server refuses every eviction of such a pod",
            "let one PodDisruptionBudget select each pod",
        )


def _never_permits(budget: PodDisruptionBudgetView, pod_count: int) -> str:
    """Return why a budget permits no eviction while its workload has this many pods; empty if it may."""
    if not pod_count:
        return ""
    if budget.max_unavailable in {"0", "0%"}:
        return f"maxUnavailable is {budget.max_unavailable}"
    least = budget.min_available
    if least == "100%":
        return "minAvailable is 100%"
    if least is not None and least.isdecimal() and int(least) >= pod_count:
        return f"minAvailable is {least}, and it selects {_counted(pod_count, 'pod')}"
    return ""


# -- spread over nodes -----------------------------------------------------------------------------


def _spread_findings(pods: Sequence[PodView]) -> Iterator[Finding]:
    by_workload: dict[tuple[str, str, str], list[PodView]] = defaultdict(list)
    for pod in pods:
        if pod.owner_name and not pod.is_daemon:
            by_workload[pod.shape.namespace, pod.shape.owner_kind, pod.owner_name].append(pod)
    for (namespace, kind, name), members in sorted(by_workload.items()):
        strict = next(filter(_is_strict, members[0].shape.topology_spread), None)
        if strict is not None and len(members) >= _MANY_PODS:
            yield _warning(
                f"{_counted(len(members), 'pod')} of {kind} {namespace}/{name} are spread over nodes with "
                f"maxSkew {strict.max_skew} and DoNotSchedule: each new pod can need a new node",
                f"spread over topology.kubernetes.io/zone, or set whenUnsatisfiable: ScheduleAnyway for {HOSTNAME}",
            )


def _is_strict(spread: TopologySpread) -> bool:
    return spread.topology_key == HOSTNAME and spread.is_hard and spread.max_skew == 1


# -- NodePools -------------------------------------------------------------------------------------


def _pool_findings(pools: Sequence[NodePool]) -> Iterator[Finding]:
    requirements = {
        pool.name: Requirements.from_specs(pool.spec.template.spec.requirements) for pool in pools
    }
    for pool in pools:
        if len(pool.name) > _LONGEST_LABEL:
            yield _warning(
                f'the name of NodePool "{pool.name}" has {len(pool.name)} characters, a label holds '
                f"{_LONGEST_LABEL}: no node can have the label karpenter.sh/nodepool",
                "give the NodePool a shorter name",
            )
        for key in _unreachable(pool, requirements[pool.name]):
            yield _warning(
                f'NodePool "{pool.name}": the requirements of "{key}" exclude each other: no instance '
                "type can satisfy them",
                "correct spec.template.spec.requirements",
            )
    overlapping = [
        f"{one.name} and {other.name}"
        for one, other in combinations(pools, 2)
        if _overlap(one, other, requirements)
    ]
    if overlapping:
        shown = some_names(overlapping, _SHOWN)
        yield _warning(
            f"NodePools of the same weight can launch nodes for the same pods: {shown}",
            "let their requirements or taints exclude each other, or set spec.weight; else the cheaper "
            "one is used",
        )


def _unreachable(pool: NodePool, requirements: Requirements) -> list[str]:
    """Return the labels that a node must have, and for which no value is left."""
    needed = {
        spec.key
        for spec in pool.spec.template.spec.requirements
        if spec.operator not in {"DoesNotExist", "NotIn"}
    }
    return [key for key in sorted(needed) if requirements.get(key).operator == "DoesNotExist"]


def _overlap(one: NodePool, other: NodePool, requirements: Mapping[str, Requirements]) -> bool:
    """Tell whether two NodePools of one weight could serve the same pod."""
    if (one.spec.weight or 0) != (other.spec.weight or 0):
        return False
    if one.spec.replicas is not None or other.spec.replicas is not None:
        return False
    taints = [
        {(taint.key, taint.value, taint.effect) for taint in pool.spec.template.spec.taints}
        for pool in (one, other)
    ]
    return taints[0] == taints[1] and requirements[one.name].intersects(requirements[other.name])


# -- controllers -----------------------------------------------------------------------------------


def controller_findings(items: Iterable[JsonObject]) -> Iterator[Finding]:
    """Yield the Deployments and DaemonSets that run a controller which acts on the same nodes."""
    for item in items:
        metadata = cast("Mapping[str, object]", item.get("metadata") or {})
        for name, reason in _CONFLICTS.items():
            if _replicas(item) and any(name == image for image in _images(item)):
                yield _warning(
                    f"{name} runs in {metadata.get('namespace')}/{metadata.get('name')}", reason
                )


def conflicting_images(item: JsonObject) -> list[str]:
    """Return the images of a workload by which it is known as such a controller, without the registry."""
    return sorted(set(_images(item)) & _CONFLICTS.keys())


def _replicas(item: JsonObject) -> bool:
    return cast("Mapping[str, object]", item.get("spec") or {}).get("replicas") != 0


def _images(item: JsonObject) -> Iterator[str]:
    """Yield the names of a workload's images: without registry, folders, tag and digest."""
    spec = item.get("spec", {}).get("template", {}).get("spec", {})
    for container in spec.get("containers") or ():
        image = str(container.get("image", "")).partition("@")[0]
        yield image.rpartition("/")[2].partition(":")[0]


def _warning(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.WARNING, message=message, remedy=remedy)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
