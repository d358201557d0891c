"""Counts placed pods by topology group, and caps how many more may come.

The rules are those of the Kubernetes scheduler, as caps: on nodes for the host name, on domains
for any other key. `spec/scheduling.md` 14.4 and 14.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np
from msgspec import Struct

from karpenter_core.scheduling.compiled.domain_counts import (
    counts_on_node,
    domains_of,
    open_domains_of,
)
from karpenter_core.scheduling.compiled.topology import TopologyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.scheduling.arrays import Amounts, Counts
    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes

__all__ = ["NO_CAP", "DomainCaps", "DomainCounts", "HostCaps", "TopologyCounts"]

NO_CAP: Final = 1 << 40


class HostCaps(Struct, frozen=True, eq=False):
    """Pods that each open node (nodes) takes at most (None: any number), and that a new one takes.

    `first`: no node has a pod yet that affinity selects; the first pod chooses one node.
    """

    open: Counts | None
    new: int
    first: bool


_NO_CAPS: Final = HostCaps(None, NO_CAP, first=False)


class DomainCaps(Struct, frozen=True, eq=False):
    """Pods that each domain of an axis takes now; `domains` are those that take any.

    `growing` are the groups that make it change with every pod placed; `first`: affinity has no
    target yet, the first pod chooses the domain.
    """

    caps: list[int]
    domains: tuple[int, ...]
    growing: list[TopologyGroup]
    first: bool


@dataclass(slots=True)
class DomainCounts:
    """The pods that one topology group counts in the domains of its axis.

    `known` are the domains that exist for it; `possible_counts` are pods that do not count yet but
    may count in a domain later (None: none anywhere).
    """

    counts: list[int]
    known: list[bool]
    possible_counts: list[int] | None

    def usable(self, allowed: tuple[bool, ...] | None) -> list[bool]:
        """Return the domains that are there for pods that may be in those `allowed`."""
        if allowed is None:
            return self.known
        return [a and b for a, b in zip(self.known, allowed, strict=True)]

    def least(self, group: TopologyGroup, usable: list[bool]) -> int:
        """Return the lowest count that a spread constraint measures by."""
        counts = self.counts
        if False in usable:
            counts = [count for count, it in zip(counts, usable, strict=True) if it]
        if not counts or len(counts) < group.min_domains:
            return 0
        return min(counts)


@final
class TopologyCounts:
    """The counts of one plan."""

    def __init__(self, compiled: CompiledProblem) -> None:
        self._signatures: Final = compiled.signatures
        self._axes: Final = compiled.axes
        self._numbers: Final = {axis.key: axis.number for axis in compiled.axes}
        self._first: Final = compiled.initial_counts
        self._tallies: Final = dict[int, DomainCounts]()
        self.host: Final = {
            index: row.copy() for index, row in compiled.initial_counts.host.items()
        }
        self._filters: Final = dict[tuple[int, int, bool], bool]()

    def domain_counts(self, group: TopologyGroup) -> DomainCounts:
        """Return what a group over domains counts."""
        counts = self._tallies.get(group.index)
        if counts is None:
            axis, row, first = self._numbers[group.key], group.row, self._first
            possible_counts = first.possible_counts.get((axis, row))
            counts = self._tallies[group.index] = DomainCounts(
                first.zonal[axis][row].tolist(),
                first.known_domains[axis][row].tolist(),
                None if possible_counts is None else possible_counts.tolist(),
            )
        return counts

    def host_caps(self, topology: ClassTopology, count: int) -> HostCaps:
        """Return the caps of host name groups on the `count` open nodes and on new ones."""
        if not topology.host:
            return _NO_CAPS
        new, first = NO_CAP, False
        caps: Counts | None = None
        for group in topology.host:
            grows = group.index in topology.grows
            row = self._host_row(group.index, count)
            if group.kind is TopologyKind.AFFINITY:
                if grows and not self.is_counted(group, topology):
                    first = True
                    continue
                cap: Counts | None = np.zeros(count, dtype=np.int64)
                if row is not None:
                    cap = np.where(row > 0, NO_CAP, 0)
                new = 0
            else:
                cap = _separation_caps(group, row, count, grows=grows)
                if grows:
                    new = min(new, max(group.max_skew, 0))
            if cap is not None:
                caps = cap if caps is None else np.minimum(caps, cap)
        return HostCaps(caps, new, first)

    def domain_caps(self, topology: ClassTopology, axis: int) -> DomainCaps:
        """Return what the groups over one axis allow in its domains."""
        allowed = topology.allowed[axis]
        caps: list[int] = []
        growing: list[TopologyGroup] = []
        first = False
        for group in topology.zonal[axis]:
            tally, grows = self.domain_counts(group), group.index in topology.grows
            usable = tally.usable(allowed)
            if group.kind is TopologyKind.SPREAD:
                here = _spread_caps(group, tally, usable, grows=grows)
            elif group.kind is TopologyKind.AFFINITY:
                there = [count > 0 for count in tally.counts]
                if allowed is not None:
                    there = [a and b for a, b in zip(there, allowed, strict=True)]
                if True in there:
                    grows = False
                elif grows and not self.is_counted(group, topology):
                    first, there = True, usable
                here = [NO_CAP if it else 0 for it in there]
            else:
                most = 1 if grows else NO_CAP
                counted = zip(tally.counts, usable, strict=True)
                here = [most if it and not count else 0 for count, it in counted]
            if grows:
                growing.append(group)
            caps = list(map(min, caps, here)) if caps else here
        domains = tuple([domain for domain, cap in enumerate(caps) if cap > 0])
        return DomainCaps(caps, domains, growing, first)

    def is_counted(self, group: TopologyGroup, topology: ClassTopology) -> bool:
        """Tell whether pods that an affinity group selects are anywhere, or will be.

        To kube-scheduler a pod is the first of them only if there is none: also none where its node
        selector does not let it go, and none on nodes without the label of one of its terms.
        """
        return any(
            self._is_counted_by(each) for each in (group, *topology.siblings.get(group.index, ()))
        )

    def _is_counted_by(self, group: TopologyGroup) -> bool:
        if group.is_host:
            row = self.host.get(group.index)
            return row is not None and bool(row.any())
        tally = self.domain_counts(group)
        return any(tally.counts) or any(tally.possible_counts or ())

    def record(
        self,
        groups: tuple[TopologyGroup, ...],
        columns: list[int],
        counts: list[int],
        nodes: OpenNodes,
        loose: Mapping[int, Mapping[int, tuple[int, ...]]],
    ) -> None:
        """Count pods that were placed.

        `loose` has the columns whose domain only this plan has fixed, with the domains that the
        pods on them allow, by axis.
        """
        placed = list(zip(columns, counts, strict=True))
        for group in groups:
            if group.is_host:
                self._record_host(group, placed, nodes)
            else:
                self._record_zonal(group, placed, nodes, loose)

    def is_undecided(self, group: TopologyGroup, column: int, nodes: OpenNodes) -> bool:
        """Whether a planned claim may become a node on which a group counts, and may not."""
        does, may = self._certainty(group, column, nodes)
        return may and not does

    def recount(
        self, group: TopologyGroup, placed: Iterable[tuple[int, int]], nodes: OpenNodes
    ) -> None:
        """Count again all pods `placed` (column, number) that a spread over domains selects."""
        self._tallies.pop(group.index, None)
        self._record_zonal(group, placed, nodes, {})

    def _record_zonal(
        self,
        group: TopologyGroup,
        placed: Iterable[tuple[int, int]],
        nodes: OpenNodes,
        loose: Mapping[int, Mapping[int, tuple[int, ...]]],
    ) -> None:
        axis, tally = self._numbers[group.key], self.domain_counts(group)
        for column, count in placed:
            choices = None
            if loose and group.kind is not TopologyKind.SPREAD:
                choices = loose.get(column, {}).get(axis)
                if choices is not None and group.kind is TopologyKind.AFFINITY:
                    _count_possible(tally, choices, count)
                    continue
            signature = nodes.signature.item(column)
            if choices is None:
                choices = domains_of(group, axis, signature, self._signatures)
                if possible := open_domains_of(group, axis, signature, self._signatures):
                    _count_possible(tally, possible, count)
                    continue
            does, may = self._certainty(group, column, nodes)
            if may and not does:
                _count_possible(tally, choices, count)
            if not does:
                continue
            for domain in choices:
                tally.counts[domain] += count
                tally.known[domain] = True

    def _record_host(
        self, group: TopologyGroup, placed: Iterable[tuple[int, int]], nodes: OpenNodes
    ) -> None:
        row = self.host.get(group.index)
        if row is None or len(row) < nodes.size:
            row = self._widen(group.index, nodes.size)
        for column, count in placed:
            if group.node_filter is None or self._counts_on(group, nodes.signature.item(column)):
                row[column] += count

    def _counts_on(self, group: TopologyGroup, signature: int, *, lenient: bool = False) -> bool:
        key = (group.index, signature, lenient)
        is_counted = self._filters.get(key)
        if is_counted is None:
            is_counted = counts_on_node(group, signature, self._signatures, lenient=lenient)
            self._filters[key] = is_counted
        return is_counted

    def _certainty(self, group: TopologyGroup, column: int, nodes: OpenNodes) -> tuple[bool, bool]:
        """Say of a node whether a group counts its pods, and whether it may come to."""
        signature = nodes.signature.item(column)
        if group.node_filter is None or self._counts_on(group, signature):
            return True, True
        return self._counts_by_rows(group, signature, nodes.used[:, column])

    def _counts_by_rows(
        self, group: TopologyGroup, signature: int, used: Amounts
    ) -> tuple[bool, bool]:
        """Say of a claim whose labels do not tell whether a group counts its pods, and may count.

        The rows that hold them tell.
        """
        alternatives = group.node_filter.alternatives if group.node_filter else None
        if alternatives is None or not self._counts_on(group, signature, lenient=True):
            return False, False
        claim = self._signatures.claim(signature)
        requirements = self._signatures.possible_labels(signature, alternatives)
        bits, catalogue = claim.bits_of(claim.fitting(used)), claim.pool.catalogue
        return (
            any(claim.guarantees(one, bits) for one in requirements),
            any(bits & catalogue.matching(one) for one in requirements),
        )

    def _host_row(self, index: int, count: int) -> Counts | None:
        row = self.host.get(index)
        if row is None:
            return None
        if len(row) < count:
            row = self._widen(index, count)
        return row[:count]

    def _widen(self, index: int, size: int) -> Counts:
        wide = np.zeros(max(size, 256), dtype=np.int64)
        row = self.host.get(index)
        if row is not None:
            wide[: len(row)] = row
        self.host[index] = wide
        return wide


def _spread_caps(
    group: TopologyGroup, tally: DomainCounts, usable: list[bool], *, grows: bool
) -> list[int]:
    highest, counts = tally.least(group, usable) + group.max_skew, tally.counts
    if tally.possible_counts is not None:
        counts = [a + b for a, b in zip(counts, tally.possible_counts, strict=True)]
    if grows:
        return [highest - n if it else 0 for n, it in zip(counts, usable, strict=True)]
    return [NO_CAP if it and n <= highest else 0 for n, it in zip(counts, usable, strict=True)]


def _count_possible(tally: DomainCounts, domains: Iterable[int], count: int) -> None:
    """Count pods on a claim that does not count, but will if later pods narrow it down."""
    if tally.possible_counts is None:
        tally.possible_counts = [0] * len(tally.counts)
    for domain in domains:
        tally.possible_counts[domain] += count


def _separation_caps(
    group: TopologyGroup, row: Counts | None, count: int, *, grows: bool
) -> Counts | None:
    """Return the caps of a group that keeps pods apart; None: it does not restrict.

    Pods that are counted themselves may fill a node up to the skew (one, for anti-affinity);
    others may join as long as the count does not exceed it (is nothing).
    """
    if row is None:
        return np.full(count, group.max_skew, dtype=np.int64) if grows else None
    if grows:
        return group.max_skew - row
    return np.where(row <= (group.max_skew if group.kind is TopologyKind.SPREAD else 0), NO_CAP, 0)
