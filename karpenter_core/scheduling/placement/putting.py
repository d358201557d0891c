"""Puts pods of one class where pins allow: on open nodes, on enlarged claims, on new ones."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.placement.columns import NO_ROW
from karpenter_core.scheduling.placement.growing import Grower
from karpenter_core.scheduling.placement.opening import Opener
from karpenter_core.scheduling.placement.profile import Measure
from karpenter_core.scheduling.placement.rooms import dealt

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.compiled.problem import Task
    from karpenter_core.scheduling.compiled.signatures import Pin
    from karpenter_core.scheduling.placement.counts import HostCaps
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.profile import Opening

__all__ = ["PodPlacer"]


@final
class PodPlacer:
    """Finds a place for pods of one class, and puts them there."""

    def __init__(self, state: PlanState) -> None:
        self.state: Final = state
        self.opener: Final = Opener(state)
        """Finds the claims to open next."""
        self._grower: Final = Grower(state)

    def put_steps(self, task: Task, left: int, pins: tuple[Pin, ...]) -> Generator[int, None, int]:
        """Put up to `left` pods on nodes that pins allow; return how many found a place."""
        caps = self.state.counts.host_caps(task.ties, self.state.nodes.count)
        if caps.first:
            return (yield from self._put_together_steps(task, left, pins, caps))
        placed = self.state.fill_where(task, left, pins, caps)
        if placed < left and caps.new:
            placed += yield from self._open_steps(task, left - placed, pins, caps.new)
        return placed

    def _put_together_steps(
        self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps
    ) -> Generator[int, None, int]:
        """Put pods that want to be on one node, and are the first there, where most of them go."""
        becoming = self.state.rooms.becoming(task.ask, pins)
        columns, rooms = self.state.rooms.every(task, becoming, caps)
        enough = columns[rooms >= left]
        if len(enough):
            self.state.put_on(task, [int(enough[0])], [left], becoming)
            return left
        best = int(rooms.argmax()) if len(columns) else -1
        most = int(rooms[best]) if best >= 0 else 0
        opening = self.opener.find(task, left, pins, caps.new, together=True)
        if opening is not None and min(opening.pods, left) > most:
            yield 1
            return self._execute(task, opening, min(opening.pods, left), pins, count=1)
        if not most:
            return 0
        self.state.put_on(task, [int(columns[best])], [most], becoming)
        return most

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
        nodes = self.state.nodes
        if self.state.profile.measure is not Measure.DEMAND or task.pod_class.shared_volumes:
            return 0
        becoming = self.state.rooms.becoming(task.ask, pins)
        caps = self.state.counts.host_caps(task.ties, nodes.count)
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
        self.state.put_on(task, chosen, counts, becoming)
        return sum(counts)

    def _execute(
        self, task: Task, opening: Opening, left: int, pins: tuple[Pin, ...], *, count: int
    ) -> int:
        count = min(count, -(-left // opening.pods))
        columns = self.state.nodes.open(
            count, signature=opening.signature, limit=opening.limit, row=opening.row
        )
        self.state.holdings.take(columns, opening.reservations)
        if self.state.profile.late:
            self.state.loosen(columns, opening, pins)
        counts = [opening.pods] * count
        counts[-1] = min(opening.pods, left - opening.pods * (count - 1))
        self.state.nodes.place(task.index, columns, counts, task.request)
        self.state.holdings.keep(columns)
        self.state.count(task, columns, counts)
        self.opener.charge(opening, count)
        return sum(counts)

    def surely_opens(self, task: Task, left: int, pins: tuple[Pin, ...]) -> bool:
        """Whether there are new nodes for all that is left of a class where pins allow."""
        caps = self.state.counts.host_caps(task.ties, 0)
        return caps.new > 0 and not caps.first and self.opener.surely_opens(task, left, pins)
