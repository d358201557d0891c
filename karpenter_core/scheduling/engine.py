"""Put classes of pods on nodes: open ones first, then new claims of the first pool that can.

One engine makes every kind of plan. What differs is the `Profile`: whether a new claim stays open
to every type that can still hold it (first-fit), or is measured by one row of the catalogue that
is chosen by what its room costs; and which open nodes are filled first.

A class is placed as a whole wherever nothing changes from pod to pod; where its own topology
constraints change with every pod, domain by domain in the order of their levels (`spread`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.columns import NO_ROW, OpenNodes
from karpenter_core.scheduling.counts import Counts
from karpenter_core.scheduling.growing import Grower
from karpenter_core.scheduling.holdings import Deferral, Holdings
from karpenter_core.scheduling.opening import Measure, Opener
from karpenter_core.scheduling.signatures import FLOATING, NO_MATCH, Pin
from karpenter_core.scheduling.spread import spread_steps
from karpenter_core.scheduling.tail import tail_steps
from karpenter_core.scheduling.topology import Kind
from karpenter_core.scheduling.volumes import is_attach_resource

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from numpy.typing import NDArray

    from karpenter_core.scheduling.classes import Ask, PodClass, Rung
    from karpenter_core.scheduling.columns import Amounts, Columns
    from karpenter_core.scheduling.compiled import CompiledProblem
    from karpenter_core.scheduling.counts import DomainCaps, HostCaps, Ties
    from karpenter_core.scheduling.opening import Opening, Profile
    from karpenter_core.scheduling.signatures import ClaimSignature

__all__ = ["Engine", "Halt", "Task"]

_TOLERATED_RISE: Final = 1.05
"""Pods whose wishes make a claim's machine dearer than that (on-demand only …) get another one."""

_FIRST_LOOK: Final = 16
"""Nodes whose room first-fit computes at once; most pods find a place among the first."""

_LIKELY_FILLED: Final = 0.9
"""The part of the room on open claims that later pods will find use for."""

