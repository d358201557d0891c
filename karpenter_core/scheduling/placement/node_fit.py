"""Finds the open nodes that take pods of a class, and how many each takes.

The first estimate, for all nodes at once, is what fits into the largest row of a claim. It is exact
for existing nodes, and for claims whose signature stays the same and that have one largest row; the
others are checked one by one, in their order, until all pods fit.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.arrays import Amounts, Columns, Counts, Floats, Mask, grown
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.placement.open_nodes import NO_ROW

if TYPE_CHECKING:
    from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
    from karpenter_core.scheduling.compiled.pod_classes import NodeConstraints
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.compiled.signatures import DomainPin
    from karpenter_core.scheduling.placement.device_places import DevicePlaces
    from karpenter_core.scheduling.placement.node_contents import NodeContents
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes
    from karpenter_core.scheduling.placement.shared_volumes import SharedVolumes
    from karpenter_core.scheduling.placement.topology_counts import HostCaps

__all__ = ["JoinedSignatures", "NodeFit", "distribute"]

_TOLERATED_RISE: Final = 1.05
"""Pods whose preferences raise a claim's price by more (on-demand only …) get another claim."""

_FEW: Final = 4
"""Nodes that are checked one by one: most classes have few pods, and the first nodes take them."""

_NEXT: Final = 64
"""Nodes that are checked together after them, and four times as many each time that is too few."""

_UNKNOWN: Final = -3


@final
class _RowsToCheck:
    """The rows to check where pods change a claim, or the largest amounts are not enough."""

    def __init__(self, before: ClaimSignature, after: ClaimSignature, *, changes: bool) -> None:
        self._before: Final = before
        self.after: Final = after
        self.changes: Final = changes

    @cached_property
    def refused(self) -> Mask:
        """The rows that pods must not join: impossible with them, or much dearer."""
        limit = self._before.prices_and_groups[0] * _TOLERATED_RISE
        return ~self.after.admissible_mask | (self.after.prices_and_groups[0] > limit)


@final
class JoinedSignatures:
    """The signatures after pods with given constraints join where pins allow, by number.

    `good` are those that take the pods at all (`refuses`: not all do); `changes`: some become
    another one.
    """

    __slots__ = ("changes", "checks", "done", "good", "met", "refuses")

    def __init__(self) -> None:
        self.met: Columns = np.full(16, _UNKNOWN, dtype=np.intp)
        self.good: Mask = np.zeros(16, dtype=np.bool_)
        self.checks: Final = dict[int, _RowsToCheck]()
        """The claims whose rooms need correction."""
        self.done = 0
        self.refuses = False
        self.changes = False

    def reserve(self, number: int) -> None:
        """Grow the arrays for a signature."""
        if number >= len(self.met):
            size = max(number + 1, 2 * len(self.met))
            self.met, self.good = grown(self.met, size, _UNKNOWN), grown(self.good, size)


