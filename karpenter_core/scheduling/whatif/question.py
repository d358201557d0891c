"""One what-if: nodes go, their pods look for places, and the verdict on that."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.problem import Packing
from karpenter_core.scheduling.whatif.engine import first_outlook, plan_outlooks
from karpenter_core.scheduling.whatif.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import PlannedNodeClaim, PodVolumes
    from karpenter_core.scheduling.whatif.bounds import Bounds
    from karpenter_core.scheduling.whatif.engine import Outlook
    from karpenter_core.scheduling.whatif.overlay import Overlay
    from karpenter_core.scheduling.whatif.walk import Work

__all__ = ["Outcome", "Question", "Verdict"]


class Outcome(StrEnum):
    """What comes of taking nodes away."""

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


_POSSIBLE: Final = frozenset({Outcome.FITS, Outcome.CLAIMS})


@final
class Verdict:
    """What comes of taking nodes away; `removed` are their names, as asked.

    `placements` are the pods that go to nodes that stay, by name, in the order of placing;
    `claims` hold the others, at `cost_per_hour`. `left` are pods without a place. A refusal has
    only what it took to find it.
    """

    def __init__(
        self,
        removed: tuple[str, ...],
        outcome: Outcome,
        placements: tuple[tuple[str, tuple[PodView, ...]], ...] = (),
        outlook: Outlook | None = None,
    ) -> None:
        self.removed: Final = removed
        self.outcome: Final = outcome
        self.placements: Final = placements
        self._outlook: Final = outlook
        self.cost_per_hour: Final = 0.0 if outlook is None else outlook.cost_per_hour

    @property
    def left(self) -> tuple[PodView, ...]:
        """The pods without a place."""
        return () if self._outlook is None else self._outlook.left

    @property
    def fits(self) -> bool:
        """Whether nothing new is needed."""
        return self.outcome is Outcome.FITS

    @property
    def is_possible(self) -> bool:
        """Whether all pods find places, perhaps on new claims within the limits."""
        return self.outcome in _POSSIBLE

    @cached_property
    def claims(self) -> tuple[PlannedNodeClaim, ...]:
        """The new claims, with the instance types each may become, cheapest first."""
        return () if self._outlook is None else self._outlook.planned()

    @property
    def moves(self) -> dict[str, tuple[PodView, ...]]:
        """The pods that each node gets."""
        moves: dict[str, tuple[PodView, ...]] = {}
        for name, pods in self.placements:
            moves[name] = (*moves.get(name, ()), *pods)
        return moves

    @property
    def sequence(self) -> tuple[str, ...]:
        """UIDs of all placed pods, in an order in which each passes the scheduler's filters."""
        if self._outlook is None:
            return tuple(pod.uid for _, pods in self.placements for pod in pods)
        walked = len(self.placements) - len(self._outlook.moves())
        first = (pod.uid for _, pods in self.placements[:walked] for pod in pods)
        return (*first, *self._outlook.sequence)


