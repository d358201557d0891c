"""Counts running pods in the domains of every topology key.

The domains of an axis that count for a group depend on the taints that its owners tolerate. For the
host name every node is a domain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.taints import PREFERENCE_TOLERATION, first_untolerated

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.records import PodShape
    from karpenter_core.scheduling.arrays import Counts, Mask, Numbers
    from karpenter_core.scheduling.compiled.signatures import SignatureTable
    from karpenter_core.scheduling.compiled.topology import TopologyGroup, TopologyGroups
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem

__all__ = [
    "InitialCounts",
    "count_steps",
    "counting_groups",
    "counts_on_node",
    "domains_of",
    "known_domains",
    "open_domains_of",
]


NODES_PER_STEP: Final = 200
"""The number of nodes processed between two yields."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InitialCounts:
    """Counts of pods by topology groups before the pass."""

    known_domains: tuple[Mask, ...]
    """By axis, groups x domains: the domains that each group of the axis knows."""
    zonal: tuple[Counts, ...]
    """By axis, groups x domains: the pods that each group counts there."""
    host: Mapping[int, Counts]
    """By host name group that counts anything, existing nodes: the pods on each."""
    possible_counts: Mapping[tuple[int, int], Counts] = field(
        default_factory=dict[tuple[int, int], "Counts"]
    )
    """By axis and group, domains: pods that affinity selects on claims whose domain is open."""


def count_steps(
    problem: SchedulingProblem,
    groups: TopologyGroups,
    axes: Sequence[TopologyAxis],
    nodes: Sequence[ExistingNode],
    signatures: SignatureTable,
    node_signatures: Numbers,
) -> Generator[int, None, InitialCounts]:
    """Count the pods that run, where they run, for every group; yields units of work done.

    Pods that are themselves to be placed in this pass are left out: they will move.
    """
    known_by_axis = tuple(known_domains(axis, nodes, signatures, node_signatures) for axis in axes)
    zonal = tuple(np.zeros(table.shape, dtype=np.int64) for table in known_by_axis)
    possible_counts: dict[tuple[int, int], Counts] = {}
    if not groups.all:
        return InitialCounts(known_domains=known_by_axis, zonal=zonal, host={})
    numbers: list[int] = node_signatures.tolist()
    tally = _RunningPodCounter(groups, {pod.uid for pod in problem.pods})
    for column, (node, signature) in enumerate(zip(nodes, numbers, strict=True)):
        tally.add(node, column, signature)
        if column % NODES_PER_STEP == 0:
            yield 1
    axis_of = {axis.key: axis.number for axis in axes}
    is_there = {n for n, node in zip(numbers, nodes, strict=True) if node.requirements is None}
    for counting in tally.countings:
        for signature, count in counting.pods.items():
            for group in counting.zonal:
                if not counts_on_node(group, signature, signatures):
                    continue
                axis = axis_of[group.key]
                certain = list(domains_of(group, axis, signature, signatures))
                zonal[axis][group.row, certain] += count
                known_by_axis[axis][group.row, certain] |= signature in is_there
                if possible := open_domains_of(group, axis, signature, signatures):
                    row = possible_counts.setdefault(
                        (axis, group.row), np.zeros(len(axes[axis].names), dtype=np.int64)
                    )
                    row[list(possible)] += count
    host = {
        index: _host_row(groups.all[index], counts, numbers, signatures)
        for index, counts in tally.host.items()
        if counts
    }
    return InitialCounts(
        known_domains=known_by_axis, zonal=zonal, host=host, possible_counts=possible_counts
    )


def _host_row(
    group: TopologyGroup,
    counts: Mapping[int, int],
    numbers: Sequence[int],
    signatures: SignatureTable,
) -> Counts:
    """Return the pods that a host name group counts: existing nodes."""
    row = np.zeros(len(numbers), dtype=np.int64)
    row[list(counts)] = list(counts.values())
    if group.node_filter is not None:
        row[
            [column for column in counts if not counts_on_node(group, numbers[column], signatures)]
        ] = 0
    return row


@dataclass(slots=True)
class _GroupPodCounts:
    """Groups that count the same pods: `pods` by the signatures of the nodes that they are on.

    `host` are the counts of host name groups by column, shared with others.
    """

    zonal: tuple[TopologyGroup, ...]
    host: tuple[dict[int, int], ...]
    pods: dict[int, int] = field(default_factory=dict[int, int])


