"""Put classes of pods on nodes: open ones first, then new claims of the first pool that can.

One engine makes every kind of plan. What differs is the `Profile`: whether a new claim stays open
to every type that can still hold it (first-fit), or is measured by one row of the catalogue that
is chosen by what its room costs; and which open nodes are filled first.

A class is placed as a whole wherever nothing changes from pod to pod; where its own topology
constraints change with every pod, domain by domain in the order of their levels (`spread`).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np
from msgspec.structs import replace

from karpenter_core.api.labels import NODES
from karpenter_core.scheduling.columns import NO_ROW, OpenNodes
from karpenter_core.scheduling.counts import Counts
from karpenter_core.scheduling.deciding import decide_counted
from karpenter_core.scheduling.growing import Grower
from karpenter_core.scheduling.holdings import Deferral, Holdings
from karpenter_core.scheduling.opening import Measure, Opener
from karpenter_core.scheduling.rooms import Rooms, dealt
from karpenter_core.scheduling.shared_volumes import SharedVolumes
from karpenter_core.scheduling.signatures import FLOATING, Pin
from karpenter_core.scheduling.spread import spread_steps
from karpenter_core.scheduling.tail import tail_steps
from karpenter_core.scheduling.topology import Kind
from karpenter_core.scheduling.volumes import is_attach_resource

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from karpenter_core.scheduling.arrays import Amounts, Floats
    from karpenter_core.scheduling.compiled import CompiledProblem, Task
    from karpenter_core.scheduling.counts import HostCaps
    from karpenter_core.scheduling.opening import Opening, Profile
    from karpenter_core.scheduling.rooms import Becoming

__all__ = ["Engine", "Halt"]

_LIKELY_FILLED: Final = 0.95
"""The part of the room on open claims that later pods will find use for."""

_MOST_ROUNDS: Final = 20
"""Rounds over classes that wait for others; a chain of affinities that long is none."""


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
        self.waiting: Final = np.array([len(c.members) for c in compiled.classes], dtype=np.int64)
        """How many pods of each class were not tried yet."""
        self.weights: Final = self._weights(profile)
        self.nodes: Final = OpenNodes(
            compiled.node_free,
            compiled.node_signatures,
            weights=self.weights if profile.tight else None,
        )
        self.counts: Final = Counts(compiled)
        self.remaining: Final = tuple(dict(pool.remaining) for pool in compiled.pools)
        """What is left of each pool's limits; of nodes, also of what all pools may have together."""
        self._own_nodes: Final = [pool.get(NODES) for pool in self.remaining]
        self.nodes_left = compiled.max_new_nodes
        """How many nodes all pools may get together; None is any number."""
        self._level_nodes(range(len(self.remaining)))
        self.left: Final = dict[int, int]()
        """Pods that found no place, by class."""
        self.holdings: Final = Holdings(
            compiled, self.nodes, pessimistic=profile.measure is Measure.NONE
        )
        self.deferred: Final = dict[int, Deferral]()
        """Classes of which some pods wait for reserved machines."""
        self.opener: Final = Opener(self)
        """Finds the claims to open next."""
        self._grower: Final = Grower(self)
        self._volumes: Final = SharedVolumes(compiled, self.nodes)
        self.rooms: Final = Rooms(compiled, self.nodes, self._volumes, tight=profile.tight)
        self._soft: Final = dict[tuple[int, ...], tuple[Pin, ...]]()
        self._loose: Final = dict[int, dict[int, tuple[int, ...]]]()

    def count_nodes(self, pool: int, count: int) -> None:
        """Count new nodes against what their pool may have, and what all may have together."""
        own = self._own_nodes[pool]
        if own is not None:
            self._own_nodes[pool] = own - count
        if self.nodes_left is not None:
            self.nodes_left -= count
        self._level_nodes((pool,) if self.nodes_left is None else range(len(self.remaining)))

    def _level_nodes(self, pools: Iterable[int]) -> None:
        for number in pools:
            bounds = [n for n in (self._own_nodes[number], self.nodes_left) if n is not None]
            if bounds:
                self.remaining[number][NODES] = min(bounds)

    def _weights(self, profile: Profile) -> Floats:
        if profile.weights is not None:
            return profile.weights
        weights = 1.0 / np.maximum(self._demand(), 1)
        for line, name in enumerate(self.compiled.resources):
            if is_attach_resource(name):
                weights[line] = 0.0
        return weights

    def _demand(self) -> Amounts:
        """Return what the pods ask for that were not tried yet, per resource."""
        demand: Amounts = self.compiled.requests @ self.waiting
        return demand

    def steps(self) -> Generator[int, None, None]:
        """Place every class, then again those that may have waited for others."""
        order = self.profile.order or range(len(self.compiled.classes))
        if self.profile.mix:
            if self.compiled.reservations.capacity:
                yield from self._reserve_steps(order)
            for opening in self.profile.mix:
                self.opener.open_empty(opening)
        last = frozenset(index for group in self.profile.tail for index in group)
        yield from self._each_steps([index for index in order if index not in last])
        for group in self.profile.tail:
            if not self._halt.requested:
                yield from tail_steps(self, group)
        yield from self._each_steps([index for index in order if index in last])
        yield from self._again_steps(more_room=bool(self.left) and self.opener.close_empty())
        self.holdings.settle()

    def _each_steps(self, order: Iterable[int]) -> Generator[int, None, None]:
        for index in order:
            if self._halt.requested:
                return
            self.unreached.discard(index)
            count = self.waiting.item(index)
            if count:
                left = yield from self._place_class(index, count)
                if left:
                    self.left[index] = left
                self.waiting[index] = 0
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
            decide_counted(self, waiting)
            for index in waiting:
                left = yield from self._place_class(index, self.left[index])
                if left:
                    self.left[index] = left
                else:
                    del self.left[index]
                yield 1
            if sum(self.left.get(index, 0) for index in waiting) == before:
                return

    def _reserve_steps(self, order: Iterable[int]) -> Generator[int, None, None]:
        """Use what is paid for already, before a mix of others is bought."""
        for index in order:
            if self._halt.requested:
                return
            if self.compiled.classes[index].blocked is not None:
                continue
            task = self.compiled.task(index, 0)
            if not self.holdings.are_wanted(task.ask, task.request):
                continue
            left = self.waiting.item(index)
            placed = yield from self._put_class(replace(task, reserved_only=True), left)
            self.waiting[index] -= placed
            yield 1

    def _place_class(self, index: int, left: int) -> Generator[int, None, int]:
        """Place pods of a class, rung after rung; return how many are left."""
        pod_class = self.compiled.classes[index]
        if pod_class.blocked is not None:
            return left
        self.deferred.pop(index, None)
        for rung in range(len(pod_class.rungs)):
            left -= yield from self._put_class(self.compiled.task(index, rung), left)
            if not left or index in self.deferred:
                break
            yield 1
        return left

    def _put_class(self, task: Task, left: int) -> Generator[int, None, int]:
        """Put pods of a class where one rung lets them; return how many found a place."""
        if task.ties.zonal:
            return (yield from spread_steps(self, task, left))
        return (yield from self.put_steps(task, left, self.pins(task)))

    def rest(self) -> Amounts:
        """Return what still waits and will not go where there is room already, per resource."""
        planned = self.nodes.free[:, self.nodes.existing :]
        room = np.add.reduce(np.maximum(planned, 0), axis=1)
        return np.maximum(self._demand() - (_LIKELY_FILLED * room).astype(np.int64), 0)

    def pins(self, task: Task, domains: tuple[Pin, ...] = ()) -> tuple[Pin, ...]:
        """Complete pins by those of the axes on which a class is only counted."""
        counted = task.ties.counted_axes
        if not counted:
            return domains
        soft = self._soft.get(counted)
        if soft is None:
            axes = self.compiled.axes
            soft = self._soft[counted] = tuple(
                Pin(axis, tuple(range(len(axes[axis].names))), soft=True) for axis in counted
            )
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
        becoming = self.rooms.becoming(task.ask, pins)
        columns, rooms = self.rooms.every(task, becoming, caps)
        enough = columns[rooms >= left]
        if len(enough):
            self.put_on(task, [int(enough[0])], [left], becoming)
            return left
        best = int(rooms.argmax()) if len(columns) else -1
        most = int(rooms[best]) if best >= 0 else 0
        opening = self.opener.find(task, left, pins, caps.new, together=True)
        if opening is not None and min(opening.pods, left) > most:
            yield 1
            return self._execute(task, opening, min(opening.pods, left), pins, count=1)
        if not most:
            return 0
        self.put_on(task, [int(columns[best])], [most], becoming)
        return most

    # -- open nodes ----------------------------------------------------------------------------

    def fill(self, task: Task, left: int) -> int:
        """Put as many pods as go on open nodes, wherever; return how many went."""
        caps = self.counts.host_caps(task.ties, self.nodes.count)
        return self._fill(task, left, self.pins(task), caps)

    def _fill(self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps) -> int:
        """Put as many pods as go on open nodes; return how many went."""
        if not self.nodes.count:
            return 0
        becoming = self.rooms.becoming(task.ask, pins)
        columns, counts = self.rooms.first(task, left, becoming, caps)
        if columns:
            self.put_on(task, columns, counts, becoming)
        return sum(counts)

    def put_on(self, task: Task, columns: list[int], counts: list[int], becoming: Becoming) -> None:
        """Put pods on nodes that have room for them, which become what they are with these."""
        if task.pod_class.shared_volumes:
            self._volumes.attach(task, columns)
        self.nodes.place(task.index, columns, counts, task.request)
        if becoming.changes:
            self._become(columns, becoming)
        self.holdings.keep(columns)
        self._count(task, columns, counts)

    def _count(self, task: Task, columns: list[int], counts: list[int]) -> None:
        counted = task.pod_class.counted
        if counted:
            if self._loose and task.rung.owned:
                self._tie(task, columns)
            self.counts.record(counted, columns, counts, self.nodes, self._loose)

    def _tie(self, task: Task, columns: list[int]) -> None:
        """Take a domain for known once pods are there that were put for it."""
        axes = {g.key for g in task.rung.owned if g.kind is Kind.SPREAD or g.kind is Kind.AFFINITY}
        for column in columns:
            free = self._loose.get(column)
            if free is None:
                continue
            for axis in [axis for axis in free if self.compiled.axes[axis].key in axes]:
                del free[axis]
            if not free:
                del self._loose[column]

    def _become(self, columns: list[int], becoming: Becoming) -> None:
        """Give nodes the signature that they have with the pods that joined."""
        for column in columns:
            before = self.nodes.signature.item(column)
            after = becoming.met.item(before)
            if after != before:
                self.turn(column, after)

    def turn(self, column: int, signature: int) -> None:
        """Give a node another signature, and a claim that is open to all its rows their room."""
        nodes, limit = self.nodes, None
        if column >= nodes.existing and nodes.row.item(column) == NO_ROW:
            limit = self.compiled.signatures.claim(signature).largest
        nodes.become([column], signature, limit)

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
        becoming = self.rooms.becoming(task.ask, pins)
        caps = self.counts.host_caps(task.ties, nodes.count)
        able = becoming.good[nodes.signature] & (nodes.row != NO_ROW)
        able[: nodes.existing] = False
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        met = becoming.met[nodes.signature[columns]]
        growth = self._grower.find(task, columns, met, caps.open, most) if len(columns) else None
        if growth is None:
            return 0
        counts = dealt(growth.rooms, left)
        chosen: list[int] = growth.columns[: len(counts)].tolist()
        nodes.measure(chosen, growth.row, growth.limit)
        self.put_on(task, chosen, counts, becoming)
        return sum(counts)

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
        counts = [opening.pods] * count
        counts[-1] = min(opening.pods, left - opening.pods * (count - 1))
        self.nodes.place(task.index, columns, counts, task.request)
        self.holdings.keep(columns)
        self._count(task, columns, counts)
        self.opener.charge(opening, count)
        return sum(counts)

    def surely_opens(self, task: Task, left: int, pins: tuple[Pin, ...]) -> bool:
        """Whether there are new nodes for all that is left of a class where pins allow."""
        caps = self.counts.host_caps(task.ties, 0)
        return caps.new > 0 and not caps.first and self.opener.surely_opens(task, left, pins)

    def _loosen(self, columns: list[int], opening: Opening, pins: tuple[Pin, ...]) -> None:
        """Remember the domains that a claim could be in, although it has one for our counts."""
        signatures = self.compiled.signatures
        free = {
            pin.axis: pin.domains
            for pin in pins
            if len(pin.domains) > 1 and signatures.domain(pin.axis, opening.asked) == FLOATING
        }
        for column in columns if free else ():
            self._loose[column] = dict(free)
