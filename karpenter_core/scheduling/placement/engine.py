"""Places pod classes: first on open nodes, then on new claims.

One engine makes every kind of plan. The `PlanProfile` decides whether a new claim stays open to
every type that can still hold it (first-fit), or is measured by one row of the catalogue that is
chosen by the price of its capacity; and which open nodes are filled first.

A class is placed as a whole wherever nothing changes from pod to pod; where its own topology
constraints change with every pod, domain by domain in the order of their levels (`spread`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from karpenter_core.scheduling.placement.counted_claims import decide_counted_claims
from karpenter_core.scheduling.placement.free_group_placement import place_free_group_steps
from karpenter_core.scheduling.placement.plan_state import PlanState
from karpenter_core.scheduling.placement.pod_placer import PodPlacer
from karpenter_core.scheduling.placement.recorded_placement import place_recorded_steps
from karpenter_core.scheduling.placement.spread_placement import spread_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from karpenter_core.scheduling.arrays import Floats
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.placement.plan_profile import PlanProfile, RecordedPlacement

__all__ = ["HaltRequest", "PlacementEngine"]

_MAX_ROUNDS: Final = 20
"""Most rounds over classes that wait for others; longer chains of affinities do not occur."""


@final
class HaltRequest:
    """Asks a pass to end: the pods placed by then are the plan."""

    __slots__ = ("requested",)

    def __init__(self) -> None:
        self.requested = False


@final
class PlacementEngine:
    """Makes one plan; afterwards it holds the result."""

    def __init__(
        self, compiled: CompiledProblem, profile: PlanProfile, halt: HaltRequest | None = None
    ) -> None:
        self._halt: Final = halt or HaltRequest()
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
        self.devices: Final = self._state.devices

    @property
    def profile(self) -> PlanProfile:
        """The parameters of the plan."""
        return self._state.profile

    @property
    def fee_per_hour(self) -> float:
        """The fee per node that counts when nodes are chosen."""
        return self._state.fee_per_hour

    @property
    def weights(self) -> Floats:
        """Worth of a unit of each resource: resources."""
        return self._state.weights

    @property
    def nodes_left(self) -> int | None:
        """Number of nodes that all pools together may still get; None is any number."""
        return self._state.nodes_left

    def steps(self) -> Generator[int, None, None]:
        """Place every class, then again those that may have waited for others."""
        recorded = self._state.profile.recorded
        if recorded is not None:
            yield from self._recorded_steps(recorded)
            return
        order = self._state.profile.order or range(len(self.compiled.classes))
        if self._state.profile.mix:
            if self.compiled.reservations.capacity:
                yield from self._reserve_steps(order)
            for opening in self._state.profile.mix:
                self._placer.opener.open_empty(opening)
        classes = self.compiled.classes
        giving_way = [index for index in order if classes[index].shape.gives_way]
        if giving_way:
            yield from self._all_steps([i for i in order if not classes[i].shape.gives_way])
        yield from self._all_steps(giving_way or order)
        self.holdings.finalize()

    def _recorded_steps(self, recorded: RecordedPlacement) -> Generator[int, None, None]:
        """Repeat a placement; a class is unreached until all of it is."""
        contents = self._state.contents
        for planned in recorded.nodes:
            columns = self._placer.opener.open_empty(planned.opening)
            if columns and contents is not None:
                contents.plan(columns, planned.content)
        for entry in recorded.entries:
            if self._halt.requested or not (
                yield from place_recorded_steps(self._placer, recorded, entry)
            ):
                return
            yield 1 + self.nodes.count // 1000
        self.unreached.clear()

    def _all_steps(self, order: Sequence[int]) -> Generator[int, None, None]:
        """Place these classes: those that mix freely last, then again those that may have waited."""
        chosen = frozenset(order)
        groups = [group for group in self._state.profile.free_groups if group[0] in chosen]
        last = frozenset(index for group in groups for index in group)
        yield from self._each_steps([index for index in order if index not in last])
        for group in groups:
            if not self._halt.requested:
                yield from place_free_group_steps(self._placer, group)
        yield from self._each_steps([index for index in order if index in last])
        left = not chosen.isdisjoint(self.left)
        more_room = left and self._placer.opener.close_empty()
        yield from self._retry_steps(chosen, more_room=more_room)

    def _each_steps(self, order: Iterable[int]) -> Generator[int, None, None]:
        for index in order:
            if self._halt.requested:
                return
            self.unreached.discard(index)
            count = self._state.waiting.item(index)
            if count:
                remaining = yield from self._place_class(index, count)
                if remaining:
                    self.left[index] = remaining
                self._state.waiting[index] = 0
            yield 1 + self.nodes.count // 1000

    def _retry_steps(self, among: frozenset[int], *, more_room: bool) -> Generator[int, None, None]:
        """Try again those that may have waited for others, until that helps no more.

        At first all that are left, if there is `more_room` within limits than there was.
        """
        for number in range(_MAX_ROUNDS):
            waiting = [
                i
                for i in self.left
                if i in among
                and (
                    (more_room and not number)
                    or i in self.deferred
                    or any(t.host or t.zonal for t in self.compiled.topologies[i])
                )
            ]
            before = sum(self.left[index] for index in waiting)
            if self._halt.requested:
                return
            decide_counted_claims(self._state, waiting)
            for index in waiting:
                remaining = yield from self._place_class(index, self.left[index])
                if remaining:
                    self.left[index] = remaining
                else:
                    del self.left[index]
                yield 1
            if sum(self.left.get(index, 0) for index in waiting) == before:
                return

    def _reserve_steps(self, order: Iterable[int]) -> Generator[int, None, None]:
        """Use reserved capacity before a mix of other offerings is bought."""
        for index in order:
            if self._halt.requested:
                return
            if self.compiled.classes[index].blocked is not None:
                continue
            task = self.compiled.placement_task(index, 0)
            if not self.holdings.may_use_reservations(task.node_constraints, task.request):
                continue
            remaining = self._state.waiting.item(index)
            placed = yield from self._put_class(replace(task, reserved_only=True), remaining)
            self._state.waiting[index] -= placed
            yield 1

    def _place_class(self, index: int, remaining: int) -> Generator[int, None, int]:
        """Place pods of a class, one relaxation step after the other; return how many are left."""
        pod_class = self.compiled.classes[index]
        if pod_class.blocked is not None:
            return remaining
        self.deferred.pop(index, None)
        for relaxation_step in range(len(pod_class.relaxation_steps)):
            remaining -= yield from self._put_class(
                self.compiled.placement_task(index, relaxation_step), remaining
            )
            if not remaining or index in self.deferred:
                break
            yield 1
        return remaining

    def _put_class(self, task: PlacementTask, remaining: int) -> Generator[int, None, int]:
        """Place pods of a class at one relaxation step; return how many found a place."""
        if task.topology.zonal:
            return (yield from spread_steps(self._placer, task, remaining))
        return (yield from self._placer.place_steps(task, remaining, self._state.pins(task)))
