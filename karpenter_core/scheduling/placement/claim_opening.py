"""Chooses the next claims to open: pool, signature and measuring row."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from karpenter_core.api.labels import NODES
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES, is_spot_due
from karpenter_core.scheduling.compiled.claim_restrictions import (
    restricted_to_capacity_type,
    restricted_to_limits,
    restricted_to_quotas,
)
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.placement.open_nodes import NO_ROW
from karpenter_core.scheduling.placement.plan_profile import ClaimOpening, RowMeasure
from karpenter_core.scheduling.placement.reservation_holdings import (
    NO_RESERVATIONS,
    ReservationDeferral,
)
from karpenter_core.scheduling.problem import MinValuesPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from karpenter_core.scheduling.arrays import Columns
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.problem import PlacementTask
    from karpenter_core.scheduling.compiled.signatures import DomainPin
    from karpenter_core.scheduling.placement.plan_state import PlanState

__all__ = ["ClaimOpener"]

_NEARLY_EQUAL: Final = 1.01
"""Prices within one percent count as equal; the larger row is chosen then."""

_TINY: Final = 1e-12

_ANY_NUMBER: Final = 2**62


@final
class _OpeningRequest(Struct, frozen=True, kw_only=True, eq=False):
    """A request for claims: for `left` pods of a class where pins allow, at most `cap` on each.

    `together`: prefer a row that holds as many of them as one can.
    """

    task: PlacementTask
    left: int
    pins: tuple[DomainPin, ...]
    cap: int
    together: bool


@final
class ClaimOpener:
    """Finds the next claims to open for one plan."""

    def __init__(self, state: PlanState) -> None:
        self._state: Final = state
        self._compiled: Final = state.compiled
        self._measure: Final = state.profile.measure
        pools = state.compiled.pools
        ranks = groupby(range(len(pools)), key=lambda number: pools[number].weight)
        self._ranks: Final = tuple(tuple(numbers) for _, numbers in ranks)
        self._opened: Final = list["tuple[list[int], ClaimOpening]"]()
        """The claims that were opened before anything was on them."""

    def open_empty(self, opening: ClaimOpening) -> list[int]:
        """Open claims without pods, within limits; they use no reserved capacity."""
        state, remaining = self._state, self._state.remaining[opening.pool]
        signatures = self._compiled.signatures
        signature = signatures.holding(opening.signature, NO_RESERVATIONS)
        if signature == NO_MATCH or not signatures.claim(signature).bits >> opening.row & 1:
            return []
        count = min(opening.count, max(remaining.get(NODES, opening.count), 0))
        pool = self._compiled.pools[opening.pool]
        for name in pool.limited:
            charge = opening.charge[name]
            if charge > 0:
                count = min(count, max(remaining[name] // charge, 0))
        if count <= 0:
            return []
        columns = state.nodes.open(count, signature=signature, limit=opening.limit, row=opening.row)
        self.charge(opening, count)
        self._opened.append((columns, opening))
        return columns

    def charge(self, opening: ClaimOpening, count: int) -> None:
        """Count claims against the limits of their pool; a negative count gives back.

        What they take of a quota, no pool has any more.
        """
        pool, everywhere = self._compiled.pools[opening.pool], self._state.remaining
        for name in pool.limited:
            amount = opening.charge[name] * count
            if name not in pool.quota_lines:
                everywhere[opening.pool][name] -= amount
                continue
            for remaining in everywhere:
                if name in remaining:
                    remaining[name] -= amount
        if pool.spot_share is not None:
            claim = self._compiled.signatures.claim(opening.signature)
            everywhere[opening.pool][claim.spot_count] -= count
        self._state.count_nodes(opening.pool, count)

    def close_empty(self) -> bool:
        """Close claims without pods; return whether that frees capacity within limits."""
        nodes, has_more = self._state.nodes, False
        for columns, opening in self._opened:
            empty = [column for column in columns if not nodes.used[:, column].any()]
            if not self._state.remaining[opening.pool] or not empty:
                continue
            nodes.close(empty)
            self.charge(opening, -len(empty))
            has_more = True
        self._opened.clear()
        return has_more

    def find(
        self,
        task: PlacementTask,
        left: int,
        pins: tuple[DomainPin, ...],
        cap: int,
        *,
        together: bool = False,
    ) -> ClaimOpening | None:
        """Return the claims to open for pods of a class; None when no pool can launch a node.

        None too when the pods have to wait for reserved capacity, which is noted, or when only
        reserved capacity is requested and none is left. At most `cap` pods go on each; `together`:
        prefer a row that holds as many of them as one can.
        """
        opening_request = _OpeningRequest(
            task=task, left=left, pins=pins, cap=cap, together=together
        )
        for numbers in self._ranks:
            best: ClaimOpening | None = None
            waiting: ReservationDeferral | None = None
            for number in numbers:
                opening = self._of_pool(number, opening_request)
                if isinstance(opening, ReservationDeferral):
                    waiting = waiting or opening
                elif opening is not None and (best is None or _order(opening) < _order(best)):
                    best = opening
                if opening is not None and self._measure is RowMeasure.NONE:
                    break
            if waiting is not None and (best is None or not best.reservations):
                self._state.deferred[task.index] = waiting
                return None
            if best is not None:
                return None if task.reserved_only and not best.reservations else best
        return None

    def _of_pool(
        self, number: int, opening_request: _OpeningRequest
    ) -> ClaimOpening | ReservationDeferral | None:
        signatures = self._compiled.signatures
        pool, remaining = self._compiled.pools[number], self._state.remaining[number]
        signature = self._compiled.pool_signatures[number]
        if signature == NO_MATCH or remaining.get(NODES, 1) <= 0:
            return None
        waiting: ReservationDeferral | None = None
        for alternative in range(len(opening_request.task.node_constraints.alternatives)):
            joined = signatures.join_alternative(
                signature, opening_request.task.node_constraints, alternative
            )
            if joined == NO_MATCH:
                continue
            for typed, most in self._of_capacity_types(pool, joined, remaining):
                within = signatures.within(typed, opening_request.pins)
                for asked, limited in self._within_limits(pool, typed, within, remaining):
                    choice = self._with_devices(limited, opening_request)
                    if choice == NO_MATCH:
                        continue
                    opening = self._of_signature(number, choice, opening_request)
                    if isinstance(opening, ReservationDeferral):
                        waiting = waiting or opening
                        continue
                    if opening is None:
                        continue
                    count = min(opening.count, most, remaining.get(NODES, opening.count))
                    for name in pool.limited:
                        count = min(count, self._repetitions(name, remaining[name], opening))
                    return replace(opening, count=count, asked=asked)
        return waiting

    def _with_devices(self, signature: int, opening_request: _OpeningRequest) -> int:
        """Return the signature that is left of a claim with the pod's devices."""
        if self._state.devices is None:
            return signature
        return self._state.devices.opening(opening_request.task, signature)

    def _of_capacity_types(
        self, pool: CompiledPool, joined: int, remaining: Mapping[str, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield what a claim may be in the order of the pool's share of spot, and how often.

        Where the capacity type that is due cannot be had, the other one may be opened once.
        """
        if pool.spot_share is None:
            yield joined, _ANY_NUMBER
            return
        spot, others = -remaining[SPOT_NODES], -remaining[OTHER_NODES]
        is_due = is_spot_due(pool.spot_share, spot=spot, others=others)
        for is_spot in (is_due, not is_due):
            typed = restricted_to_capacity_type(self._compiled.signatures, joined, spot=is_spot)
            if typed != NO_MATCH:
                yield typed, 1

    def _within_limits(
        self, pool: CompiledPool, joined: int, within: int, remaining: Mapping[str, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield what is left of a claim within limits, `joined` and `within` its pins.

        First where it may be anything that still fits into the limits, then, if a quota is
        exhausted, where that quota does not count it.
        """
        signatures = self._compiled.signatures
        if within == NO_MATCH:
            return
        if not pool.limited or pool.has_ample_limits(remaining, 1):
            yield joined, within
            return
        limited = restricted_to_limits(signatures, within, remaining)
        if limited != NO_MATCH:
            yield joined, limited
        outside = (
            restricted_to_quotas(signatures, within, remaining) if pool.quota_lines else within
        )
        if outside not in {within, NO_MATCH}:
            limited = restricted_to_limits(signatures, outside, remaining)
            if limited != NO_MATCH:
                yield outside, limited

    def _of_signature(
        self, number: int, signature: int, opening_request: _OpeningRequest
    ) -> ClaimOpening | ReservationDeferral | None:
        """Open claims that hold reservations if they can, others if not."""
        holdings = self._state.holdings
        choices = holdings.choices(signature, opening_request.task.request)
        if choices.taken:
            return ReservationDeferral(pool=number, taken=choices.taken)
        best: ClaimOpening | None = None
        for choice in choices.reserved:
            opening = self._new(number, choice.signature, opening_request)
            if opening is not None and (best is None or opening.score < best.score):
                count = min(opening.count, holdings.available(choice.reservations))
                best = replace(opening, count=count, reservations=choice.reservations)
        if best is None and choices.plain != NO_MATCH:
            best = self._new(number, choices.plain, opening_request)
        return best

    def _new(
        self, number: int, signature: int, opening_request: _OpeningRequest
    ) -> ClaimOpening | None:
        """Open claims that are measured by a row, or open to all."""
        opening = None
        if self._measure is not RowMeasure.NONE:
            opening = self._measured(number, signature, opening_request)
        if opening is None:
            opening = self._open(number, signature, opening_request)
        return opening

    def _open(
        self, number: int, signature: int, opening_request: _OpeningRequest
    ) -> ClaimOpening | None:
        """Open claims that may become any of their rows."""
        signatures, request = self._compiled.signatures, opening_request.task.request
        claim = signatures.claim(signature)
        fitting = claim.fitting(request)
        if not fitting.any():
            return None
        joined = signature
        signature = self._pinned_for_min_values(joined, opening_request, claim.rows[fitting])
        if signature == NO_MATCH:
            return None
        claim = signatures.claim(signature)
        fitting = claim.fitting(request)
        missing = claim.missing_min_values(fitting)
        if missing:
            if self._compiled.options.min_values is MinValuesPolicy.STRICT:
                return None
            signature = signatures.relaxed(signature, missing)
            claim = signatures.claim(signature)
        nothing = np.zeros((len(request), 1), dtype=np.int64)
        pods = min(int(claim.fit_counts(nothing, request)[0]), opening_request.cap)
        if opening_request.task.node_constraints.host_ports:
            pods = min(pods, 1)
        if pods <= 0:
            return None
        fee = self._state.fee_per_hour
        return ClaimOpening(
            pool=number,
            count=-(-opening_request.left // pods),
            pods=pods,
            signature=signature,
            asked=joined,
            limit=claim.largest,
            row=NO_ROW,
            charge=claim.charge(claim.rows[fitting]),
            score=float(claim.prices[fitting][0]) + fee,
        )

    def _pinned_for_min_values(
        self, signature: int, opening_request: _OpeningRequest, rows: Columns
    ) -> int:
        """Settle where claims are, by the cheapest of some rows that has `minValues` beside it.

        By the cheapest of all where none has.
        """
        signatures, request = self._compiled.signatures, opening_request.task.request
        if signatures.claim(signature).has_min_values:
            settled = (
                signatures.pinned_to_cheapest(signature, opening_request.pins, row)
                for row in rows.tolist()
            )
            for number in dict.fromkeys(settled):
                if number != NO_MATCH:
                    claim = signatures.claim(number)
                    if not claim.missing_min_values(claim.fitting(request)):
                        return number
        return signatures.pinned_to_cheapest(signature, opening_request.pins, int(rows[0]))

    def _measured(
        self, number: int, signature: int, opening_request: _OpeningRequest
    ) -> ClaimOpening | None:
        """Open claims measured by the row whose capacity is cheapest."""
        task, left, cap = opening_request.task, opening_request.left, opening_request.cap
        signatures, request = self._compiled.signatures, task.request
        claim, pool = signatures.claim(signature), self._compiled.pools[number]
        if claim.has_min_values and not pool.has_ample_limits(self._state.remaining[number], left):
            return None  # cutting the list to the limits could break minValues
        shapes = claim.instance_shapes
        free = shapes.capacity
        pods = np.minimum.reduce(free[task.lines] // request[task.lines, None])
        np.minimum(pods, min(cap, 1) if task.node_constraints.host_ports else cap, out=pods)
        candidates = pods.nonzero()[0]
        if not len(candidates):
            return None
        held = np.minimum(pods[candidates], left)
        if opening_request.together:
            most = held == held.max()
            candidates, held = candidates[most], held[most]
        if self._measure is RowMeasure.PODS:
            held_value = held.astype(np.float64)
        else:
            rest = np.maximum(self._state.remaining_demand(), request * left)
            held_value = self._state.weights @ np.minimum(free[:, candidates], rest[:, None])
        fee = self._state.fee_per_hour
        score = (shapes.robust_price[candidates] + fee) / np.maximum(held_value, _TINY)
        good = (score <= np.minimum.reduce(score) * _NEARLY_EQUAL).nonzero()[0]
        chosen = good[np.lexsort((good, score[good], -held[good]))[0]]
        best = int(shapes.row[candidates[chosen]])
        row, per_claim = int(claim.rows[best]), int(pods[candidates[chosen]])
        settled = signatures.pinned_to_cheapest(signature, opening_request.pins, row)
        if settled == NO_MATCH:
            return None
        if claim.has_min_values and not signatures.claim(settled).admissible_mask[row]:
            return None
        count = max(left // per_claim, 1)
        charge: Mapping[str, int] = pool.largest
        if not pool.has_ample_limits(self._state.remaining[number], count):
            charge = claim.capacity_of(row)
            settled = restricted_to_limits(signatures, settled, charge)
            if settled == NO_MATCH:
                return None
        return ClaimOpening(
            pool=number,
            count=count,
            pods=per_claim,
            signature=settled,
            asked=signature,
            limit=claim.free[:, best],
            row=row,
            charge=charge,
            score=float(score[chosen]),
        )

    def _repetitions(self, name: str, remaining: int, opening: ClaimOpening) -> int:
        """Return how often a claim can be opened before limits leave it fewer rows (at least 1)."""
        charge = opening.charge[name]
        if charge <= 0:
            return opening.count
        if opening.row != NO_ROW:
            return max(remaining // charge, 1)
        claim = self._compiled.signatures.claim(opening.signature)
        largest = int(claim.counted_against_limits(name).max())
        return 1 + max((remaining - largest) // charge, 0)

    def surely_opens(self, task: PlacementTask, left: int, pins: tuple[DomainPin, ...]) -> bool:
        """Whether a node can be had for every pod that is left: no limit is near."""
        signatures = self._compiled.signatures
        pools = range(len(self._compiled.pools))
        if task.reserved_only or any(self._may_reserve(pool, task, pins) for pool in pools):
            return False
        for number, pool in enumerate(self._compiled.pools):
            signature = self._compiled.pool_signatures[number]
            if signature == NO_MATCH or not pool.has_ample_limits(
                self._state.remaining[number], left
            ):
                continue
            met = signatures.join(signature, task.node_constraints, pins)
            if met == NO_MATCH:
                continue
            plain = signatures.holding(met, NO_RESERVATIONS)
            if plain == NO_MATCH:
                continue
            claim = signatures.claim(plain)
            if (claim.fitting(task.request) & claim.admissible).any():
                return True
        return False

    def _may_reserve(self, number: int, task: PlacementTask, pins: tuple[DomainPin, ...]) -> bool:
        """Whether a pool's claims for pods would hold reservations, of which there are so many."""
        signature = self._compiled.pool_signatures[number]
        if signature == NO_MATCH or not self._compiled.pools[number].reservations:
            return False
        signatures = self._compiled.signatures
        for alternative in range(len(task.node_constraints.alternatives)):
            joined = signatures.join_alternative(signature, task.node_constraints, alternative)
            within = NO_MATCH if joined == NO_MATCH else signatures.within(joined, pins)
            if within != NO_MATCH:
                choices = self._state.holdings.choices(within, task.request)
                if choices.reserved or choices.taken:
                    return True
        return False


def _order(opening: ClaimOpening) -> tuple[bool, float]:
    """Order reserved capacity first, then by price."""
    return (not opening.reservations, opening.score)
