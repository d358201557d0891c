"""What a `WhatIf` was told of the cluster: nodes, who may leave them, and who waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODES, PODS
from karpenter_core.scheduling.problem import PodVolumes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, Problem

__all__ = ["Cluster", "with_pods", "without_pod"]

_NO_VOLUMES: Final = PodVolumes()


@final
class Cluster:
    """The facts, as plain data: whatever is computed from them can be computed again."""

    def __init__(self, problem: Problem, movable: Mapping[str, Collection[str]]) -> None:
        self._frame: Final = replace(problem, pods=(), nodes=(), volumes={}, pool_usage={})
        self.nodes: Final = dict[str, "ExistingNode"]()
        self.movable: Final = dict[str, frozenset[str]]()
        self.pending: Final = {pod.uid: pod for pod in problem.pods}
        self.volumes: Final = dict(problem.volumes)
        self.usage: Final = {pool: dict(usage) for pool, usage in problem.pool_usage.items()}
        for node in problem.nodes:
            self.nodes[node.name] = node
            self.movable[node.name] = _leaving(node, movable.get(node.name, ()))

    def put(self, node: ExistingNode, movable: Iterable[str]) -> None:
        """Add or replace a node; what it takes of its pool's limits with it."""
        if node.name in self.nodes:
            self.drop(node.name)
        self.nodes[node.name] = node
        self.movable[node.name] = _leaving(node, movable)
        self._hold(node, 1)

    def drop(self, name: str) -> ExistingNode:
        """Forget a node."""
        node = self.nodes.pop(name)
        del self.movable[name]
        self._hold(node, -1)
        return node

    def _hold(self, node: ExistingNode, sign: int) -> None:
        if node.pool:
            usage = self.usage.setdefault(node.pool, {})
            for name, amount in (*node.capacity.items(), (NODES, 1)):
                usage[name] = usage.get(name, 0) + sign * amount

    def problem(self) -> Problem:
        """Return everything as one pass in which all that can move is to be placed."""
        movers = (
            pod
            for name, node in sorted(self.nodes.items())
            for pod in node.pods
            if pod.uid in self.movable[name]
        )
        pods = {pod.uid: pod for pod in (*self.pending.values(), *movers)}
        return self.framed(pods.values(), self.nodes.values(), self.usage)

    def framed(
        self,
        pods: Iterable[PodView],
        nodes: Iterable[ExistingNode],
        usage: Mapping[str, Mapping[str, int]],
    ) -> Problem:
        """Return a problem with these pods and nodes."""
        return replace(
            self._frame,
            pods=tuple(pods),
            nodes=tuple(nodes),
            pool_usage={pool: dict(amounts) for pool, amounts in usage.items()},
            volumes=dict(self.volumes),
        )


def with_pods(
    node: ExistingNode, pods: Iterable[PodView], volumes: Mapping[str, PodVolumes]
) -> ExistingNode:
    """Return a node with more pods: their requests taken, their volumes attached."""
    added = tuple(pods)
    available, attached = dict(node.available), dict(node.volumes)
    for pod in added:
        for name, amount in _requests(pod):
            available[name] = available.get(name, 0) - amount
        for driver, claims in volumes.get(pod.uid, _NO_VOLUMES).attached.items():
            attached[driver] = attached.get(driver, frozenset()) | claims
    return replace(node, pods=(*node.pods, *added), available=available, volumes=attached)


def without_pod(node: ExistingNode, uid: str, volumes: Mapping[str, PodVolumes]) -> ExistingNode:
    """Return a node without one of its pods.

    Raises:
        KeyError: no such pod there.
    """
    gone = next((pod for pod in node.pods if pod.uid == uid), None)
    if gone is None:
        raise KeyError(uid)
    left = tuple(pod for pod in node.pods if pod.uid != uid)
    available, attached = dict(node.available), dict(node.volumes)
    for name, amount in _requests(gone):
        available[name] = available.get(name, 0) + amount
    for driver, claims in volumes.get(uid, _NO_VOLUMES).attached.items():
        others = (volumes.get(pod.uid, _NO_VOLUMES).attached.get(driver, ()) for pod in left)
        attached[driver] = attached.get(driver, frozenset()) - claims.difference(*others)
    return replace(node, pods=left, available=available, volumes=attached)


def _requests(pod: PodView) -> tuple[tuple[str, int], ...]:
    return (*((n, max(a, 0)) for n, a in pod.shape.requests.items() if n != PODS), (PODS, 1))


def _leaving(node: ExistingNode, movable: Iterable[str]) -> frozenset[str]:
    """Say who leaves with a node; of one that is going already, that is decided elsewhere."""
    return frozenset() if node.closed else frozenset(movable)