@final
class _RunningPodCounter:
    """Adds up pods that run: by what the node is and, for host name groups, by node."""

    def __init__(self, groups: TopologyGroups, moving: AbstractSet[str]) -> None:
        self._groups: Final = groups
        self._moving: Final = moving
        self._of_shape: Final = dict[int, _GroupPodCounts]()
        self._of_groups: Final = dict[tuple["TopologyGroup", ...], _GroupPodCounts]()
        self.host: Final = dict[int, dict[int, int]]()
        """By group, then by column."""

    @property
    def countings(self) -> Iterable[_GroupPodCounts]:
        """The pods by the groups that count them."""
        return self._of_groups.values()

    def add(self, node: ExistingNode, column: int, signature: int) -> None:
        """Add the pods of a node."""
        of_shape, moving = self._of_shape, self._moving
        for pod in node.pods:
            counting = of_shape.get(id(pod.shape))
            if counting is None:
                counting = of_shape[id(pod.shape)] = self._read(pod.shape)
            if (counting.zonal or counting.host) and not pod.is_terminal and pod.uid not in moving:
                if pod.is_terminating:
                    counting = self._read(pod.shape, is_terminating=True)
                pods = counting.pods
                pods[signature] = pods.get(signature, 0) + 1
                for counts in counting.host:
                    counts[column] = counts.get(column, 0) + 1

    def _read(self, shape: PodShape, *, is_terminating: bool = False) -> _GroupPodCounts:
        groups = counting_groups(self._groups, shape)
        if is_terminating:  # spreads do not count it any more, anti-affinity still does
            groups = tuple(group for group in groups if group.kind is TopologyKind.INVERSE)
        pod_counts = self._of_groups.get(groups)
        if pod_counts is None:
            pod_counts = self._of_groups[groups] = _GroupPodCounts(
                zonal=tuple(group for group in groups if not group.is_host),
                host=tuple(self.host.setdefault(g.index, {}) for g in groups if g.is_host),
            )
        return pod_counts


def counts_on_node(
    group: TopologyGroup, signature: int, signatures: SignatureTable, *, lenient: bool = False
) -> bool:
    """Whether a group counts pods on a node (the node policies of spread constraints).

    Lenient: on a claim also when it only may become a node that counts.
    """
    chosen = group.node_filter
    if chosen is None:
        return True
    if not all(signatures.may_have_label(signature, key) for key in chosen.present):
        return False
    if chosen.tolerations is not None:
        # Taints that are preferences keep no node out of a count (the Kubernetes scheduler's rule).
        tolerations = (*chosen.tolerations, PREFERENCE_TOLERATION)
        if first_untolerated(signatures.taints(signature), tolerations) is not None:
            return False
    if chosen.alternatives is None:
        return True
    # A claim that may still get the labels is counted by node (caution), not by domain (upstream).
    return signatures.admits_labels(
        signature, chosen.alternatives, lenient=lenient or group.is_host
    )


def domains_of(
    group: TopologyGroup, axis: int, signature: int, signatures: SignatureTable
) -> tuple[int, ...]:
    """Return the domains in which a group counts pods on a node.

    Anti-affinity keeps clear of every domain that a node may turn out to be in; other groups count
    only what is certain (spec 14.5).
    """
    if group.kind is TopologyKind.ANTI or group.kind is TopologyKind.INVERSE:
        return signatures.possible(axis, signature)
    domain = signatures.domain(axis, signature)
    return (domain,) if domain >= 0 else ()


def open_domains_of(
    group: TopologyGroup, axis: int, signature: int, signatures: SignatureTable
) -> tuple[int, ...]:
    """Return the domains in which pods that affinity asks for may turn out to be.

    Those of a node whose domain is open; none where it is known, as the pods count there.
    """
    is_open = group.kind is TopologyKind.AFFINITY and signatures.domain(axis, signature) < 0
    return signatures.possible(axis, signature) if is_open else ()


def counting_groups(groups: TopologyGroups, shape: PodShape) -> tuple[TopologyGroup, ...]:
    """Return the groups whose counts grow with a pod of a shape that runs."""
    selecting = [
        group for group in groups.selecting(shape) if group.kind is not TopologyKind.INVERSE
    ]
    return (*selecting, *(groups.inverse_of(shape) if shape.pod_anti_affinity else ()))


def known_domains(
    axis: TopologyAxis,
    nodes: Sequence[ExistingNode],
    signatures: SignatureTable,
    node_signatures: Numbers,
) -> Mask:
    """Return the domains that each group knows: groups x domains."""
    known = np.zeros((len(axis.groups), len(axis.names)), dtype=np.bool_)
    there = {
        int(number)
        for number, node in zip(node_signatures, nodes, strict=True)
        if node.requirements is None and not node.closed
    }
    for group in axis.groups:
        tolerations = None if group.node_filter is None else group.node_filter.tolerations
        for domains, taints in axis.reachable:
            if tolerations is None or first_untolerated(taints, tolerations) is None:
                known[group.row, list(domains)] = True
        for number in there:
            domain = signatures.domain(axis.number, number)
            if domain >= 0 and counts_on_node(group, number, signatures):
                known[group.row, domain] = True
    return known
