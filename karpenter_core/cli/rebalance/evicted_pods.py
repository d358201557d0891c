"""Predicts the nodes on which kube-scheduler binds evicted pods.

The plan of a disruption only shows that there is room. The scheduler does not know the plan: it takes pods one
by one, and for each the least allocated node that fits (its default, `LeastAllocated`). What fits is decided by
the solver. Pods with ResourceClaims, and all others for which no node is left, stay pending.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.scheduling.least_allocated import free_share
from karpenter_core.scheduling.node_pods import with_pods
from karpenter_core.scheduling.problem import PackingPolicy
from karpenter_core.scheduling.resources import fits
from karpenter_core.state.pod_budgets import PodBudgets, budget_key
from karpenter_core.state.provisioning_input import build_provisioning_input

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["eviction_order", "scheduler_places"]


def eviction_order(pods: Iterable[PodView], snapshot: Snapshot) -> tuple[PodView, ...]:
    """Return pods in the order in which the scheduler takes them.

    A PodDisruptionBudget admits some evictions at a time. Of pods that are evicted together, those of higher
    priority come first. The order of the others depends on chance; here it is that of their names.
    """
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    evicted: Counter[str] = Counter()
    waves: list[tuple[int, PodView]] = []
    for pod in pods:
        wave = 0
        for budget in budgets.matching(pod):
            key = budget_key(budget)
            wave = max(wave, evicted[key] // max(1, budget.disruptions_allowed))
            evicted[key] += 1
        waves.append((wave, pod))
    waves.sort(key=lambda each: (each[0], -each[1].shape.priority, each[1].key))
    return tuple(pod for _, pod in waves)


def scheduler_places(
    pods: Iterable[PodView], cluster: ClusterInput, snapshot: Snapshot, now: datetime
) -> dict[str, str]:
    """Return the nodes of pods that wait in a snapshot, by UID, as the scheduler takes them in this order."""
    problem_input = build_provisioning_input(
        snapshot, now=now, problem_settings=cluster.problem_settings
    )
    problem = problem_input.problem
    waiting = {pod.uid: pod for pod in problem.pods}
    allocatable = {
        node.name: state_node.allocatable
        for node, state_node in zip(problem.nodes, problem_input.state_nodes, strict=False)
    }
    nodes = {node.name: node for node in problem.nodes}
    options = replace(cluster.options, packing=PackingPolicy.FIRST_FIT)
    places: dict[str, str] = {}
    for evicted in pods:
        pod = waiting.get(evicted.uid)
        if pod is None:
            continue
        requests = pod.shape.requests
        able = [
            name for name, free in allocatable.items()
            if fits(requests, nodes[name].available) and free
        ]  # fmt: skip
        free_shares = {
            name: free_share(
                available=nodes[name].available, allocatable=allocatable[name], requests=requests
            )
            for name in able
        }
        able.sort(key=lambda name: (-free_shares[name], name))
        # The solver takes the first node by name that fits; initialised ones come first anyway.
        ranked = {f"{rank:06d}": name for rank, name in enumerate(able)}
        others = [replace(node, closed=True) for name, node in nodes.items() if name not in able]
        plan = solve_isolated(
            replace(
                problem,
                pods=(pod,),
                pools=(),
                catalogues={},
                nodes=(
                    *(replace(nodes[name], name=rank) for rank, name in ranked.items()),
                    *others,
                ),
            ),
            options,
        )
        for rank in plan.existing:
            name = ranked[rank]
            places[pod.uid] = name
            nodes[name] = with_pods(nodes[name], (pod,), problem.volumes)
    return places
