"""Answers one what-if: removes nodes, places their pods, gives a verdict."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, final

import numpy as np

from karpenter_core.scheduling.problem import PackingPolicy
from karpenter_core.scheduling.whatif.first_fit import FirstFitPlacement
from karpenter_core.scheduling.whatif.solver_run import run_first_fit, run_plans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import PlannedNodeClaim, PodVolumes
    from karpenter_core.scheduling.whatif.first_fit import ClassPods
    from karpenter_core.scheduling.whatif.overlay import ClusterOverlay
    from karpenter_core.scheduling.whatif.price_bounds import PriceBounds
    from karpenter_core.scheduling.whatif.solver_run import SolverRun

__all__ = ["WhatIfOutcome", "WhatIfQuestion", "WhatIfVerdict"]


class WhatIfOutcome(StrEnum):
    """The outcome of removing nodes."""

    FITS = "fits"
    """All pods find places on nodes that stay."""
    CLAIMS = "claims"
    """They do with the new claims."""
    LEFT = "left"
    """Some pods find no place at all."""
    TOO_MANY = "too-many"
    """It would take more new claims than allowed."""
    TOO_DEAR = "too-dear"
    """New claims would cost as much as the limit, or more."""


MAX_PLANNED_PAIRS: Final = 1000
"""Pods times nodes of the largest question for which, before a refusal, all plans are made."""

_POSSIBLE: Final = frozenset({WhatIfOutcome.FITS, WhatIfOutcome.CLAIMS})


class WhatIfPlan(Protocol):
    """The plan of the pods that need more than places on nodes."""

    @property
    def cost_per_hour(self) -> float:
        """The price of the new claims."""
        ...

    @property
    def left(self) -> tuple[PodView, ...]:
        """The pods without a place."""
        ...

    @property
    def sequence(self) -> tuple[str, ...]:
        """UIDs in the order of placing."""
        ...

    def moves(self) -> Sequence[object]:
        """Return what goes to nodes."""
        ...

    def planned(self) -> tuple[PlannedNodeClaim, ...]:
        """Return the new claims."""
        ...


@final
class WhatIfVerdict:
    """The verdict on removing nodes; `removed` are their names, as given.

    `placements` are the pods that go to nodes that stay, by name, in the order of placing;
    `claims` hold the others, at `cost_per_hour`. `left` are pods without a place. A refusal holds
    only what was computed until then.
    """

    def __init__(
        self,
        removed: tuple[str, ...],
        outcome: WhatIfOutcome,
        placements: tuple[tuple[str, tuple[PodView, ...]], ...] = (),
        solver_run: SolverRun | WhatIfPlan | None = None,
    ) -> None:
        self.removed: Final = removed
        self.outcome: Final = outcome
        self.placements: Final = placements
        self._solver_run: Final = solver_run
        self.cost_per_hour: Final = 0.0 if solver_run is None else solver_run.cost_per_hour

    @property
    def left(self) -> tuple[PodView, ...]:
        """The pods without a place."""
        return () if self._solver_run is None else self._solver_run.left

    @property
    def fits(self) -> bool:
        """Whether nothing new is needed."""
        return self.outcome is WhatIfOutcome.FITS

    @property
    def is_possible(self) -> bool:
        """Whether all pods find places, perhaps on new claims within the limits."""
        return self.outcome in _POSSIBLE

    @cached_property
    def claims(self) -> tuple[PlannedNodeClaim, ...]:
        """The new claims, with the instance types each may become, cheapest first."""
        return () if self._solver_run is None else self._solver_run.planned()

    @property
    def moves(self) -> dict[str, tuple[PodView, ...]]:
        """The pods that each node gets."""
        moves: dict[str, tuple[PodView, ...]] = {}
        for name, pods in self.placements:
            moves[name] = (*moves.get(name, ()), *pods)
        return moves

    @property
    def real_moves(self) -> dict[str, tuple[PodView, ...]]:
        """The pods that each node gets, without virtual ones, which the scheduler never binds."""
        moves = {
            name: tuple(pod for pod in pods if not pod.is_virtual)
            for name, pods in self.moves.items()
        }
        return {name: pods for name, pods in moves.items() if pods}

    @property
    def sequence(self) -> tuple[str, ...]:
        """UIDs of all placed pods, in an order in which each passes the scheduler's filters."""
        if self._solver_run is None:
            return tuple(pod.uid for _, pods in self.placements for pod in pods)
        placed = len(self.placements) - len(self._solver_run.moves())
        first = (pod.uid for _, pods in self.placements[:placed] for pod in pods)
        return (*first, *self._solver_run.sequence)


