"""Which open nodes take pods of a class, in which order, and how many go on each.

What fits into the largest machine that a claim may become is the first guess, for all nodes at
once. It is exact for nodes that are there, and for claims that stay what they are and have one
largest machine; the others are looked at one by one, in their order, until enough room is found.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.arrays import grown
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.placement.columns import NO_ROW

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Amounts, Columns, Mask
    from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
    from karpenter_core.scheduling.compiled.classes import Ask
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, Task
    from karpenter_core.scheduling.compiled.signatures import Pin
    from karpenter_core.scheduling.placement.columns import OpenNodes
    from karpenter_core.scheduling.placement.counts import HostCaps
    from karpenter_core.scheduling.placement.shared_volumes import SharedVolumes

__all__ = ["Becoming", "Rooms", "dealt"]

_TOLERATED_RISE: Final = 1.05
"""Pods whose wishes make a claim's machine dearer than that (on-demand only …) get another one."""

_FEW: Final = 4
"""Nodes that are looked at one by one: most classes have few pods, and the first nodes take them."""

_NEXT: Final = 64
"""Nodes that are looked at together after them, and four times as many each time that is too few."""

_UNKNOWN: Final = -3


@final
class _Check:
    """What to look at where pods change a claim, or the largest amounts alone do not tell."""

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
class Becoming:
    """What each signature becomes when pods with an ask join where pins allow, by number.

    `good` are those that take the pods at all (`refuses`: not all do); `changes`: some become
    another one.
    """

    __slots__ = ("changes", "checks", "done", "good", "met", "refuses")

    def __init__(self) -> None:
        self.met: Columns = np.full(16, _UNKNOWN, dtype=np.intp)
        self.good: Mask = np.zeros(16, dtype=np.bool_)
        self.checks: Final = dict[int, _Check]()
        """The claims whose rooms need correction."""
        self.done = 0
        self.refuses = False
        self.changes = False

    def reserve(self, number: int) -> None:
        """Make room for a signature."""
        if number >= len(self.met):
            size = max(number + 1, 2 * len(self.met))
            self.met, self.good = grown(self.met, size, _UNKNOWN), grown(self.good, size)