@final
class Question:
    """Asks what comes of taking `slots` away; `answer` leaves the overlay changed.

    `works` are pods that look for places beside those of the nodes. `first_fit_only`: make no
    other plan, whatever is to be bought.
    """

    def __init__(
        self,
        overlay: Overlay,
        bounds: Bounds,
        slots: Sequence[int],
        *,
        below_price: float = inf,
        most_claims: int | None = None,
        works: Iterable[Work] = (),
        first_fit_only: bool = False,
    ) -> None:
        self._overlay: Final = overlay
        self._base: Final = overlay.base
        self._bounds: Final = bounds
        self._slots: Final = slots
        self._below: Final = below_price
        self._most: Final = most_claims
        self._works: Final = self._collect(works)
        packing = overlay.base.compiled.options.packing
        self._has_plans: Final = packing is Packing.VALUE and not first_fit_only
        self._moves: Sequence[tuple[int, int, tuple[PodView, ...]]] = ()
        self._kept: Outlook | None = None

    def _collect(self, works: Iterable[Work]) -> tuple[Work, ...]:
        places, guests = self._base.places, self._overlay.guests
        found = [*works]
        for slot in self._slots:
            found += places[slot].movers
            if slot in guests:
                found += guests[slot]
        if len(self._slots) == 1 and len(found) == len(places[self._slots[0]].movers):
            return places[self._slots[0]].movers
        members: dict[int, list[PodView]] = {}
        for number, pods in found:
            members.setdefault(number, []).extend(pods)
        return self._base.work(members.items())

    def answer(self) -> Verdict:
        """Place the pods: first on nodes, then on what the engine opens."""
        overlay = self._overlay
        for slot in self._slots:
            overlay.remove(slot)
        mark = overlay.mark()
        walk = Walk(self._base, overlay)
        walk.place(self._works)
        self._moves = walk.moves
        if not walk.left and not walk.rest:
            return self._verdict(Outcome.FITS, walk.moves, None)
        refusal = self._refusal(walk)
        if refusal is None and self._has_plans and self._most not in {0, 1}:
            return self._planned(mark)
        found = None if refusal else self._outlook(walk, self._works, self._most)
        if found is not None and found.waiting and self._has_plans:
            return self._planned(mark)
        self._kept = found
        outcome = refusal or (Outcome.TOO_MANY if found is None else self._judge(found))
        verdict = self._verdict(outcome, walk.moves, found)
        if verdict.fits or not self._has_plans:
            return verdict
        overlay.undo(mark)
        return self._constrained_first(walk) or verdict

    def _outlook(self, walk: Walk, works: Sequence[Work], most: int | None) -> Outlook | None:
        """Ask the engine for the rest of a walk; None if it takes more claims than `most`."""
        return first_outlook(
            self._base,
            self._overlay,
            (*walk.left, *walk.rest),
            placed=works,
            nodes=bool(walk.rest),
            most_claims=most,
        )

    def _constrained_first(self, first_fit: Walk) -> Verdict | None:
        """Place pods on nodes, constrained classes first; None if some find no room.

        By first-fit, large pods may take the only nodes that smaller ones are allowed on. Within a
        tier of constraints the order of first-fit stays; the solver's other plans go by cost there.
        Not tried where the other order comes to the same end, or where the room on nodes is too
        little even if those that first-fit left had all of it.
        """
        plans = self._base.plans
        works = sorted(self._works, key=lambda work: plans[work[0]].tier)
        if self._ends_alike(works, first_fit):
            return None
        walk = Walk(self._base, self._overlay)
        if any(walk.shortage(work) for work in (*first_fit.left, *first_fit.rest[:1])):
            return None
        walk.place(works)
        if walk.left or walk.is_short:
            return None
        found = self._outlook(walk, works, 0) if walk.rest else None
        if walk.rest and (found is None or found.waiting):
            return None
        self._moves, self._kept = walk.moves, found
        return self._verdict(Outcome.FITS, walk.moves, found)

    def _ends_alike(self, works: Sequence[Work], first_fit: Walk) -> bool:
        """Whether another order is the same as far as the first pods without room, or all of it."""
        stuck = first_fit.left or (first_fit.rest if first_fit.is_short else ())
        for (number, _), (other, _) in zip(self._works, works, strict=True):
            if number != other:
                return False
            if stuck and number == stuck[0][0]:
                return True
        return True

    def _planned(self, mark: int) -> Verdict:
        """Make the plans of a pass, as the solver does when something is to be bought.

        Not for a single claim: it may become any machine, so it costs what it must.
        """
        self._overlay.undo(mark)
        outlooks = plan_outlooks(self._base, self._overlay, self._works)
        found = min(outlooks, key=self._rank)
        self._moves, self._kept = (), found
        return self._verdict(self._judge(found), (), found)

    def _verdict(
        self,
        outcome: Outcome,
        walked: Sequence[tuple[int, int, tuple[PodView, ...]]],
        outlook: Outlook | None,
    ) -> Verdict:
        places = self._base.places
        moves = walked if outlook is None else (*walked, *outlook.moves())
        return Verdict(
            tuple([places[slot].node.name for slot in self._slots]),
            outcome,
            tuple([(places[slot].node.name, pods) for _, slot, pods in moves]),
            outlook,
        )

    def _refusal(self, walk: Walk) -> Outcome | None:
        """Say why to look no further: pods that fit on no node need machines for all of them."""
        if self._most == 0 and (walk.left or walk.is_short):
            return Outcome.TOO_MANY
        if self._most is None and self._below == inf:
            return None
        mark = self._overlay.mark()
        short = [one for one in Walk(self._base, self._overlay).foresee(walk) if one[1]]
        self._overlay.undo(mark)
        if not short:
            return None
        numbers = [number for number, _ in short]
        counts = np.array([count for _, count in short], dtype=np.int64)
        amounts = self._base.compiled.requests[:, numbers] @ counts
        if self._most == 1:
            price = self._bounds.of_one(amounts)
            if price == inf:
                return Outcome.TOO_MANY
            return Outcome.TOO_DEAR if price >= self._below else None
        floor = self._bounds.of_any(amounts)
        return Outcome.TOO_DEAR if self._below <= floor < inf else None

    def _judge(self, found: Outlook) -> Outcome:
        if found.waiting:
            return Outcome.LEFT
        if not found.claims:
            return Outcome.FITS
        if self._most is not None and found.claims > self._most:
            return Outcome.TOO_MANY
        return Outcome.TOO_DEAR if found.cost_per_hour >= self._below else Outcome.CLAIMS

    def _rank(self, found: Outlook) -> tuple[bool, int, float]:
        """Sort answers: those within the limits, then fewest pods left, then cheapest."""
        fee = self._base.compiled.options.node_fee_per_hour
        refused = self._judge(found) not in _POSSIBLE
        return (refused, found.waiting, round(found.cost_per_hour + fee * found.claims, 9))

    def keep(self, volumes: Mapping[str, PodVolumes]) -> None:
        """Put what the engine placed on nodes into the overlay too, and note who is where."""
        for number, slot, pods in self._moves:
            self._overlay.lodge(slot, number, pods)
        if self._kept is None:
            return
        changed = self._kept.changed()
        for number, slot, pods in self._kept.moves():
            free, signature = changed[slot]
            self._overlay.become(slot, signature)
            self._overlay.put(slot, number, len(pods), free)
            self._overlay.lodge(slot, number, pods)
            asked = [volumes[pod.uid] for pod in pods if pod.uid in volumes]
            if asked:
                self._overlay.attach(slot, asked)
