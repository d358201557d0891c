"""Tracks capacity reservations and the instances left in each.

A reserved offering names its reservation by labels that no other offering has. Several types, zones
and pools may offer instances of the same one; its remaining capacity is the least that any of them
reports. `reservation_holdings` decides which claims take them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.scheduling.compiled.catalogue import CompiledCatalogue
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "AvailableReservations",
    "Reservation",
    "ReservationManager",
    "find_available_reservations",
]

Reservation: TypeAlias = tuple[tuple[str, str], ...]
"""A reservation by its labels and their values, in order: its ID, mostly."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvailableReservations:
    """Every reservation with remaining capacity, and the number of instances left.

    `shared` are labels that reserved and other offerings have: they do not identify reservations.
    """

    capacity: Mapping[Reservation, int] = field(default_factory=dict[Reservation, int])
    shared: frozenset[str]

    def reservation_of(self, requirements: Requirements) -> Reservation:
        """Return the reservation that an offering with these requirements belongs to."""
        return tuple(
            sorted(
                (requirement.key, value)
                for requirement in requirements.values()
                if requirement.key not in self.shared and not requirement.complement
                for value in requirement.values
            )
        )


def find_available_reservations(catalogues: Iterable[CompiledCatalogue]) -> AvailableReservations:
    """Return the reservations of pools, each with the least capacity that any pool reports."""
    distinct = tuple(dict.fromkeys(catalogues))
    available = AvailableReservations(
        shared=frozenset({ZONE, CAPACITY_TYPE}).union(*(c.plain_labels for c in distinct))
    )
    capacity: dict[Reservation, int] = {}
    for catalogue in distinct:
        for requirements, count in catalogue.reserved.items():
            reservation = available.reservation_of(requirements)
            capacity[reservation] = min(capacity.get(reservation, count), count)
    return AvailableReservations(
        capacity={name: capacity[name] for name in sorted(capacity) if capacity[name] > 0},
        shared=available.shared,
    )


@final
class ReservationManager:
    """The remaining capacity of every reservation while claims hold instances of them.

    Holders are numbers (columns of planned claims). A holder has at most one instance of each.
    """

    def __init__(self, capacity: Mapping[Reservation, int]) -> None:
        self._remaining: Final = dict(capacity)
        self._held: Final = dict[int, set[Reservation]]()

    def remaining(self, reservation: Reservation) -> int:
        """Return how many instances no claim holds yet.

        Raises:
            KeyError: no such reservation.
        """
        return self._remaining[reservation]

    def held(self, holder: int) -> frozenset[Reservation]:
        """Return what a holder has."""
        return frozenset(self._held.get(holder, ()))

    def can_reserve(self, holder: int, reservation: Reservation) -> bool:
        """Whether a holder has an instance of a reservation, or can get one.

        Raises:
            KeyError: no such reservation.
        """
        remaining = self._remaining[reservation]
        return remaining > 0 or reservation in self._held.get(holder, ())

    def reserve(self, holder: int, *reservations: Reservation) -> None:
        """Hold an instance of each; one that the holder has already is not taken twice.

        Raises:
            KeyError: no such reservation.
            ValueError: nothing is left of one.
        """
        for reservation in reservations:
            if not self.can_reserve(holder, reservation):
                raise ValueError(f"nothing is left of reservation {reservation} for {holder}")
            held = self._held.setdefault(holder, set())
            if reservation not in held:
                held.add(reservation)
                self._remaining[reservation] -= 1

    def release(self, holder: int, *reservations: Reservation) -> None:
        """Give instances back; reservations that the holder does not have stay unchanged."""
        held = self._held.get(holder, set())
        for reservation in reservations:
            if reservation in held:
                held.remove(reservation)
                self._remaining[reservation] += 1