_UNKNOWN: Final = -3
_MOST_ROUNDS: Final = 20
"""Rounds over classes that wait for others; a chain of affinities that long is none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """A class at one rung: what is being placed."""

    index: int
    pod_class: PodClass
    rung: Rung
    ties: Ties
    request: Amounts
    asked: tuple[int, ...]
    """The lines of `request` that are not zero."""
    reserved_only: bool = False
    """New claims are opened on reserved machines alone."""

    @property
    def ask(self) -> Ask:
        """What is asked of the node."""
        return self.rung.ask


@final
class Halt:
    """Asks a pass to come to its end: what is placed by then is the plan."""

    __slots__ = ("requested",)

    def __init__(self) -> None:
        self.requested = False


@final
class Engine:
    """One plan in the making."""

    def __init__(
        self, compiled: CompiledProblem, profile: Profile, halt: Halt | None = None
    ) -> None:
        self._halt: Final = halt or Halt()
        self.unreached: Final = set(range(len(compiled.classes)))
        """Classes that were not tried, because the pass was to end."""
        self.compiled: Final = compiled
        self.profile: Final = profile
        counts = np.array([len(c.members) for c in compiled.classes], dtype=np.int64)
        self.demand: Final = (compiled.requests * counts).sum(axis=1)
        """What the classes ask for that were not placed yet, per resource."""
        self.weights: Final = self._weights(profile)
        self.nodes: Final = OpenNodes(
            compiled.node_free,
            compiled.node_signatures,
            weights=self.weights if profile.tight else None,
        )
        self.counts: Final = Counts(compiled)
        self.remaining: Final = tuple(dict(pool.remaining) for pool in compiled.pools)
        """What is left of each pool's limits."""
        self.left: Final = dict[int, int]()
        """Pods that found no place, by class."""
        self.holdings: Final = Holdings(
            compiled, self.nodes, pessimistic=profile.measure is Measure.NONE
        )
        self.deferred: Final = dict[int, Deferral]()
        """Classes of which some pods wait for reserved machines."""
        self._asked: Final = tuple(
            tuple(column.nonzero()[0].tolist()) for column in compiled.requests.T
        )
        self.opener: Final = Opener(self)
        """Finds the claims to open next."""
        self._grower: Final = Grower(self)
        self._tables: Final = dict[tuple[int, tuple[Pin, ...]], _Table]()
        self._loose: Final = dict[int, dict[int, tuple[int, ...]]]()
        self._present: Final = _present_volumes(compiled)

    def _weights(self, profile: Profile) -> NDArray[np.float64]:
        if profile.weights is not None:
            return profile.weights
        weights = 1.0 / np.maximum(self.demand, 1)
        for line, name in enumerate(self.compiled.resources):
            if is_attach_resource(name):
                weights[line] = 0.0
        return weights

    def steps(self) -> Generator[int, None, None]:
        """Place every class, then again those that may have waited for others."""
        order = self.profile.order or range(len(self.compiled.classes))
        counts = [len(pod_class.members) for pod_class in self.compiled.classes]
        if self.profile.mix:
            if self.compiled.reservations.capacity:
                yield from self._reserve_steps(order, counts)
            for opening in self.profile.mix:
                self.opener.open_empty(opening)
        last = frozenset(index for group in self.profile.tail for index in group)
        yield from self._each_steps([index for index in order if index not in last], counts)
        for group in self.profile.tail:
            if not self._halt.requested:
                yield from tail_steps(self, group, counts)
        yield from self._each_steps([index for index in order if index in last], counts)
        yield from self._again_steps(more_room=bool(self.left) and self.opener.close_empty())
        self.holdings.settle()

    def _each_steps(self, order: Iterable[int], counts: list[int]) -> Generator[int, None, None]:
        for index in order:
            if self._halt.requested:
                return
            self.unreached.discard(index)
            left = 0
            if counts[index]:
                left = yield from self._place_class(index, counts[index])
            if left:
                self.left[index] = left
            self.demand[:] -= self.compiled.requests[:, index] * counts[index]
            yield 1 + self.nodes.count // 1000

    def _again_steps(self, *, more_room: bool) -> Generator[int, None, None]:
        """Try again those that may have waited for others, until that helps no more.

        At first all that are left, if there is `more_room` within limits than there was.
        """
        for number in range(_MOST_ROUNDS):
            waiting = [
                i
                for i in self.left
                if (more_room and not number)
                or i in self.deferred
                or any(t.host or t.zonal for t in self.compiled.ties[i])
            ]
            before = sum(self.left[index] for index in waiting)
            if self._halt.requested:
                return
            for index in waiting:
                left = yield from self._place_class(index, self.left[index])
                if left:
                    self.left[index] = left
                else:
                    del self.left[index]
                yield 1
            if sum(self.left.get(index, 0) for index in waiting) == before:
                return

    def _reserve_steps(self, order: Iterable[int], counts: list[int]) -> Generator[int, None, None]:
        """Use what is paid for already, before a mix of others is bought; lowers `counts`."""
        for index in order:
            if self._halt.requested:
                return
            if self.compiled.classes[index].blocked is not None:
                continue
            task = self.task(index, 0)
            if not self.holdings.are_wanted(task.ask, task.request):
                continue
            placed = yield from self._put_class(replace(task, reserved_only=True), counts[index])
            self.took(index, placed, counts)
            yield 1

    def took(self, index: int, placed: int, counts: list[int]) -> None:
        """Note that pods of a class are placed that the order has not come to yet."""
        counts[index] -= placed
        self.demand[:] -= self.compiled.requests[:, index] * placed

    def _place_class(self, index: int, left: int) -> Generator[int, None, int]:
        """Place pods of a class, rung after rung; return how many are left."""
        pod_class = self.compiled.classes[index]
        if pod_class.blocked is not None:
            return left
        self.deferred.pop(index, None)
        for rung in range(len(pod_class.rungs)):
            left -= yield from self._put_class(self.task(index, rung), left)
            if not left or index in self.deferred:
                break
            yield 1
        return left

    def task(self, index: int, rung: int) -> Task:
        """Return what placing a class at one rung is about."""
        pod_class = self.compiled.classes[index]
        return Task(
            index=index,
            pod_class=pod_class,
            rung=pod_class.rungs[rung],
            ties=self.compiled.ties[index][rung],
            request=self.compiled.requests[:, index],
            asked=self._asked[index],
        )

    def _put_class(self, task: Task, left: int) -> Generator[int, None, int]:
        """Put pods of a class where one rung lets them; return how many found a place."""
        if task.ties.zonal:
            return (yield from spread_steps(self, task, left))
        return (yield from self.put_steps(task, left, self.pins(task)))

    def rest(self) -> Amounts:
        """Return what still waits and will not go where there is room already, per resource."""
        planned = self.nodes.free[:, self.nodes.existing :]
        room = np.maximum(planned, 0).sum(axis=1)
        return np.maximum(self.demand - (_LIKELY_FILLED * room).astype(np.int64), 0)

    def pins(self, task: Task, domains: tuple[Pin, ...] = ()) -> tuple[Pin, ...]:
        """Complete pins by those of the axes on which a class is only counted."""
        counted = task.ties.counted_axes
        if not counted:
            return domains
        axes = self.compiled.axes
        soft = (Pin(axis, tuple(range(len(axes[axis].names))), soft=True) for axis in counted)
        return (*domains, *soft)

    def put_steps(self, task: Task, left: int, pins: tuple[Pin, ...]) -> Generator[int, None, int]:
        """Put up to `left` pods on nodes that pins allow; return how many found a place."""
        caps = self.counts.host_caps(task.ties, self.nodes.count)
        if caps.first:
            return (yield from self._put_together_steps(task, left, pins, caps))
        placed = self._fill(task, left, pins, caps)
        if placed < left and caps.new:
            placed += yield from self._open_steps(task, left - placed, pins, caps.new)
        return placed

    def _put_together_steps(
        self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps
    ) -> Generator[int, None, int]:
        """Put pods that want to be on one node, and are the first there, where most of them go."""
        columns, rooms = self._rooms(task, left, pins, caps)
        enough = columns[rooms >= left]
        if len(enough):
            self._place(task, enough[:1], _one(left), pins)
            return left
        best = int(rooms.argmax()) if len(columns) else -1
        most = int(rooms[best]) if best >= 0 else 0
        opening = self.opener.find(task, left, pins, caps.new, together=True)
        if opening is not None and min(opening.pods, left) > most:
            yield 1
            return self._execute(task, opening, min(opening.pods, left), pins, count=1)
        if not most:
            return 0
        self._place(task, columns[best : best + 1], rooms[best : best + 1], pins)
        return most

    # -- open nodes ----------------------------------------------------------------------------

    def fill(self, task: Task, left: int) -> int:
        """Put as many pods as go on open nodes, wherever; return how many went."""
        caps = self.counts.host_caps(task.ties, self.nodes.count)
        return self._fill(task, left, self.pins(task), caps)

    def fill_there(
        self, task: Task, left: int, pins: tuple[Pin, ...], domains: Mapping[int, DomainCaps]
    ) -> int:
        """Put pods on the first node that is there and takes some; return how many went.

        No more than the domains of the node take now (by axis).
        """
        nodes = self.nodes
        caps = self.counts.host_caps(task.ties, nodes.count)
        if not nodes.existing or caps.first:
            return 0
        columns, rooms = self._rooms(task, left, pins, caps)
        if not len(columns) or int(columns[0]) >= nodes.existing:
            return 0
        met = int(self._table(task.ask, pins).met[nodes.signature[columns[0]]])
        most = min(left, int(rooms[0]))
        for axis, of_axis in domains.items():
            domain = self.compiled.signatures.domain(axis, met)
            most = min(most, int(of_axis.caps[domain]) if domain >= 0 else 0)
        if most > 0:
            self._place(task, columns[:1], _one(most), pins)
        return most

    def _fill(self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps) -> int:
        """Put as many pods as go on open nodes; return how many went."""
        columns, rooms = self._rooms(task, left, pins, caps)
        if not len(columns):
            return 0
        counts = _dealt(rooms, left)
        self._place(task, columns[: len(counts)], counts, pins)
        return int(counts.sum())

    def _rooms(
        self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps
    ) -> tuple[Columns, Amounts]:
        """Return the nodes that take pods, best first, and how many each takes."""
        nodes = self.nodes
        none = np.empty(0, dtype=np.intp)
        if not nodes.count:
            return none, np.empty(0, dtype=np.int64)
        table = self._table(task.ask, pins)
        free, request = nodes.free, task.request
        first, *others = task.asked
        able = free[first] >= request[first]
        for line in others:
            able &= free[line] >= request[line]
        if table.refuses:
            able &= table.good[nodes.signature]
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        if task.pod_class.shared_volumes and len(columns):
            columns = self._attachable(task, columns)
        if not len(columns):
            return none, np.empty(0, dtype=np.int64)
        if self.profile.tight or not table.uneven:
            columns, rooms = self._exact_rooms(task, table, columns, caps)
            if self.profile.tight and len(columns) > 1:
                columns, rooms = self._ranked(columns, rooms, left)
            return columns, rooms
        return self._first_rooms(task, table, columns, caps, left)

    def _first_rooms(
        self, task: Task, table: _Table, columns: Columns, caps: HostCaps, left: int
    ) -> tuple[Columns, Amounts]:
        """Look at nodes in their order until enough room is found."""
        parts: list[tuple[Columns, Amounts]] = []
        start, size, total = 0, _FIRST_LOOK, 0
        while start < len(columns) and total < left:
            part = self._exact_rooms(task, table, columns[start : start + size], caps)
            parts.append(part)
            total += int(part[1].sum())
            start, size = start + size, size * 4
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([c for c, _ in parts]), np.concatenate([r for _, r in parts])

    def _exact_rooms(
        self, task: Task, table: _Table, columns: Columns, caps: HostCaps
    ) -> tuple[Columns, Amounts]:
        """Return how many pods each of some nodes takes; those that take none are left out."""
        free, request = self.nodes.free, task.request
        first, *others = task.asked
        rooms = free[first, columns] // request[first]
        for line in others:
            np.minimum(rooms, free[line, columns] // request[line], out=rooms)
        if caps.open is not None:
            np.minimum(rooms, caps.open[columns], out=rooms)
        if task.ask.host_ports:
            np.minimum(rooms, 1, out=rooms)
        if table.uneven and self._correct(task, table, columns, rooms):
            kept = rooms > 0
            columns, rooms = columns[kept], rooms[kept]
        return columns, rooms

    def _ranked(self, columns: Columns, rooms: Amounts, left: int) -> tuple[Columns, Amounts]:
        """Order nodes: those that are there as they come, then planned ones, the fullest first."""
        start = int(np.count_nonzero(columns < self.nodes.existing))
        if start and int(rooms[:start].sum()) >= left:
            return columns[:start], rooms[:start]
        planned = columns[start:]
        worth = self.nodes.worth[planned]
        if left == 1 and not start:
            best = int(worth.argmin())
            return columns[best : best + 1], rooms[best : best + 1]
        order = np.argsort(worth, kind="stable")
        if not start:
            return columns[order], rooms[order]
        order = np.concatenate((np.arange(start), order + start))
        return columns[order], rooms[order]

    def _table(self, ask: Ask, pins: tuple[Pin, ...]) -> _Table:
        """Return what every signature in use becomes."""
        key = (ask.index, pins)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table()
        used = self.nodes.signatures_in_use
        if table.done < len(used):
            signatures = self.compiled.signatures
            fresh = used[table.done :]
            table.reserve(max(fresh))
            for number in fresh:
                met = table.met[number] = signatures.meet(number, ask, pins)
                if met == NO_MATCH:
                    table.refuses = True
                else:
                    table.good[number] = True
                    changes = met != number
                    table.changes |= changes
                    if signatures.is_claim(number):
                        table.uneven |= changes or signatures.claim(met).is_ragged
            table.done = len(used)
        return table

    def _correct(self, task: Task, table: _Table, columns: Columns, rooms: Amounts) -> bool:
        """Make rooms exact where the largest amounts alone do not tell; say whether any changed."""
        nodes, signatures = self.nodes, self.compiled.signatures
        start = int(np.count_nonzero(columns < nodes.existing))
        planned, changed_any = columns[start:], False
        numbers = nodes.signature[planned]
        for number in sorted(set(numbers.tolist())):
            met = int(table.met[number])
            claim = signatures.claim(met)
            changed = met != number
            if not changed and not claim.is_ragged:
                continue
            changed_any = True
            places = (numbers == number).nonzero()[0] + start
            those = columns[places]
            is_open = nodes.row[those] == NO_ROW
            if changed:
                measured = places[~is_open]
                refused = self._refused_rows(signatures.claim(number), claim)
                rooms[measured[refused[nodes.row[columns[measured]]]]] = 0
            opened = places[is_open]
            exact = claim.rooms(nodes.used[:, columns[opened]], task.request)
            rooms[opened] = np.minimum(rooms[opened], exact)
        return changed_any

    @staticmethod
    def _refused_rows(before: ClaimSignature, after: ClaimSignature) -> NDArray[np.bool_]:
        """Return the rows that pods must not join: impossible with them, or much dearer."""
        limit = before.prices_and_groups[0] * _TOLERATED_RISE
        return ~after.admissible_mask | (after.prices_and_groups[0] > limit)

    def _attachable(self, task: Task, columns: Columns) -> Columns:
        """Keep the nodes that have, or can still attach, the volumes that pods share."""
        good = np.ones(len(columns), dtype=np.bool_)
        needed: dict[int, Amounts] = {}
        for resource, claim in task.pod_class.shared_volumes:
            line = self.compiled.resources.index(resource)
            present = self._present.get(claim)
            absent = np.ones(len(columns), dtype=np.int64)
            if present is not None:
                there = columns < len(present)
                absent[there] -= present[columns[there]]
            needed[line] = needed.get(line, 0) + absent
        for line, count in needed.items():
            spare = self.nodes.free[line, columns] - task.request[line] >= count
            good &= spare | (task.request[line] + count == 0)  # attached, however many are
        return columns[good]

    def _attach(self, task: Task, columns: Columns) -> None:
        for resource, claim in task.pod_class.shared_volumes:
            line = self.compiled.resources.index(resource)
            present = self._present.get(claim)
            if present is None:
                present = np.zeros(self.nodes.existing, dtype=np.int64)
                self._present[claim] = present
            there = columns[columns < len(present)]
            self.nodes.take(line, there[present[there] == 0], 1)
            present[there] = 1

    # -- placing -------------------------------------------------------------------------------

    def put_on(self, task: Task, columns: Columns, counts: Amounts) -> None:
        """Put pods on nodes that have room for them."""
        self._place(task, columns, counts, self.pins(task))

    def _place(self, task: Task, columns: Columns, counts: Amounts, pins: tuple[Pin, ...]) -> None:
        """Put pods on nodes, and count them."""
        if task.pod_class.shared_volumes:
            self._attach(task, columns)
        self.nodes.place(task.index, columns, counts, task.request)
        table = self._table(task.ask, pins)
        if table.changes:
            self._become(columns, table.met)
        self.holdings.keep(columns)
        self._count(task, columns, counts)

    def _count(self, task: Task, columns: Columns, counts: Amounts) -> None:
        if not task.pod_class.counted:
            return
        if self._loose and task.rung.owned:
            self._tie(task, columns)
        self.counts.record(
            task.pod_class.counted,
            columns,
            counts,
            self.nodes,
            self._loose,
        )

    def _tie(self, task: Task, columns: Columns) -> None:
        """Take a domain for known once pods are there that were put for it."""
        axes = {g.key for g in task.rung.owned if g.kind is Kind.SPREAD or g.kind is Kind.AFFINITY}
        for column in columns.tolist():
            free = self._loose.get(column)
            if free is None:
                continue
            for axis in [axis for axis in free if self.compiled.axes[axis].key in axes]:
                del free[axis]
            if not free:
                del self._loose[column]

    def _become(self, columns: Columns, met: Columns) -> None:
        """Give nodes the signature that they have with the pods that joined."""
        nodes, signatures = self.nodes, self.compiled.signatures
        before = nodes.signature[columns]
        changed = met[before] != before
        if not changed.any():
            return
        columns, before = columns[changed], before[changed]
        for number in sorted(set(before.tolist())):
            after = int(met[number])
            those = columns[before == number]
            nodes.become(those[those < nodes.existing], after, None)
            planned = those[those >= nodes.existing]
            if len(planned):
                open_ones = nodes.row[planned] == NO_ROW
                nodes.become(planned[~open_ones], after, None)
                nodes.become(planned[open_ones], after, signatures.claim(after).largest)

    # -- new claims ----------------------------------------------------------------------------

    def _open_steps(
        self, task: Task, left: int, pins: tuple[Pin, ...], cap: int
    ) -> Generator[int, None, int]:
        """Open claims for pods; return how many went there."""
        placed = 0
        while placed < left:
            opening = self.opener.find(task, left - placed, pins, cap)
            grown = self._grow(task, left - placed, pins, opening.score if opening else inf)
            if not grown and opening is None:
                break
            placed += grown
            if opening is not None and placed < left and not grown:
                placed += self._execute(task, opening, left - placed, pins, count=opening.count)
            yield 1
        return placed

    def _grow(self, task: Task, left: int, pins: tuple[Pin, ...], most: float) -> int:
        """Enlarge planned claims for pods, for less than `most` for what it is worth."""
        nodes = self.nodes
        if self.profile.measure is not Measure.DEMAND or task.pod_class.shared_volumes:
            return 0
        table, caps = self._table(task.ask, pins), self.counts.host_caps(task.ties, nodes.count)
        able = table.good[nodes.signature] & (nodes.row != NO_ROW)
        able[: nodes.existing] = False
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        met = table.met[nodes.signature[columns]]
        growth = self._grower.find(task, columns, met, caps.open, most) if len(columns) else None
        if growth is None:
            return 0
        counts = _dealt(growth.rooms, left)
        columns = growth.columns[: len(counts)]
        nodes.measure(columns, growth.row, growth.limit)
        self._place(task, columns, counts, pins)
        return int(counts.sum())

    def _execute(
        self, task: Task, opening: Opening, left: int, pins: tuple[Pin, ...], *, count: int
    ) -> int:
        count = min(count, -(-left // opening.pods))
        columns = self.nodes.open(
            count, signature=opening.signature, limit=opening.limit, row=opening.row
        )
        self.holdings.take(columns, opening.reservations)
        if self.profile.late:
            self._loosen(columns, opening, pins)
        counts = np.full(count, opening.pods, dtype=np.int64)
        counts[-1] = min(opening.pods, left - opening.pods * (count - 1))
        self.nodes.place(task.index, columns, counts, task.request)
        self.holdings.keep(columns)
        self._count(task, columns, counts)
        self.opener.charge(opening, count)
        return int(counts.sum())

    def surely_opens(self, task: Task, left: int, pins: tuple[Pin, ...]) -> bool:
        """Whether there are new nodes for all that is left of a class where pins allow."""
        caps = self.counts.host_caps(task.ties, 0)
        return caps.new > 0 and not caps.first and self.opener.surely_opens(task, left, pins)

    def _loosen(self, columns: Columns, opening: Opening, pins: tuple[Pin, ...]) -> None:
        """Remember the domains that a claim could be in, although it has one for our counts."""
        signatures = self.compiled.signatures
        free = {
            pin.axis: pin.domains
            for pin in pins
            if len(pin.domains) > 1 and signatures.domain(pin.axis, opening.asked) == FLOATING
        }
        for column in columns.tolist() if free else ():
            self._loose[column] = dict(free)


def _dealt(rooms: Amounts, left: int) -> Amounts:
    """Return how many of the pods left each of the first nodes gets, which are filled in turn."""
    if int(rooms[0]) >= left:
        return _one(left)
    total = np.cumsum(rooms)
    counts = rooms[: int(np.searchsorted(total, left)) + 1].copy()
    counts[-1] -= max(int(total[len(counts) - 1]) - left, 0)
    return counts


def _one(count: int) -> Amounts:
    return np.array([count], dtype=np.int64)


class _Table:
    """What each signature becomes when pods join, by number.

    `good` are those that take the pods at all (`refuses`: not all do). `changes`: some become
    another one; `uneven`: the rooms of some claims need correction.
    """

    __slots__ = ("changes", "done", "good", "met", "refuses", "uneven")

    def __init__(self) -> None:
        self.met: Columns = np.full(16, _UNKNOWN, dtype=np.intp)
        self.good: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self.done = 0
        self.refuses = False
        self.changes = False
        self.uneven = False

    def reserve(self, number: int) -> None:
        """Make room for a signature."""
        if number >= len(self.met):
            extra = max(number + 1, 2 * len(self.met)) - len(self.met)
            self.met = np.pad(self.met, (0, extra), constant_values=_UNKNOWN)
            self.good = np.pad(self.good, (0, extra))


def _present_volumes(compiled: CompiledProblem) -> dict[str, Amounts]:
    """Say on which existing nodes the volumes are that pods share."""
    present: dict[str, Amounts] = {}
    shared = {claim for c in compiled.classes for _, claim in c.shared_volumes}
    if shared:
        for column, node in enumerate(compiled.nodes):
            for claims in node.volumes.values():
                for claim in claims & shared:
                    row = present.setdefault(claim, np.zeros(len(compiled.nodes), dtype=np.int64))
                    row[column] = 1
    return present
