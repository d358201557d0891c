"""Put classes of pods on nodes: open ones first, then new claims of the first pool that can.

One engine makes every kind of plan. What differs is the `Profile`: whether a new claim stays open
to every type that can still hold it (first-fit), or is measured by one row of the catalogue that
is chosen by what its room costs; and which open nodes are filled first.

A class is placed as a whole wherever nothing changes from pod to pod; where its own topology
constraints change with every pod, domain by domain in the order of their levels (`spread`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from karpenter_core.scheduling.placement.deciding import decide_counted
from karpenter_core.scheduling.placement.plan_state import PlanState
from karpenter_core.scheduling.placement.putting import PodPlacer
from karpenter_core.scheduling.placement.spread import spread_steps
from karpenter_core.scheduling.placement.tail import tail_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from karpenter_core.scheduling.compiled.problem import CompiledProblem, Task
    from karpenter_core.scheduling.placement.profile import Profile

__all__ = ["Engine", "Halt"]

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
    """Orders the making of one plan; afterwards it shows what came of it."""

    def __init__(
        self, compiled: CompiledProblem, profile: Profile, halt: Halt | None = None
    ) -> None:
        self._halt: Final = halt or Halt()
        self._state: Final = PlanState(compiled, profile)
        self._placer: Final = PodPlacer(self._state)
        self.unreached: Final = set(range(len(compiled.classes)))
        """Classes that were not tried, because the pass was to end."""
        self.left: Final = dict[int, int]()
        """Pods that found no place, by class."""
        self.compiled: Final = compiled
        self.nodes: Final = self._state.nodes
        self.counts: Final = self._state.counts
        self.remaining: Final = self._state.remaining
        self.holdings: Final = self._state.holdings
        self.deferred: Final = self._state.deferred

    @property
    def nodes_left(self) -> int | None:
        """How many nodes all pools may get together; None is any number."""
        return self._state.nodes_left

    def steps(self) -> Generator[int, None, None]:
        """Place every class, then again those that may have waited for others."""
        order = self._state.profile.order or range(len(self.compiled.classes))
        if self._state.profile.mix:
            if self.compiled.reservations.capacity:
                yield from self._reserve_steps(order)
            for opening in self._state.profile.mix:
                self._placer.opener.open_empty(opening)
        last = frozenset(index for group in self._state.profile.tail for index in group)
        yield from self._each_steps([index for index in order if index not in last])
        for group in self._state.profile.tail:
            if not self._halt.requested:
                yield from tail_steps(self._placer, group)
        yield from self._each_steps([index for index in order if index in last])
        yield from self._again_steps(
            more_room=bool(self.left) and self._placer.opener.close_empty()
        )
        self.holdings.settle()

    def _each_steps(self, order: Iterable[int]) -> Generator[int, None, None]:
        for index in order:
            if self._halt.requested:
                return
            self.unreached.discard(index)
            count = self._state.waiting.item(index)
            if count:
                left = yield from self._place_class(index, count)
                if left:
                    self.left[index] = left
                self._state.waiting[index] = 0
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
            decide_counted(self._state, waiting)
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
            left = self._state.waiting.item(index)
            placed = yield from self._put_class(replace(task, reserved_only=True), left)
            self._state.waiting[index] -= placed
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
            return (yield from spread_steps(self._placer, task, left))
        return (yield from self._placer.put_steps(task, left, self._state.pins(task)))
