"""Places pods of one class on open, enlarged and new nodes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.placement.claim_growth import ClaimGrower
from karpenter_core.scheduling.placement.claim_opening import ClaimOpener
from karpenter_core.scheduling.placement.node_fit import distribute
from karpenter_core.scheduling.placement.open_nodes import NO_ROW
from karpenter_core.scheduling.placement.plan_profile import RowMeasure

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.compiled.problem import PlacementTask
    from karpenter_core.scheduling.compiled.signatures import DomainPin
    from karpenter_core.scheduling.placement.plan_profile import ClaimOpening
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.topology_counts import HostCaps

__all__ = ["PodPlacer"]


@final
class PodPlacer:
    """Finds a place for pods of one class, and puts them there."""

    def __init__(self, state: PlanState) -> None:
        self.state: Final = state
        self.opener: Final = ClaimOpener(state)
        """Finds the claims to open next."""
        self._grower: Final = ClaimGrower(state)

    def place_steps(
        self, task: PlacementTask, left: int, pins: tuple[DomainPin, ...]
    ) -> Generator[int, None, int]:
        """Put up to `left` pods on nodes that pins allow; return how many found a place."""
        at_once = 1 if self.state.profile.fewest_first else left
        placed = 0
        while placed < left:
            here = yield from self._place_some_steps(task, min(at_once, left - placed), pins)
            placed += here
            if here < at_once:
                break
        return placed

    def _place_some_steps(
        self, task: PlacementTask, left: int, pins: tuple[DomainPin, ...]
    ) -> Generator[int, None, int]:
        caps = self.state.counts.host_caps(task.topology, self.state.nodes.count)
        if caps.first:
            return (yield from self._place_together_steps(task, left, pins, caps))
        placed = self.state.fill_where(task, left, pins, caps)
        if placed < left and caps.new:
            placed += yield from self._open_steps(task, left - placed, pins, caps.new)
        return placed

    def _place_together_steps(
        self, task: PlacementTask, remaining: int, pins: tuple[DomainPin, ...], caps: HostCaps
    ) -> Generator[int, None, int]:
        """Put pods that want to be on one node, and are the first there, where most of them go."""
        joined = self.state.node_fit.joined_signatures(task.node_constraints, pins)
        columns, fit_counts = self.state.node_fit.all_fitting(task, joined, caps)
        enough = columns[fit_counts >= remaining]
        if len(enough):
            self.state.place_on(task, [int(enough[0])], [remaining], joined)
            return remaining
        best = int(fit_counts.argmax()) if len(columns) else -1
        most = int(fit_counts[best]) if best >= 0 else 0
        opening = self.opener.find(task, remaining, pins, caps.new, together=True)
        if opening is not None and min(opening.pods, remaining) > most:
            yield 1
            return self._execute(task, opening, min(opening.pods, remaining), pins, count=1)
        if not most:
            return 0
        self.state.place_on(task, [int(columns[best])], [most], joined)
        return most

    def _open_steps(
        self, task: PlacementTask, remaining: int, pins: tuple[DomainPin, ...], cap: int
    ) -> Generator[int, None, int]:
        """Open claims for pods; return how many went there."""
        placed = 0
        while placed < remaining:
            opening = self.opener.find(task, remaining - placed, pins, cap)
            grown = self._grow(task, remaining - placed, pins, opening.score if opening else inf)
            if not grown and opening is None:
                break
            placed += grown
            if opening is not None and placed < remaining and not grown:
                placed += self._execute(
                    task, opening, remaining - placed, pins, count=opening.count
                )
            yield 1
        return placed

    def _grow(
        self, task: PlacementTask, remaining: int, pins: tuple[DomainPin, ...], most: float
    ) -> int:
        """Enlarge planned claims for pods, for less than `most` for what it is worth."""
        nodes = self.state.nodes
        if self.state.profile.measure is not RowMeasure.DEMAND or task.pod_class.shared_volumes:
            return 0
        joined = self.state.node_fit.joined_signatures(task.node_constraints, pins)
        caps = self.state.counts.host_caps(task.topology, nodes.count)
        able = joined.good[nodes.signature] & (nodes.row != NO_ROW)
        able[: nodes.existing] = False
        if caps.open is not None:
            able &= caps.open > 0
        columns = able.nonzero()[0]
        met = joined.met[nodes.signature[columns]]
        growth = self._grower.find(task, columns, met, caps.open, most) if len(columns) else None
        if growth is None:
            return 0
        counts = distribute(growth.fit_counts, remaining)
        chosen: list[int] = growth.columns[: len(counts)].tolist()
        nodes.set_row(chosen, growth.row, growth.limit)
        self.state.place_on(task, chosen, counts, joined)
        return sum(counts)

    def _execute(
        self,
        task: PlacementTask,
        opening: ClaimOpening,
        remaining: int,
        pins: tuple[DomainPin, ...],
        *,
        count: int,
    ) -> int:
        count = min(count, -(-remaining // opening.pods))
        columns = self.state.nodes.open(
            count, signature=opening.signature, limit=opening.limit, row=opening.row
        )
        self.state.holdings.take(columns, opening.reservations)
        if self.state.profile.late:
            self.state.remember_domains(columns, opening, pins)
        counts = [opening.pods] * count
        counts[-1] = min(opening.pods, remaining - opening.pods * (count - 1))
        self.state.nodes.place(task.index, columns, counts, task.request)
        if self.state.devices is not None:
            self.state.devices.take(task, columns)
        self.state.holdings.release_unusable(columns)
        self.state.count(task, columns, counts)
        self.opener.charge(opening, count)
        return sum(counts)

    def surely_opens(self, task: PlacementTask, left: int, pins: tuple[DomainPin, ...]) -> bool:
        """Whether there are new nodes for all that is left of a class where pins allow."""
        caps = self.state.counts.host_caps(task.topology, 0)
        return caps.new > 0 and not caps.first and self.opener.surely_opens(task, left, pins)