@final
class WhatIfQuestion:
    """Evaluates the removal of `slots`; `answer` leaves the overlay changed.

    `class_pods` need places beside the pods of the nodes. `first_fit_only`: make no other plan.
    """

    def __init__(
        self,
        overlay: ClusterOverlay,
        bounds: PriceBounds,
        slots: Sequence[int],
        *,
        below_price: float = inf,
        max_claims: int | None = None,
        class_pods: Iterable[ClassPods] = (),
        first_fit_only: bool = False,
    ) -> None:
        self._overlay: Final = overlay
        self._base: Final = overlay.base
        self._bounds: Final = bounds
        self._slots: Final = slots
        self._below: Final = below_price
        self._most: Final = max_claims
        self._class_pods: Final = self._collect(class_pods)
        packing = overlay.base.compiled.options.packing
        self._has_plans: Final = packing is PackingPolicy.VALUE and not first_fit_only
        self._moves: Sequence[tuple[int, int, tuple[PodView, ...]]] = ()
        self._kept_run: SolverRun | None = None

    def _collect(self, class_pods: Iterable[ClassPods]) -> tuple[ClassPods, ...]:
        places, added_pods = self._base.base_nodes, self._overlay.added_pods
        collected = [*class_pods]
        for slot in self._slots:
            collected += places[slot].leaving_pods
            if slot in added_pods:
                collected += added_pods[slot]
        if len(self._slots) == 1 and len(collected) == len(places[self._slots[0]].leaving_pods):
            return places[self._slots[0]].leaving_pods
        members: dict[int, list[PodView]] = {}
        for number, pods in collected:
            members.setdefault(number, []).extend(pods)
        return self._base.sort_class_pods(members.items())

    def answer(self) -> WhatIfVerdict:
        """Place the pods: first on nodes, then on what the engine opens."""
        overlay = self._overlay
        for slot in self._slots:
            overlay.remove(slot)
        mark = overlay.mark()
        placement = FirstFitPlacement(self._base, overlay)
        placement.place(self._class_pods)
        self._moves = placement.moves
        if not placement.left and not placement.unprocessed:
            return self._verdict(WhatIfOutcome.FITS, placement.moves, None)
        refusal = self._refusal(placement)
        if refusal is None and self._has_plans and self._most not in {0, 1}:
            return self._planned(mark)
        solver_run = None if refusal else self._solver_run(placement, self._class_pods, self._most)
        if solver_run is not None and solver_run.waiting and self._has_plans:
            return self._planned(mark)
        self._kept_run = solver_run
        outcome = refusal or (
            WhatIfOutcome.TOO_MANY if solver_run is None else self._judge(solver_run)
        )
        verdict = self._verdict(outcome, placement.moves, solver_run)
        if verdict.fits or not self._has_plans:
            return verdict
        overlay.undo(mark)
        if not self._may_fit(placement):
            return verdict
        return self._constrained_first(placement) or self._planned_fit(mark) or verdict

    def _solver_run(
        self, placement: FirstFitPlacement, class_pods: Sequence[ClassPods], most: int | None
    ) -> SolverRun | None:
        """Ask the engine for the rest of a walk; None if it takes more claims than `most`."""
        return run_first_fit(
            self._base,
            self._overlay,
            (*placement.left, *placement.unprocessed),
            placed=class_pods,
            nodes=bool(placement.unprocessed),
            max_claims=most,
        )

    def _constrained_first(self, first_fit: FirstFitPlacement) -> WhatIfVerdict | None:
        """Place pods on nodes, constrained classes first; None if some find no room.

        By first-fit, large pods may take the only nodes that smaller ones are allowed on. Within a
        tier of constraints the order of first-fit stays; the solver's other plans go by cost there.
        Not tried where the other order comes to the same end.
        """
        plans = self._base.plans
        class_pods = sorted(self._class_pods, key=lambda work: plans[work[0]].tier)
        if self._ends_alike(class_pods, first_fit):
            return None
        placement = FirstFitPlacement(self._base, self._overlay)
        placement.place(class_pods)
        if placement.left or placement.is_short:
            return None
        solver_run = self._solver_run(placement, class_pods, 0) if placement.unprocessed else None
        if placement.unprocessed and (solver_run is None or solver_run.waiting):
            return None
        self._moves, self._kept_run = placement.moves, solver_run
        return self._verdict(WhatIfOutcome.FITS, placement.moves, solver_run)

    def _may_fit(self, first_fit: FirstFitPlacement) -> bool:
        """Whether the room on nodes is enough for those that first-fit left, if they had all of it."""
        placement = FirstFitPlacement(self._base, self._overlay)
        return not any(
            placement.count_unplaceable(work)
            for work in (*first_fit.left, *first_fit.unprocessed[:1])
        )

    def _planned_fit(self, mark: int) -> WhatIfVerdict | None:
        """Place pods on nodes as the best of the solver's plans does; None if it takes claims.

        For small questions only: on large clusters the plans would cost more than all that first-fit
        does, and room on many nodes seldom depends on the order of the pods.
        """
        pods = sum(len(members) for _, members in self._class_pods)
        if pods * len(self._base.base_nodes) > MAX_PLANNED_PAIRS:
            return None
        best_run = self._best_run(mark)
        return self._answer_of(best_run) if self._judge(best_run) is WhatIfOutcome.FITS else None

    def _ends_alike(self, class_pods: Sequence[ClassPods], first_fit: FirstFitPlacement) -> bool:
        """Whether another order is the same as far as the first pods without room, or all of it."""
        stuck = first_fit.left or (first_fit.unprocessed if first_fit.is_short else ())
        for (number, _), (other, _) in zip(self._class_pods, class_pods, strict=True):
            if number != other:
                return False
            if stuck and number == stuck[0][0]:
                return True
        return True

    def _planned(self, mark: int) -> WhatIfVerdict:
        """Make the plans of a pass, as the solver does when something is to be bought.

        Not for a single claim: it is open to every type, so its cost cannot be lower.
        """
        return self._answer_of(self._best_run(mark))

    def _best_run(self, mark: int) -> SolverRun:
        self._overlay.undo(mark)
        solver_runs = run_plans(self._base, self._overlay, self._class_pods)
        return min(solver_runs, key=self._rank)

    def _answer_of(self, solver_run: SolverRun) -> WhatIfVerdict:
        """Return the verdict of a run that places all pods, and keep the run for `commit`."""
        self._moves, self._kept_run = (), solver_run
        return self._verdict(self._judge(solver_run), (), solver_run)

    def _verdict(
        self,
        outcome: WhatIfOutcome,
        placed: Sequence[tuple[int, int, tuple[PodView, ...]]],
        solver_run: SolverRun | None,
    ) -> WhatIfVerdict:
        places = self._base.base_nodes
        moves = placed if solver_run is None else (*placed, *solver_run.moves())
        return WhatIfVerdict(
            tuple([places[slot].node.name for slot in self._slots]),
            outcome,
            tuple([(places[slot].node.name, pods) for _, slot, pods in moves]),
            solver_run,
        )

    def _refusal(self, placement: FirstFitPlacement) -> WhatIfOutcome | None:
        """Return an early refusal: pods that fit on no node need new nodes for all of them."""
        if self._most == 0 and (placement.left or placement.is_short):
            return WhatIfOutcome.TOO_MANY
        if self._most is None and self._below == inf:
            return None
        mark = self._overlay.mark()
        short = [
            one
            for one in FirstFitPlacement(self._base, self._overlay).predict_new_claims(placement)
            if one[1]
        ]
        self._overlay.undo(mark)
        if not short:
            return None
        numbers = [number for number, _ in short]
        counts = np.array([count for _, count in short], dtype=np.int64)
        amounts = self._base.compiled.requests[:, numbers] @ counts
        if self._most == 1:
            price = self._bounds.lowest_single_price(amounts)
            if price == inf:
                return WhatIfOutcome.TOO_MANY
            return WhatIfOutcome.TOO_DEAR if price >= self._below else None
        floor = self._bounds.lowest_price(amounts)
        return WhatIfOutcome.TOO_DEAR if self._below <= floor < inf else None

    def _judge(self, solver_run: SolverRun) -> WhatIfOutcome:
        if solver_run.waiting:
            return WhatIfOutcome.LEFT
        if not solver_run.claims:
            return WhatIfOutcome.FITS
        if self._most is not None and solver_run.claims > self._most:
            return WhatIfOutcome.TOO_MANY
        return (
            WhatIfOutcome.TOO_DEAR
            if solver_run.cost_per_hour >= self._below
            else WhatIfOutcome.CLAIMS
        )

    def _rank(self, solver_run: SolverRun) -> tuple[bool, int, float]:
        """Sort answers: those within the limits, then fewest pods left, then cheapest."""
        fee = self._base.compiled.options.node_fee_per_hour
        refused = self._judge(solver_run) not in _POSSIBLE
        return (
            refused,
            solver_run.waiting,
            round(solver_run.cost_per_hour + fee * solver_run.claims, 9),
        )

    def commit(self, volumes: Mapping[str, PodVolumes]) -> None:
        """Put what the engine placed on nodes into the overlay too, and note who is where."""
        for number, slot, pods in self._moves:
            self._overlay.record_pods(slot, number, pods)
        if self._kept_run is None:
            return
        changed = self._kept_run.changed()
        for number, slot, pods in self._kept_run.moves():
            free, signature = changed[slot]
            self._overlay.set_signature(slot, signature)
            self._overlay.put(slot, number, len(pods), free)
            self._overlay.record_pods(slot, number, pods)
            pod_volumes = [volumes[pod.uid] for pod in pods if pod.uid in volumes]
            if pod_volumes:
                self._overlay.attach(slot, pod_volumes)
