"""Finds virtual pods for which kube-scheduler would evict expendable pods.

Kubernetes' scheduler binds expendable pods to the room of a CapacityBuffer, of which it knows nothing. If
the buffer got a new node each time, nodes would be launched until all expendable pods run. But an
expendable pod of a negative priority gives its room back to any pod that the buffer is for: it is
evicted then. So the buffer has this room still, as Cluster Autoscaler counts it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.scheduling.node_pods import on_nodes_alone
from karpenter_core.scheduling.resources import fits, merge, subtract
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.expendable_pods import is_preemptible

if TYPE_CHECKING:
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import SchedulingProblem

__all__ = ["cover_virtual_pods"]


def cover_virtual_pods(problem: SchedulingProblem, *, cutoff: int) -> SchedulingProblem:
    """Return the problem without virtual pods that have the room of expendable ones.

    They are in `covered_pods` then. Those that find free room beside the expendable pods are left to
    the pass.
    """
    virtual = tuple(pod for pod in problem.pods if pod.shape.gives_way)
    rooms = {
        node.name: merge(pod.shape.requests for pod in preemptible)
        for node in (problem.nodes if virtual else ())
        if not node.closed
        and (preemptible := [pod for pod in node.pods if is_preemptible(pod, cutoff)])
    }
    if not rooms:
        return problem
    nodes = tuple(
        replace(node, available=merge((node.available, rooms[node.name])))
        if node.name in rooms
        else node
        for node in problem.nodes
    )
    plan = solve(on_nodes_alone(problem, virtual, nodes))
    available = {node.name: node.available for node in problem.nodes if node.name in rooms}
    covered: dict[str, tuple[PodView, ...]] = {}
    for name, free in available.items():
        for pod in plan.existing.get(name, ()):
            if fits(pod.shape.requests, free):
                free = subtract(free, pod.shape.requests)  # noqa: PLW2901 - what is left of it
            else:
                covered[name] = (*covered.get(name, ()), pod)
    if not covered:
        return problem
    uids = {pod.uid for pods in covered.values() for pod in pods}
    pods = tuple(pod for pod in problem.pods if pod.uid not in uids)
    return replace(problem, pods=pods, covered_pods=covered)
