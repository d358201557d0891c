"""Holds the nodes and pods that a `WhatIf` evaluates, as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem

__all__ = ["WhatIfCluster"]


@final
class WhatIfCluster:
    """The facts as plain data, from which everything else can be computed again."""

    def __init__(self, problem: SchedulingProblem, movable: Mapping[str, Collection[str]]) -> None:
        self.frame: Final = replace(problem, pods=(), nodes=(), volumes={}, pool_usage={})
        """The problem without pods and nodes."""
        self.nodes: Final = dict[str, "ExistingNode"]()
        self.movable: Final = dict[str, frozenset[str]]()
        self.pending: Final = {pod.uid: pod for pod in problem.pods}
        self.volumes: Final = dict(problem.volumes)
        self.usage: Final = {pool: dict(usage) for pool, usage in problem.pool_usage.items()}
        for node in problem.nodes:
            self.nodes[node.name] = node
            self.movable[node.name] = _leaving(node, movable.get(node.name, ()))

    def problem(self) -> SchedulingProblem:
        """Return everything as one pass in which all that can move is to be placed."""
        movers = (
            pod
            for name, node in sorted(self.nodes.items())
            for pod in node.pods
            if pod.uid in self.movable[name]
        )
        pods = {pod.uid: pod for pod in (*self.pending.values(), *movers)}
        return self.problem_for(pods.values(), self.nodes.values(), self.usage)

    def problem_for(
        self,
        pods: Iterable[PodView],
        nodes: Iterable[ExistingNode],
        usage: Mapping[str, Mapping[str, int]],
    ) -> SchedulingProblem:
        """Return a problem with these pods and nodes."""
        return replace(
            self.frame,
            pods=tuple(pods),
            nodes=tuple(nodes),
            pool_usage={pool: dict(amounts) for pool, amounts in usage.items()},
            volumes=dict(self.volumes),
        )


def _leaving(node: ExistingNode, movable: Iterable[str]) -> frozenset[str]:
    """Return the UIDs that leave with a node; none for a node that is closed already."""
    return frozenset() if node.closed else frozenset(movable)