@final
class NodeFit:
    """Computes how many pods the open nodes of one plan take.

    `tight`: planned claims are filled in the order of their free resources, the fullest first;
    `pods_line`: the resource by which those with the least of it in use are filled first instead.
    """

    def __init__(
        self,
        compiled: CompiledProblem,
        nodes: OpenNodes,
        volumes: SharedVolumes,
        devices: DevicePlaces | None,
        contents: NodeContents | None,
        *,
        tight: bool,
        pods_line: int | None,
    ) -> None:
        self._signatures: Final = compiled.signatures
        self._nodes: Final = nodes
        self._volumes: Final = volumes
        self._devices: Final = devices
        self._pods_line: Final = pods_line
        self._ranks: Final = tight or pods_line is not None
        self._contents: Final = contents
        self._joined: Final = dict[tuple[int, tuple["DomainPin", ...]], JoinedSignatures]()

    def joined_signatures(
        self, node_constraints: NodeConstraints, pins: tuple[DomainPin, ...]
    ) -> JoinedSignatures:
        """Return what every signature in use becomes."""
        key = (node_constraints.index, pins)
        joined = self._joined.get(key)
        if joined is None:
            joined = self._joined[key] = JoinedSignatures()
        used = self._nodes.signatures_in_use
        if joined.done < len(used):
            signatures = self._signatures
            fresh = used[joined.done :]
            joined.reserve(max(fresh))
            for number in fresh:
                met = joined.met[number] = signatures.join(number, node_constraints, pins)
                if met == NO_MATCH:
                    joined.refuses = True
                    continue
                joined.good[number] = True
                changes = met != number
                joined.changes |= changes
                if signatures.is_claim(number):
                    after = signatures.claim(met)
                    if changes or after.needs_row_check:
                        before = signatures.claim(number)
                        joined.checks[number] = _RowsToCheck(before, after, changes=changes)
            joined.done = len(used)
        return joined

    def first_fitting(
        self, task: PlacementTask, left: int, joined: JoinedSignatures, caps: HostCaps
    ) -> tuple[list[int], list[int]]:
        """Return the nodes that up to `left` pods go to, and how many go on each."""
        columns = self._possible_nodes(task, joined, caps)
        if self._contents is not None:
            return self._meant_first(task, left, joined, caps, columns)
        return self._first(task, left, joined, caps, columns)

    def _meant_first(
        self,
        task: PlacementTask,
        left: int,
        joined: JoinedSignatures,
        caps: HostCaps,
        columns: Columns,
    ) -> tuple[list[int], list[int]]:
        """Choose nodes that are meant for such pods, then others."""
        assert self._contents is not None  # noqa: S101
        meant = self._contents.of_class(task.index)
        inside = columns[: np.searchsorted(columns, len(meant))]
        wanted = inside[meant[inside] > 0]
        if not len(wanted):
            spare = self._contents.spare(columns, self._nodes.free, task.index)
            if len(spare):
                found = self._first(task, 1, joined, caps, spare)
                if found[0]:
                    return found
            return self._first(task, 1, joined, caps, columns)
        wanted, fit_counts = self._exact(task, self._ranked(wanted), joined, caps)
        if not len(wanted):
            return self._first(task, left, joined, caps, columns)
        counts = distribute(np.minimum(fit_counts, meant[wanted]), left)
        chosen: list[int] = wanted[: len(counts)].tolist()
        left -= sum(counts)
        return chosen, counts

    def _first(
        self,
        task: PlacementTask,
        left: int,
        joined: JoinedSignatures,
        caps: HostCaps,
        columns: Columns,
    ) -> tuple[list[int], list[int]]:
        if left == 1 and not joined.checks:
            return self._one(columns)
        if self._ranks and len(columns) > 1:
            columns = self._ranked(columns)
        chosen: list[int] = []
        counts: list[int] = []
        few: list[int] = columns[:_FEW].tolist()
        for column in few:
            fit_count = min(self._fit_count(task, column, joined, caps), left)
            if fit_count > 0:
                chosen.append(column)
                counts.append(fit_count)
                left -= fit_count
                if not left:
                    break
        start, size = _FEW, _NEXT
        while left and start < len(columns):
            part, fit_counts = self._exact(task, columns[start : start + size], joined, caps)
            if len(part):
                given = distribute(fit_counts, left)
                chosen += part[: len(given)].tolist()
                counts += given
                left -= sum(given)
            start, size = start + size, size * 4
        return chosen, counts

    def _one(self, columns: Columns) -> tuple[list[int], list[int]]:
        """Return the first node in the order of filling, with one pod (the usual case)."""
        if not len(columns):
            return [], []
        first = columns.item(0)
        if self._ranks and len(columns) > 1 and first >= self._nodes.existing:
            first = columns.item(self._fill_order(columns).argmin())
        return [first], [1]

    def all_fitting(
        self, task: PlacementTask, joined: JoinedSignatures, caps: HostCaps
    ) -> tuple[Columns, Counts]:
        """Return all nodes that take pods, in their order, and how many each takes."""
        columns = self._possible_nodes(task, joined, caps)
        if self._ranks:
            columns = self._ranked(columns)
        return self._exact(task, columns, joined, caps)

    def existing_fitting(
        self, task: PlacementTask, joined: JoinedSignatures, caps: HostCaps
    ) -> tuple[Columns, Counts]:
        """Return the nodes that are there and take pods, in their order, with how many."""
        columns = self._possible_nodes(task, joined, caps)
        columns = columns[: np.count_nonzero(columns < self._nodes.existing)]
        return self._exact(task, columns, joined, caps)

    def _possible_nodes(
        self, task: PlacementTask, joined: JoinedSignatures, caps: HostCaps
    ) -> Columns:
        """Return the nodes that take pods, as far as the largest amounts tell."""
        free = self._nodes.free
        (line, amount), *others = task.requested_lines
        able = free[line] >= amount
        for line, amount in others:
            able &= free[line] >= amount
        if joined.refuses:
            able &= joined.good[self._nodes.signature]
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        if task.pod_class.shared_volumes and len(columns):
            columns = self._volumes.attachable(task, columns)
        if self._devices is not None:
            columns = self._devices.able(task, columns, joined.met)
        return columns

    def _ranked(self, columns: Columns) -> Columns:
        """Order nodes: those that are there as they come, then planned ones, by the order of filling."""
        start = int(np.count_nonzero(columns < self._nodes.existing))
        planned = columns[start:]
        planned = planned[self._fill_order(planned).argsort(kind="stable")]
        return np.concatenate((columns[:start], planned)) if start else planned

    def _fill_order(self, columns: Columns) -> Floats | Amounts:
        """Return the amounts by which planned claims are filled, the lowest first."""
        if self._pods_line is not None:
            return self._nodes.used[self._pods_line, columns]
        return self._nodes.free_value[columns]

    def _fit_count(
        self, task: PlacementTask, column: int, joined: JoinedSignatures, caps: HostCaps
    ) -> int:
        """Return how many pods one node takes."""
        nodes = self._nodes
        free: list[int] = nodes.free[:, column].tolist()
        fit_count = min([free[line] // amount for line, amount in task.requested_lines])
        if caps.open is not None:
            fit_count = min(fit_count, caps.open.item(column))
        if task.node_constraints.host_ports:
            fit_count = min(fit_count, 1)
        if joined.checks:
            check = joined.checks.get(nodes.signature.item(column))
            if check is not None:
                row = nodes.row.item(column)
                if row == NO_ROW:
                    fit_count = min(
                        fit_count,
                        check.after.fit_count(
                            nodes.used[:, column], task.request, task.requested_lines
                        ),
                    )
                elif check.changes and check.refused.item(row):
                    fit_count = 0
        return fit_count

    def _exact(
        self, task: PlacementTask, columns: Columns, joined: JoinedSignatures, caps: HostCaps
    ) -> tuple[Columns, Counts]:
        """Return how many pods each of some nodes takes; those that take none are left out."""
        free = self._nodes.free
        (line, amount), *others = task.requested_lines
        fit_counts = free[line, columns] // amount
        for line, amount in others:
            np.minimum(fit_counts, free[line, columns] // amount, out=fit_counts)
        if caps.open is not None:
            np.minimum(fit_counts, caps.open[columns], out=fit_counts)
        if task.node_constraints.host_ports:
            np.minimum(fit_counts, 1, out=fit_counts)
        if joined.checks:
            self._correct(task, columns, joined, fit_counts)
            has_place = fit_counts > 0
            columns, fit_counts = columns[has_place], fit_counts[has_place]
        return columns, fit_counts

    def _correct(
        self, task: PlacementTask, columns: Columns, joined: JoinedSignatures, fit_counts: Counts
    ) -> None:
        """Correct the fit counts where the largest amounts alone are not enough."""
        nodes = self._nodes
        numbers, rows = nodes.signature[columns], nodes.row[columns]
        there: list[int] = numbers.tolist()
        for number in sorted(joined.checks.keys() & set(there)):
            check = joined.checks[number]
            is_open = rows == NO_ROW
            if check.changes:
                measured = ((numbers == number) & ~is_open).nonzero()[0]
                fit_counts[measured[check.refused[rows[measured]]]] = 0
            opened = ((numbers == number) & is_open).nonzero()[0]
            if len(opened):
                exact = check.after.fit_counts(nodes.used[:, columns[opened]], task.request)
                fit_counts[opened] = np.minimum(fit_counts[opened], exact)


def distribute(fit_counts: Counts, left: int) -> list[int]:
    """Return how many of the pods left each of the first nodes gets, which are filled in turn."""
    total = np.cumsum(fit_counts)
    counts: list[int] = fit_counts[: int(np.searchsorted(total, left)) + 1].tolist()
    counts[-1] -= max(int(total[len(counts) - 1]) - left, 0)
    return counts
