"""What topology groups count while a plan is made, and how many pods more they allow where.

The rules are those of the Kubernetes scheduler, as caps: on nodes for the host name, on domains
for any other key. `spec/scheduling.md` 14.4 and 14.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.domains import counts_on, domains_of
from karpenter_core.scheduling.topology import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from karpenter_core.scheduling.columns import Amounts, Columns, OpenNodes
    from karpenter_core.scheduling.compiled import CompiledProblem
    from karpenter_core.scheduling.topology import Group

__all__ = ["NO_CAP", "Counts", "DomainCaps", "HostCaps", "Ties"]

NO_CAP: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ties:
    """The groups that concern a class at a rung, sorted by what they count on.

    `grows` are the indices of the groups whose counts grow with the class itself; `zonal` has the
    restricting groups of each axis, `allowed` the domains the class may be in at all (None: all).
    """

    host: tuple[Group, ...]
    zonal: Mapping[int, tuple[Group, ...]]
    allowed: Mapping[int, NDArray[np.bool_] | None]
    counted_axes: tuple[int, ...]
    grows: frozenset[int]


@dataclass(frozen=True, slots=True)
class HostCaps:
    """Pods that each open node takes at most (None: any number), and that a new one takes.

    `first`: none has a pod yet that affinity asks for; whoever comes first chooses one node.
    """

    open: Amounts | None
    new: int
    first: bool


@dataclass(slots=True)
class DomainCaps:
    """Pods that each domain of an axis takes now.

    `growing` are the groups that make it change with every pod placed; `first`: affinity has no
    target yet, the first pod chooses the domain.
    """

    caps: Amounts
    growing: list[Group] = field(default_factory=list["Group"])
    first: bool = False


@final
class Counts:
    """The counts of one plan."""

    def __init__(self, compiled: CompiledProblem) -> None:
        self._signatures: Final = compiled.signatures
        self._axes: Final = compiled.axes
        self._numbers: Final = {axis.key: axis.number for axis in compiled.axes}
        self.zonal: Final = [table.copy() for table in compiled.first_counts.zonal]
        self.known: Final = [table.copy() for table in compiled.first_counts.known]
        self.host: Final = {index: row.copy() for index, row in compiled.first_counts.host.items()}
        self.perhaps: Final = {k: row.copy() for k, row in compiled.first_counts.perhaps.items()}
        """By axis and line, pods that may turn out to count in a domain and do not yet."""
        self._filters: Final = dict[tuple[int, int, bool], bool]()

    def host_caps(self, ties: Ties, count: int) -> HostCaps:
        """Return what host name groups allow on the open nodes (`count` of them) and on new ones."""
        new, first = NO_CAP, False
        caps: Amounts | None = None
        for group in ties.host:
            grows = group.index in ties.grows
            row = self._host_row(group.index, count)
            if group.kind is Kind.AFFINITY:
                if grows and (row is None or not row.any()):
                    first = True
                    continue
                cap: Amounts | None = np.zeros(count, dtype=np.int64)
                if row is not None:
                    cap = np.where(row > 0, NO_CAP, 0)
                new = 0
            else:
                cap = _apart(group, row, count, grows=grows)
                if grows:
                    new = min(new, group.max_skew)
            if cap is not None:
                caps = cap if caps is None else np.minimum(caps, cap)
        return HostCaps(caps, new, first)

    def domain_caps(self, ties: Ties, axis: int) -> DomainCaps:
        """Return what the groups over one axis allow in its domains."""
        size = len(self._axes[axis].names)
        result = DomainCaps(np.full(size, NO_CAP, dtype=np.int64))
        allowed = ties.allowed[axis]
        for group in ties.zonal[axis]:
            counts, known = self.zonal[axis][group.row], self.known[axis][group.row]
            perhaps = self.perhaps.get((axis, group.row))
            grows = group.index in ties.grows
            if group.kind is Kind.SPREAD:
                most = counts if perhaps is None else counts + perhaps
                cap = self.least(group, allowed) + group.max_skew - most
                if not grows:
                    cap = np.where(cap >= 0, NO_CAP, 0)
                cap = np.where(known, cap, 0)
            elif group.kind is Kind.AFFINITY:
                there = counts > 0 if allowed is None else (counts > 0) & allowed
                if there.any():
                    cap, grows = np.where(there, NO_CAP, 0), False
                elif grows and not _may_be_there(perhaps, allowed):
                    result.first = True
                    free = known if allowed is None else known & allowed
                    cap = np.where(free, NO_CAP, 0)
                else:
                    cap = np.zeros(size, dtype=np.int64)
            else:
                cap = np.where((counts == 0) & known, 1 if grows else NO_CAP, 0)
            if grows:
                result.growing.append(group)
            np.minimum(result.caps, cap, out=result.caps)
        if allowed is not None:
            result.caps[~allowed] = 0
        return result

    def least(self, group: Group, allowed: NDArray[np.bool_] | None) -> int:
        """Return the lowest count a spread constraint measures by."""
        axis = self._numbers[group.key]
        known = self.known[axis][group.row]
        eligible = known if allowed is None else known & allowed
        number = int(np.count_nonzero(eligible))
        if not number or number < group.min_domains:
            return 0
        return int(self.zonal[axis][group.row][eligible].min())

    def record(
        self,
        groups: tuple[Group, ...],
        columns: Columns,
        counts: Amounts,
        nodes: OpenNodes,
        loose: Mapping[int, Mapping[int, tuple[int, ...]]],
    ) -> None:
        """Count pods that were placed.

        `loose` has the columns whose domain nobody but us knows, with those it may be in as far as
        the pods on it care, by axis.
        """
        for group in groups:
            if group.is_host:
                self._record_host(group, columns, counts, nodes)
            else:
                self._record_zonal(group, columns, counts, nodes, loose)

    def _record_zonal(
        self,
        group: Group,
        columns: Columns,
        counts: Amounts,
        nodes: OpenNodes,
        loose: Mapping[int, Mapping[int, tuple[int, ...]]],
    ) -> None:
        axis = self._numbers[group.key]
        for column, count in zip(columns.tolist(), counts.tolist(), strict=True):
            choices = None
            if loose and group.kind is not Kind.SPREAD:
                choices = loose.get(column, {}).get(axis)
                if choices is not None and group.kind is Kind.AFFINITY:
                    self._record_perhaps(group, axis, choices, count)
                    continue
            signature = int(nodes.signature[column])
            if choices is None:
                choices = domains_of(group, axis, signature, self._signatures)
            if group.node_filter is not None and not self._counts_on(group, signature):
                does, may = self._counts_by_rows(group, signature, nodes.used[:, column])
                if may and not does:
                    self._record_perhaps(group, axis, choices, count)
                if not does:
                    continue
            for domain in choices:
                self.zonal[axis][group.row, domain] += count
                self.known[axis][group.row, domain] = True

    def _record_perhaps(self, group: Group, axis: int, domains: Iterable[int], count: int) -> None:
        """Count pods on a claim that does not count, but will if later pods narrow it down."""
        row = self.perhaps.get((axis, group.row))
        if row is None:
            size = len(self._axes[axis].names)
            row = self.perhaps[axis, group.row] = np.zeros(size, dtype=np.int64)
        for domain in domains:
            row[domain] += count

    def _record_host(
        self,
        group: Group,
        columns: Columns,
        counts: Amounts,
        nodes: OpenNodes,
    ) -> None:
        row = self.host.get(group.index)
        if row is None or len(row) < nodes.size:
            row = self._widen(group.index, nodes.size)
        if group.node_filter is None:
            row[columns] += counts
            return
        for column, count in zip(columns.tolist(), counts.tolist(), strict=True):
            if self._counts_on(group, int(nodes.signature[column])):
                row[column] += count

    def _counts_on(self, group: Group, signature: int, *, lenient: bool = False) -> bool:
        key = (group.index, signature, lenient)
        known = self._filters.get(key)
        if known is None:
            known = counts_on(group, signature, self._signatures, lenient=lenient)
            self._filters[key] = known
        return known

    def _counts_by_rows(self, group: Group, signature: int, used: Amounts) -> tuple[bool, bool]:
        """Say of a claim whose labels do not tell whether a group counts its pods, and may count.

        The rows that hold them tell.
        """
        alternatives = group.node_filter.alternatives if group.node_filter else None
        if alternatives is None or not self._counts_on(group, signature, lenient=True):
            return False, False
        claim = self._signatures.claim(signature)
        bits, catalogue = claim.bits_of(claim.fitting(used)), claim.pool.catalogue
        return (
            any(claim.ensures(one, bits) for one in alternatives),
            any(bits & catalogue.matching(one) for one in alternatives),
        )

    def _host_row(self, index: int, count: int) -> Amounts | None:
        row = self.host.get(index)
        if row is None:
            return None
        if len(row) < count:
            row = self._widen(index, count)
        return row[:count]

    def _widen(self, index: int, size: int) -> Amounts:
        wide = np.zeros(max(size, 256), dtype=np.int64)
        row = self.host.get(index)
        if row is not None:
            wide[: len(row)] = row
        self.host[index] = wide
        return wide


def _may_be_there(perhaps: Amounts | None, allowed: NDArray[np.bool_] | None) -> bool:
    if perhaps is None:
        return False
    return bool((perhaps > 0 if allowed is None else (perhaps > 0) & allowed).any())


def _apart(group: Group, row: Amounts | None, count: int, *, grows: bool) -> Amounts | None:
    """Return the caps of a group that keeps pods apart; None: it does not restrict.

    Pods that are counted themselves may fill a node up to the skew (one, for anti-affinity);
    others may join as long as the count does not exceed it (is nothing).
    """
    if row is None:
        return np.full(count, group.max_skew, dtype=np.int64) if grows else None
    if grows:
        return group.max_skew - row
    return np.where(row <= (group.max_skew if group.kind is Kind.SPREAD else 0), NO_CAP, 0)
