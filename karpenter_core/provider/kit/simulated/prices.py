"""Prices of a simulated cloud: equal in every run, and movable by tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from karpenter_core.provider.kit.simulated.pools import InstancePool

__all__ = ["SimulatedPrices", "stable_fraction"]


def stable_fraction(text: str) -> float:
    """Return a number from 0 to 1 that is the same for the same text in every process."""
    return int.from_bytes(sha256(text.encode()).digest()[:4]) / 2**32


class SimulatedPrices:
    """Prices per hour: of the price list, and of spot instances in each zone.

    A spot price is a fixed share of the list price, from `spot_low` to `spot_low + spot_spread`.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        list_price: Callable[[str], float],
        *,
        spot_low: float = 0.25,
        spot_spread: float = 0.2,
        digits: int = 6,
        is_spot_sold: Callable[[str, str], bool] = lambda _type, _zone: True,
    ) -> None:
        """Take list prices from a function; it returns 0 for a type that is not sold.

        `is_spot_sold` is asked with instance type and zone.
        """
        self._clock: Final = clock
        self._list_price: Final = list_price
        self._spot_low: Final = spot_low
        self._spot_spread: Final = spot_spread
        self._digits: Final = digits
        self._is_spot_sold: Final = is_spot_sold
        self._on_demand: Final[dict[str, float]] = {}
        self._spot: Final[dict[tuple[str, str], float]] = {}
        self._moves: Final[list[tuple[datetime, float]]] = []
        """Times from which prices move, and by which share at most; each counts until the next."""
        self.walk = 0.0
        """Share by which spot prices differ at most from one hour to the next."""
        self.on_demand_walk = 0.0
        """Share by which list prices differ at most from one day to the next."""
        self.changed: Callable[[], None] = lambda: None
        """Called when prices change other than with the time."""

    def set_on_demand(self, instance_type: str, price: float) -> None:
        """Set a price; 0 removes the type from the price list."""
        self._on_demand[instance_type] = price
        self.changed()

    def set_spot(self, instance_type: str, zone: str, price: float) -> None:
        """Set a spot price; 0 removes it from the history."""
        self._spot[instance_type, zone] = price
        self.changed()

    def move(self, share: float = 0.2) -> None:
        """Change every price that is not set by up to a share, each by a share of its own."""
        self._moves.append((self._clock(), share))
        self.changed()

    def clear(self) -> None:
        """Remove prices that were set, and undo all moves."""
        self.walk = 0.0
        self.on_demand_walk = 0.0
        if self._on_demand or self._spot or self._moves:
            self._on_demand.clear()
            self._spot.clear()
            self._moves.clear()
            self.changed()

    def on_demand(self, instance_type: str) -> float:
        """Return the list price; 0 if there is none."""
        if instance_type in self._on_demand:
            return self._on_demand[instance_type]
        price = self._list_price(instance_type)
        step = _step(self.on_demand_walk, f"{instance_type}/{self._clock().date()}")
        return self._moved(price * step, instance_type, len(self._moves))

    def spot(self, instance_type: str, zone: str, *, at: datetime | None = None) -> float:
        """Return the spot price in a zone, now by default; 0 if there is none."""
        return self._spot_after(instance_type, zone, len(self._moves), at or self._clock())

    def of(self, pool: InstancePool) -> float:
        """Return the price of an instance of a pool; 0 if there is none."""
        if pool.capacity_type == SPOT:
            return self.spot(pool.instance_type, pool.zone)
        return self.on_demand(pool.instance_type)

    def spot_moves(
        self, instance_type: str, zone: str, since: datetime | None = None
    ) -> Iterator[tuple[datetime, float]]:
        """Return the spot prices that were in force after a time, with their starts, last first."""
        begins = since or datetime.min.replace(tzinfo=UTC)
        now = self._clock()
        first = now - timedelta(hours=1)
        if self._moves:
            first = min(first, self._moves[0][0] - timedelta(hours=1))
        starts = [first, *(at for at, _ in self._moves)]
        for moves in range(len(self._moves), -1, -1):
            yield starts[moves], self._spot_after(instance_type, zone, moves, now)
            if starts[moves] <= begins:
                return

    def _spot_after(self, instance_type: str, zone: str, moves: int, at: datetime) -> float:
        name = f"{instance_type}/{zone}"
        if (instance_type, zone) in self._spot:
            return self._spot[instance_type, zone]
        if not self._is_spot_sold(instance_type, zone):
            return 0.0
        listed = self._on_demand.get(instance_type)
        if listed is None:
            day = _step(self.on_demand_walk, f"{instance_type}/{self._clock().date()}")
            listed = self._list_price(instance_type) * day
        hour = at.replace(minute=0, second=0, microsecond=0)
        share = self._spot_low + self._spot_spread * stable_fraction(name)
        return self._moved(listed * share * _step(self.walk, f"{name}/{hour}"), name, moves)

    def _moved(self, price: float, name: str, moves: int) -> float:
        """Return a price after so many moves."""
        if moves:
            price *= _step(self._moves[moves - 1][1], f"{name}#{moves}")
        return round(price, self._digits)


def _step(share: float, name: str) -> float:
    """Return a factor that differs from 1 by up to a share, the same for the same name."""
    return 1 + share * (2 * stable_fraction(name) - 1)