@final
class Rooms:
    """The room on the open nodes of one plan.

    `tight`: planned claims are filled in the order of what is left on them, the fullest first.
    """

    def __init__(
        self, compiled: CompiledProblem, nodes: OpenNodes, volumes: SharedVolumes, *, tight: bool
    ) -> None:
        self._signatures: Final = compiled.signatures
        self._nodes: Final = nodes
        self._volumes: Final = volumes
        self._tight: Final = tight
        self._becoming: Final = dict[tuple[int, tuple["Pin", ...]], Becoming]()

    def becoming(self, ask: Ask, pins: tuple[Pin, ...]) -> Becoming:
        """Return what every signature in use becomes."""
        key = (ask.index, pins)
        becoming = self._becoming.get(key)
        if becoming is None:
            becoming = self._becoming[key] = Becoming()
        used = self._nodes.signatures_in_use
        if becoming.done < len(used):
            signatures = self._signatures
            fresh = used[becoming.done :]
            becoming.reserve(max(fresh))
            for number in fresh:
                met = becoming.met[number] = signatures.meet(number, ask, pins)
                if met == NO_MATCH:
                    becoming.refuses = True
                    continue
                becoming.good[number] = True
                changes = met != number
                becoming.changes |= changes
                if signatures.is_claim(number):
                    after = signatures.claim(met)
                    if changes or after.is_ragged:
                        before = signatures.claim(number)
                        becoming.checks[number] = _Check(before, after, changes=changes)
            becoming.done = len(used)
        return becoming

    def first(
        self, task: Task, left: int, becoming: Becoming, caps: HostCaps
    ) -> tuple[list[int], list[int]]:
        """Return the nodes that up to `left` pods go to, and how many go on each."""
        columns = self._able(task, becoming, caps)
        if left == 1 and not becoming.checks:
            return self._one(columns)
        if self._tight and len(columns) > 1:
            columns = self._ranked(columns)
        chosen: list[int] = []
        counts: list[int] = []
        few: list[int] = columns[:_FEW].tolist()
        for column in few:
            room = min(self._room(task, column, becoming, caps), left)
            if room > 0:
                chosen.append(column)
                counts.append(room)
                left -= room
                if not left:
                    break
        start, size = _FEW, _NEXT
        while left and start < len(columns):
            part, rooms = self._exact(task, columns[start : start + size], becoming, caps)
            if len(part):
                given = dealt(rooms, left)
                chosen += part[: len(given)].tolist()
                counts += given
                left -= sum(given)
            start, size = start + size, size * 4
        return chosen, counts

    def _one(self, columns: Columns) -> tuple[list[int], list[int]]:
        """Return the first node in the order of filling, with one pod; most classes have no more."""
        if not len(columns):
            return [], []
        first = columns.item(0)
        if self._tight and len(columns) > 1 and first >= self._nodes.existing:
            first = columns.item(self._nodes.worth[columns].argmin())
        return [first], [1]

    def every(self, task: Task, becoming: Becoming, caps: HostCaps) -> tuple[Columns, Amounts]:
        """Return all nodes that take pods, in their order, and how many each takes."""
        columns = self._able(task, becoming, caps)
        if self._tight:
            columns = self._ranked(columns)
        return self._exact(task, columns, becoming, caps)

    def there(self, task: Task, becoming: Becoming, caps: HostCaps) -> tuple[Columns, Amounts]:
        """Return the nodes that are there and take pods, in their order, with how many."""
        columns = self._able(task, becoming, caps)
        columns = columns[: np.count_nonzero(columns < self._nodes.existing)]
        return self._exact(task, columns, becoming, caps)

    def _able(self, task: Task, becoming: Becoming, caps: HostCaps) -> Columns:
        """Return the nodes that take pods, as far as the largest amounts tell."""
        free = self._nodes.free
        (line, amount), *others = task.asked
        able = free[line] >= amount
        for line, amount in others:
            able &= free[line] >= amount
        if becoming.refuses:
            able &= becoming.good[self._nodes.signature]
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        if task.pod_class.shared_volumes and len(columns):
            return self._volumes.attachable(task, columns)
        return columns

    def _ranked(self, columns: Columns) -> Columns:
        """Order nodes: those that are there as they come, then planned ones, the fullest first."""
        start = int(np.count_nonzero(columns < self._nodes.existing))
        planned = columns[start:]
        planned = planned[self._nodes.worth[planned].argsort(kind="stable")]
        return np.concatenate((columns[:start], planned)) if start else planned

    def _room(self, task: Task, column: int, becoming: Becoming, caps: HostCaps) -> int:
        """Return how many pods one node takes."""
        nodes = self._nodes
        free: list[int] = nodes.free[:, column].tolist()
        room = min([free[line] // amount for line, amount in task.asked])
        if caps.open is not None:
            room = min(room, caps.open.item(column))
        if task.ask.host_ports:
            room = min(room, 1)
        if becoming.checks:
            check = becoming.checks.get(nodes.signature.item(column))
            if check is not None:
                row = nodes.row.item(column)
                if row == NO_ROW:
                    room = min(
                        room, check.after.room(nodes.used[:, column], task.request, task.asked)
                    )
                elif check.changes and check.refused.item(row):
                    room = 0
        return room

    def _exact(
        self, task: Task, columns: Columns, becoming: Becoming, caps: HostCaps
    ) -> tuple[Columns, Amounts]:
        """Return how many pods each of some nodes takes; those that take none are left out."""
        free = self._nodes.free
        (line, amount), *others = task.asked
        rooms = free[line, columns] // amount
        for line, amount in others:
            np.minimum(rooms, free[line, columns] // amount, out=rooms)
        if caps.open is not None:
            np.minimum(rooms, caps.open[columns], out=rooms)
        if task.ask.host_ports:
            np.minimum(rooms, 1, out=rooms)
        if becoming.checks:
            self._correct(task, columns, becoming, rooms)
            kept = rooms > 0
            columns, rooms = columns[kept], rooms[kept]
        return columns, rooms

    def _correct(self, task: Task, columns: Columns, becoming: Becoming, rooms: Amounts) -> None:
        """Make rooms exact where the largest amounts alone do not tell."""
        nodes = self._nodes
        numbers, rows = nodes.signature[columns], nodes.row[columns]
        there: list[int] = numbers.tolist()
        for number in sorted(becoming.checks.keys() & set(there)):
            check = becoming.checks[number]
            is_open = rows == NO_ROW
            if check.changes:
                measured = ((numbers == number) & ~is_open).nonzero()[0]
                rooms[measured[check.refused[rows[measured]]]] = 0
            opened = ((numbers == number) & is_open).nonzero()[0]
            if len(opened):
                exact = check.after.rooms(nodes.used[:, columns[opened]], task.request)
                rooms[opened] = np.minimum(rooms[opened], exact)


def dealt(rooms: Amounts, left: int) -> list[int]:
    """Return how many of the pods left each of the first nodes gets, which are filled in turn."""
    total = np.cumsum(rooms)
    counts: list[int] = rooms[: int(np.searchsorted(total, left)) + 1].tolist()
    counts[-1] -= max(int(total[len(counts) - 1]) - left, 0)
    return counts
