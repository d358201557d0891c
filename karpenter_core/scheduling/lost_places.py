"""Finds pods that kube-scheduler can no longer bind where a plan placed them.

kube-scheduler binds the pods of a plan where it likes. A pod that goes to another domain than planned
can use up the skew there, so that the last pods of the plan wait on nodes with enough room that they
may never be bound to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.domain_counts import counts_on_node, domains_of
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.spread_placement import fill_levels
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.problem import SchedulingProblem

__all__ = ["pods_without_domain"]


def pods_without_domain(
    problem: SchedulingProblem,
    placed: Mapping[str, Sequence[PodView]],
    is_judged: Callable[[PodView], bool],
) -> frozenset[str]:
    """Return the UIDs of placed pods that their spread or affinity keeps from their nodes.

    `placed` are the pods by the name of their node, one of the problem's; the nodes' own pods are
    those that are bound, and the problem's pods are those without a place. Each placed pod that
    `is_judged` counts all others that help it as bound already, the ones without a place wherever
    they help most, and of those in its way only such that have the same constraint. So a plan that
    was just made has no such pod. Of pods that are in each other's way, the last ones stay.
    """
    without_place = problem.pods
    shapes = {id(pod.shape): pod for pods in (without_place, *placed.values()) for pod in pods}
    compiled = run_steps(
        compile_steps(
            replace(problem, pods=tuple(shapes.values())), SolveOptions(), CatalogueCache()
        )
    )
    return _PlacedPods(compiled, placed, without_place).without_domain(is_judged)


@dataclass(slots=True, eq=False)
class _Tally:
    """The pods that a group counts, by domain: a domain's number, or a node's column.

    `others` are those that are bound, and placed ones with the same constraint; `most` are all.
    `known` are the domains with a node that counts, `free` pods that are in no domain yet.
    """

    others: Counter[int]
    most: Counter[int]
    known: set[int]
    free: int


@final
class _PlacedPods:
    """Placed pods, and what each of their topology groups counts with them."""

    def __init__(
        self,
        compiled: CompiledProblem,
        placed: Mapping[str, Sequence[PodView]],
        without_place: Sequence[PodView],
    ) -> None:
        self._compiled: Final = compiled
        self._axes: Final = {axis.key: axis.number for axis in compiled.axes}
        self._tallies: Final = dict[int, _Tally]()
        class_of = {
            id(pod.shape): number
            for number, pod_class in enumerate(compiled.classes)
            for pod in pod_class.members
        }
        self._placed: Final = [
            (pod, class_of[id(pod.shape)], column)
            for column, node in enumerate(compiled.nodes)
            for pod in placed.get(node.name, ())
        ]
        self._own: Final = [
            {group for step in steps for group in _groups(step)} for steps in compiled.topologies
        ]
        """By class: the groups that restrict it at some relaxation step."""
        for _, number, column in self._placed:
            self._count(number, column, 1)
        for pod in without_place:
            self._count_free(class_of[id(pod.shape)])

    def without_domain(self, is_judged: Callable[[PodView], bool]) -> frozenset[str]:
        """Return the UIDs of the pods that may not be where they are placed."""
        found: list[str] = []
        for pod, number, column in self._placed:
            steps = self._compiled.topologies[number]
            if is_judged(pod) and not any(self._holds(step, column) for step in reversed(steps)):
                found.append(pod.uid)
                self._count(number, column, -1)
                self._count_free(number)
        return frozenset(found)

    def _holds(self, topology: ClassTopology, column: int) -> bool:
        """Tell whether all constraints of a relaxation step admit a placed pod, which is counted."""
        return all(self._admits(group, topology, column) for group in _groups(topology))

    def _count(self, number: int, column: int, count: int) -> None:
        for group in self._compiled.classes[number].counted:
            tally = self._tally(group)
            domains = self._domains(group, column)
            if not domains and self._compiled.nodes[column].requirements is not None:
                tally.free += count  # its labels are not decided yet
            tally.known.update(domains)
            for domain in domains:
                tally.most[domain] += count
                if group in self._own[number]:
                    tally.others[domain] += count

    def _count_free(self, number: int) -> None:
        """Count a pod that has no place yet."""
        for group in self._compiled.classes[number].counted:
            self._tally(group).free += 1

    def _admits(self, group: TopologyGroup, topology: ClassTopology, column: int) -> bool:
        domains = self._domains(group, column)
        if not domains:
            return True
        tally, grows = self._tally(group), group.index in topology.grows
        if group.kind is TopologyKind.AFFINITY:
            is_first = grows and tally.others.total() == 1
            return is_first or tally.free > 0 or tally.most[domains[0]] > grows
        if group.kind is TopologyKind.SPREAD:
            return tally.others[domains[0]] <= self._least(group, topology, tally) + group.max_skew
        return any(tally.others[domain] <= grows for domain in domains)

    def _least(self, group: TopologyGroup, topology: ClassTopology, tally: _Tally) -> int:
        """Return the lowest count that a spread constraint measures by, with all placed pods."""
        usable = tally.known
        allowed = None if group.is_host else topology.allowed[self._axes[group.key]]
        if allowed is not None:
            usable = {domain for domain in usable if allowed[domain]}
        if len(usable) < group.min_domains:
            return 0
        levels = [tally.most[domain] for domain in usable]
        shares = fill_levels(levels, [tally.free] * len(levels), tally.free)
        return min((sum(each) for each in zip(levels, shares, strict=True)), default=0)

    def _domains(self, group: TopologyGroup, column: int) -> tuple[int, ...]:
        """Return the domains in which a group counts the pods of a node."""
        signatures = self._compiled.signatures
        signature = int(self._compiled.node_signatures[column])
        if not counts_on_node(group, signature, signatures):
            return ()
        if group.is_host:
            return (column,)
        return domains_of(group, self._axes[group.key], signature, signatures)

    def _tally(self, group: TopologyGroup) -> _Tally:
        tally = self._tallies.get(group.index)
        if tally is None:
            tally = self._tallies[group.index] = self._first_tally(group)
        return tally

    def _first_tally(self, group: TopologyGroup) -> _Tally:
        first, free = self._compiled.initial_counts, 0
        if group.is_host:
            row = first.host.get(group.index)
            counts: list[int] = [] if row is None else row.tolist()
            is_known = [
                bool(node.node_name and self._domains(group, column))
                for column, node in enumerate(self._compiled.nodes)
            ]
        else:
            axis = self._axes[group.key]
            counts = first.zonal[axis][group.row].tolist()
            is_known = first.known_domains[axis][group.row].tolist()
            free = int((axis, group.row) in first.possible_counts)
        bound = Counter({domain: count for domain, count in enumerate(counts) if count})
        known = {domain for domain, it in enumerate(is_known) if it}
        return _Tally(bound, bound.copy(), known, free)


def _groups(topology: ClassTopology) -> Iterator[TopologyGroup]:
    yield from topology.host
    for groups in topology.zonal.values():
        yield from groups
