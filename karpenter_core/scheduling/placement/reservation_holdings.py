"""Assigns reservations to the planned claims of one plan.

A planned claim *holds* reservations: it may become an instance of these and of no other, and each
of them keeps one instance for it until the claim cannot use that reservation any more. A claim that
holds some allows reserved offerings only, any other all but those.

* First-fit holds all that a claim could use, as upstream does: which of them the provider takes is
  not known. A claim gives back what its pods do not fit any more.
* The default packing holds one, so that all can be used in one pass.
* Strict: pods that fit on reserved capacity, all of it taken in this same pass, wait for
  the next one. They give up no preference and go to no lighter pool meanwhile.
* Fallback: reservations are used as far as they go. First-fit drops them, as upstream does, when
  more pods would not fit with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from msgspec import Struct

from karpenter_core.scheduling.compiled.reservations import ReservationManager
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.problem import ReservationPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts
    from karpenter_core.scheduling.compiled.pod_classes import NodeConstraints
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes

__all__ = [
    "NO_RESERVATIONS",
    "ReservationChoice",
    "ReservationChoices",
    "ReservationDeferral",
    "ReservationHoldings",
]

NO_RESERVATIONS: Final = frozenset["Reservation"]()
"""The reservations of a claim without reserved capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDeferral:
    """Pods that wait for the next pass: this pass took all fitting reservations of a NodePool."""

    pool: int
    taken: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class ReservationChoice:
    """The reservations that a new claim may hold, and the signature it then has."""

    signature: int
    reservations: frozenset[Reservation]


class ReservationChoices(Struct, frozen=True, kw_only=True):
    """The choices for a new claim: reserved ones first, `plain` (or NO_MATCH) when none fits.

    `taken` are the fitting reservations without remaining instances; then there is no choice.
    """

    reserved: tuple[ReservationChoice, ...] = ()
    plain: int
    taken: tuple[Reservation, ...] = ()


@final
class ReservationHoldings:
    """The reservations held by the planned claims of one plan; the holder is the claim's column.

    `pessimistic`: claims hold all reservations that they could use, not one.
    """

    def __init__(self, compiled: CompiledProblem, nodes: OpenNodes, *, pessimistic: bool) -> None:
        self._manager: Final = ReservationManager(compiled.reservations.capacity)
        self._compiled: Final = compiled
        self._signatures: Final = compiled.signatures
        self._nodes: Final = nodes
        self._is_strict: Final = compiled.options.reservations is ReservationPolicy.STRICT
        self._pessimistic: Final = pessimistic
        self._shrinking: Final = dict[int, bool]()
        """Claims that may give something back, and whether they may do without any."""

    def may_use_reservations(self, node_constraints: NodeConstraints, request: Amounts) -> bool:
        """Whether new claims for pods could use reservations when the pass began."""
        for pool, signature in zip(
            self._compiled.pools, self._compiled.pool_signatures, strict=True
        ):
            if signature == NO_MATCH or not pool.reservations:
                continue
            met = self._signatures.join(signature, node_constraints)
            if met != NO_MATCH:
                claim = self._signatures.claim(met)
                if claim.reservations(claim.fitting(request)):
                    return True
        return False

    def choices(self, signature: int, request: Amounts) -> ReservationChoices:
        """Return what new claims of a signature may be that have to hold a request."""
        claim = self._signatures.claim(signature)
        if not claim.pool.reservations:
            return ReservationChoices(plain=signature)
        claim_reservations = sorted(claim.reservations(claim.fitting(request)))
        plain = self._signatures.holding(signature, NO_RESERVATIONS)
        if not claim_reservations:
            return ReservationChoices(plain=plain)
        there = [
            reservation for reservation in claim_reservations if self.available((reservation,))
        ]
        if not there:
            if not self._is_strict:
                return ReservationChoices(plain=plain)
            return ReservationChoices(plain=NO_MATCH, taken=tuple(claim_reservations))
        sets = [frozenset(there)] if self._pessimistic else [frozenset({one}) for one in there]
        only = self._is_strict or not self._pessimistic or claim.has_min_values
        choices = (
            ReservationChoice(self._signatures.holding(signature, held, only=only), held)
            for held in sets
        )
        reserved = tuple(choice for choice in choices if choice.signature != NO_MATCH)
        return ReservationChoices(reserved=reserved, plain=plain)

    def available(self, reservations: Iterable[Reservation]) -> int:
        """Return how many more claims could hold all of some reservations."""
        return min(self._manager.remaining(reservation) for reservation in reservations)

    def take(self, columns: list[int], reservations: frozenset[Reservation]) -> None:
        """Have new claims hold reservations."""
        if not reservations:
            return
        for column in columns:
            self._manager.reserve(column, *sorted(reservations))
            claim = self._signatures.claim(int(self._nodes.signature[column]))
            may_drop = not self._is_strict and self._pessimistic and not claim.has_min_values
            if may_drop or len(reservations) > 1:
                self._shrinking[column] = may_drop

    def release_unusable(self, columns: list[int]) -> None:
        """Give back what the claims that pods have joined cannot use any more."""
        if not self._shrinking:
            return
        for column in columns:
            if column in self._shrinking:
                self._shrink(column)

    def _shrink(self, column: int) -> None:
        number, held = int(self._nodes.signature[column]), self._manager.held(column)
        claim = self._signatures.claim(number)
        still_held = claim.reservations(claim.fitting(self._nodes.used[:, column]))
        if still_held == held:
            return
        self._manager.release(column, *(held - still_held))
        may_drop = self._shrinking[column]
        if not still_held or (len(still_held) == 1 and not may_drop):
            del self._shrinking[column]
        self._set_signature(column, self._signatures.holding(number, still_held, only=not may_drop))

    def finalize(self) -> None:
        """Decide for the claims that still hold something and may do without: they are reserved."""
        for column, may_drop in self._shrinking.items():
            if may_drop:
                number, held = int(self._nodes.signature[column]), self._manager.held(column)
                self._set_signature(column, self._signatures.holding(number, held))

    def _set_signature(self, column: int, signature: int) -> None:
        limit = self._signatures.claim(signature).largest
        self._nodes.set_signature([column], signature, limit)
