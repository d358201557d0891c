"""Holds the nodes and pods that a `WhatIf` evaluates, as plain data."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.identity_memo import are_same

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes, SchedulingProblem

__all__ = ["WhatIfCluster"]


_NAME: Final[Callable[[ExistingNode], str]] = attrgetter("name")
_IS_CLOSED: Final[Callable[[ExistingNode], bool]] = attrgetter("closed")


@final
class WhatIfCluster:
    """The facts as plain data, from which everything else can be computed again."""

    def __init__(self, problem: SchedulingProblem, movable: Mapping[str, Collection[str]]) -> None:
        self.frame: Final = replace(problem, pods=(), nodes=(), volumes={}, pool_usage={})
        """The problem without pods and nodes."""
        self.nodes: Final = dict(zip(map(_NAME, problem.nodes), problem.nodes, strict=True))
        self.movable: Final = self._open_movable(movable)
        """UIDs that leave with a node; none with a node that is closed already."""
        self.pending: Final = {pod.uid: pod for pod in problem.pods}
        self.volumes: Final = dict(problem.volumes)
        self.usage: Final = {pool: dict(usage) for pool, usage in problem.pool_usage.items()}

    def _open_movable(self, movable: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
        """Return an entry for each node, in their order; an empty one for closed nodes."""
        nothing = frozenset[str]()
        given = dict(zip(movable, map(frozenset, movable.values()), strict=True))
        if list(given) == list(self.nodes):
            found = given
        else:
            found = {name: given.get(name, nothing) for name in self.nodes}
        for node in compress(self.nodes.values(), map(_IS_CLOSED, self.nodes.values())):
            found[node.name] = nothing
        return found

    def differs_in_pods(self, other: WhatIfCluster) -> bool:
        """Tell whether another cluster has the same nodes, and everything else but pods."""
        return (
            self.usage == other.usage
            and _is_same_frame(self.frame, other.frame)
            and list(self.nodes) == list(other.nodes)
            and _are_equal_volumes(self.volumes, other.volumes)
        )

    def changed_nodes(self, other: WhatIfCluster) -> list[str]:
        """Return the nodes that are other ones in another cluster, or whose pods move otherwise."""
        replaced = map(is_not, self.nodes.values(), other.nodes.values())
        moving = map(is_not, self.movable.values(), other.movable.values())
        either = map(bool.__or__, replaced, moving)
        return [
            name
            for name in compress(self.nodes, either)
            if self.nodes[name] is not other.nodes[name]
            or self.movable[name] != other.movable[name]
        ]

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


def _is_same_frame(old: SchedulingProblem, new: SchedulingProblem) -> bool:
    """Tell whether two problems are the same apart from pods and nodes."""
    if old.devices or new.devices or old.quotas or new.quotas or old.commitments or new.commitments:
        return False
    catalogues = [new.catalogues.get(name) for name in old.catalogues]
    daemons = [[(daemon.name, daemon.shape) for daemon in each.daemons] for each in (old, new)]
    return (
        are_same(old.pools, new.pools)
        and len(old.catalogues) == len(new.catalogues)
        and are_same(tuple(old.catalogues.values()), catalogues)
        and daemons[0] == daemons[1]
        and old.well_known == new.well_known
        and old.aliases == new.aliases
        and old.namespaces == new.namespaces
        and old.max_new_nodes == new.max_new_nodes
        and old.is_unnominated == new.is_unnominated
    )


def _are_equal_volumes(old: Mapping[str, PodVolumes], new: Mapping[str, PodVolumes]) -> bool:
    return old.keys() == new.keys() and all(
        new[uid] is asked
        or (new[uid].alternatives == asked.alternatives and new[uid].attached == asked.attached)
        for uid, asked in old.items()
    )
