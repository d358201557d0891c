"""Who takes how much of which reservation, in one plan.

A planned claim *holds* reservations: it may become a machine of these and of no other, and one is
set aside for it in each of them until it is clear that it will not become that one. A claim that
holds some is for reserved machines only, any other for all but those.

* First-fit holds all that a claim could use, as upstream does: which of them the provider takes is
  not known. A claim gives back what its pods do not fit any more.
* The default packing holds one, so that all can be used in one pass.
* Strict: pods for which reserved machines would do, all of them taken in this very pass, wait for
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
    from karpenter_core.scheduling.compiled.classes import Ask
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.placement.columns import OpenNodes

__all__ = ["NOTHING", "Choice", "Choices", "Deferral", "Holdings"]

NOTHING: Final = frozenset["Reservation"]()
"""What a claim holds that buys its machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral:
    """Why pods wait for the next pass: a pool's reserved machines that all are taken in this."""

    pool: int
    taken: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a new claim may hold, and the signature it then has."""

    signature: int
    reservations: frozenset[Reservation]


class Choices(Struct, frozen=True, kw_only=True):
    """What a new claim may be: reserved first, `plain` (or NO_MATCH) if none of these will do.

    `taken` are the reservations that would do if there was something left; then there is no choice.
    """

    reserved: tuple[Choice, ...] = ()
    plain: int
    taken: tuple[Reservation, ...] = ()


@final
class Holdings:
    """What the planned claims of one plan hold; the holder is the claim's column.

    `pessimistic`: claims hold all reservations that they could use, not one.
    """

    def __init__(
        self, compiled: CompiledProblem, nodes: OpenNodes, *, pessimistic: bool = False
    ) -> None:
        self._manager: Final = ReservationManager(compiled.reservations.capacity)
        self._compiled: Final = compiled
        self._signatures: Final = compiled.signatures
        self._nodes: Final = nodes
        self._is_strict: Final = compiled.options.reservations is ReservationPolicy.STRICT
        self._pessimistic: Final = pessimistic
        self._shrinking: Final = dict[int, bool]()
        """Claims that may give something back, and whether they may do without any."""

    def are_wanted(self, ask: Ask, request: Amounts) -> bool:
        """Whether new claims for pods could be reserved machines, as the pass began."""
        for pool, signature in zip(
            self._compiled.pools, self._compiled.pool_signatures, strict=True
        ):
            if signature == NO_MATCH or not pool.reservations:
                continue
            met = self._signatures.meet(signature, ask)
            if met != NO_MATCH:
                claim = self._signatures.claim(met)
                if claim.reservations(claim.fitting(request)):
                    return True
        return False

    def choices(self, signature: int, request: Amounts) -> Choices:
        """Return what new claims of a signature may be that have to hold a request."""
        claim = self._signatures.claim(signature)
        if not claim.pool.reservations:
            return Choices(plain=signature)
        wanted = sorted(claim.reservations(claim.fitting(request)))
        plain = self._signatures.holding(signature, NOTHING)
        if not wanted:
            return Choices(plain=plain)
        there = [reservation for reservation in wanted if self.available((reservation,))]
        if not there:
            if not self._is_strict:
                return Choices(plain=plain)
            return Choices(plain=NO_MATCH, taken=tuple(wanted))
        sets = [frozenset(there)] if self._pessimistic else [frozenset({one}) for one in there]
        only = self._is_strict or not self._pessimistic or claim.has_min_values
        choices = (
            Choice(self._signatures.holding(signature, held, only=only), held) for held in sets
        )
        reserved = tuple(choice for choice in choices if choice.signature != NO_MATCH)
        return Choices(reserved=reserved, plain=plain)

    def available(self, reservations: Iterable[Reservation]) -> int:
        """Return how many more claims could hold all of some reservations."""
        return min(self._manager.left(reservation) for reservation in reservations)

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

    def keep(self, columns: list[int]) -> None:
        """Give back what the claims that pods have joined cannot use any more."""
        if not self._shrinking:
            return
        for column in columns:
            if column in self._shrinking:
                self._shrink(column)

    def _shrink(self, column: int) -> None:
        number, held = int(self._nodes.signature[column]), self._manager.held(column)
        claim = self._signatures.claim(number)
        kept = claim.reservations(claim.fitting(self._nodes.used[:, column]))
        if kept == held:
            return
        self._manager.release(column, *(held - kept))
        may_drop = self._shrinking[column]
        if not kept or (len(kept) == 1 and not may_drop):
            del self._shrinking[column]
        self._become(column, self._signatures.holding(number, kept, only=not may_drop))

    def settle(self) -> None:
        """Decide for the claims that still hold something and may do without: they are reserved."""
        for column, may_drop in self._shrinking.items():
            if may_drop:
                number, held = int(self._nodes.signature[column]), self._manager.held(column)
                self._become(column, self._signatures.holding(number, held))

    def _become(self, column: int, signature: int) -> None:
        limit = self._signatures.claim(signature).largest
        self._nodes.become([column], signature, limit)
