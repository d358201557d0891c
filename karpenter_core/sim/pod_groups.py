"""Groups pods that differ only by name, to evaluate one of them for all.

A group remembers the nodes that fit and those that do not. Its pods wait together: as long as no node
takes the first of them, no node takes another. A change of a node is compared with each group once,
however many pods wait.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.sim.filters import (
    host_ports,
    port_refusal,
    requests_of,
    resource_refusal,
    static_refusal,
)
from karpenter_core.sim.topology import depends_on_other_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.store import Key
    from karpenter_core.sim.topology import NodeInfo

__all__ = ["NodeScore", "PodGroup", "PodRank"]

PodRank: TypeAlias = "tuple[int, str, Key]"
"""Negative priority, time of creation, and key: pods with smaller ranks are scheduled first."""

NodeScore: TypeAlias = "Callable[[Mapping[str, int], NodeInfo], float]"
"""Returns the score of a node for requests; the smallest one is best."""


class PodGroup:
    """Pods of one shape, with their requests, the nodes that fit, and the pods that wait."""

    def __init__(self, pod: Json) -> None:
        self.pod: Final = pod
        self.requests: Final = requests_of(pod)
        self.depends_on_others: Final = depends_on_other_pods(pod)
        self.refusals: dict[str, str] = {}
        """By node: the reasons of the last evaluation."""
        self.changes = 0
        """Number of changes of the refusals."""
        self.is_woken = False
        """Whether a pod that waited here is about to be tried for all."""
        self._ports: Final = host_ports(pod)
        self._nodes: list[tuple[float, str]] | None = None
        """Heap of scores: each node that fits has an entry that is not above its score of now."""
        self._waiting: Final = dict["Key", None]()
        self._order: Final = list[PodRank]()
        """Heap of the ranks of waiting pods; entries of pods that wait no longer stay in it."""

    # Pods that wait

    def park(self, rank: PodRank) -> None:
        """Let a pod wait until a node may take it."""
        if rank[-1] not in self._waiting:
            self._waiting[rank[-1]] = None
            heapq.heappush(self._order, rank)

    def leave(self, key: Key) -> None:
        """Let a pod wait no longer."""
        self._waiting.pop(key, None)

    def first(self) -> Key | None:
        """Return the waiting pod that is next."""
        while self._order:
            key = self._order[0][-1]
            if key in self._waiting:
                return key
            heapq.heappop(self._order)
        return None

    @property
    def is_needed(self) -> bool:
        """Whether pods wait here."""
        return self.is_woken or self.first() is not None

    # Nodes

    def refusal(self, info: NodeInfo) -> str | None:
        """Return the reason why a node does not take a pod, other pods' affinity aside."""
        return (
            static_refusal(self.pod, info.node)
            or port_refusal(self._ports, info.ports)
            or resource_refusal(self.requests, info.allocatable, info.requested)
        )

    def refuse(self, refusals: dict[str, str]) -> None:
        """Record the reasons of an evaluation of all nodes."""
        self.refusals = refusals
        self.changes += 1

    def observe(self, name: str, info: NodeInfo | None, score: NodeScore) -> None:
        """Read a node that has changed; None if it is gone."""
        if self._nodes is None:
            return
        self.changes += 1
        self.refusals.pop(name, None)
        if info is None:
            return
        why = self.refusal(info)
        if why is not None:
            self.refusals[name] = why
        else:
            heapq.heappush(self._nodes, (score(self.requests, info), name))

    def best(self, nodes: Mapping[str, NodeInfo], score: NodeScore) -> str | None:
        """Return the node with the smallest score among those that fit, ties by name."""
        if self._nodes is None:
            self._nodes = []
            self.refuse({})
            for name, info in nodes.items():
                why = static_refusal(self.pod, info.node)
                if why:
                    self.refusals[name] = why
                else:
                    self._nodes.append((score(self.requests, info), name))
            heapq.heapify(self._nodes)
        while self._nodes:
            noted, name = self._nodes[0]
            info = nodes.get(name)
            if info is None:
                heapq.heappop(self._nodes)
                continue
            why = self.refusal(info)
            now = score(self.requests, info)
            if why:
                self.refusals[name] = why
                self.changes += 1
                heapq.heappop(self._nodes)
            elif now != noted:
                heapq.heapreplace(self._nodes, (now, name))
            else:
                return name
        return None
