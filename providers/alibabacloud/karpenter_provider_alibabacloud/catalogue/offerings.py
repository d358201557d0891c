"""How an instance type can be bought now.

Only zones are offered in which the type was ever listed and the NodeClass has a vSwitch: the type's
requirements name the same zones, and pods that spread over zones count them. What cannot be had there
just now is listed as unavailable, so that a node which runs there keeps its place in the catalogue.

A price that is not known is estimated: a type nobody asked the price of can be had all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.provider.catalogue import Offering, Price
from karpenter_core.provider.kit.unavailable import OfferingMark
from karpenter_provider_alibabacloud.catalogue.requirements import offering_requirements
from karpenter_provider_alibabacloud.catalogue.stock import DEFAULT_SPOT_HOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from karpenter_core.provider.kit.unavailable import Shortages
    from karpenter_provider_alibabacloud.api.nodeclass import CapacityReservation
    from karpenter_provider_alibabacloud.catalogue.facts import InstanceTypeFacts
    from karpenter_provider_alibabacloud.catalogue.stock import Stock

__all__ = [
    "Market",
    "OfferingRow",
    "PriceList",
    "SoldType",
    "ZoneVSwitches",
    "offering_rows",
    "offerings_of",
]

_RESERVED_DISCOUNT: Final = 10_000_000
"""What is paid for in any case is as good as free, and yet a smaller machine is cheaper."""


class PriceList(Protocol):
    """What is asked of `prices.Prices`."""

    def on_demand(self, facts: InstanceTypeFacts) -> Price:
        """Return the on-demand price, if need be an estimate."""
        ...

    def spot(
        self, facts: InstanceTypeFacts, zone: str, *, hours: int = DEFAULT_SPOT_HOURS
    ) -> Price:
        """Return the spot price in a zone, if need be an estimate."""
        ...


class ZoneVSwitches(NamedTuple):
    """A zone and the NodeClass's vSwitches in it."""

    zone: str
    v_switches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoldType:
    """An instance type as one NodeClass may buy it."""

    facts: InstanceTypeFacts
    on_demand: tuple[ZoneVSwitches, ...] = ()
    """Where it was ever listed and the NodeClass has a vSwitch; sorted by zone."""
    spot: tuple[ZoneVSwitches, ...] = ()
    """The same for spot."""
    has_image: bool = True
    """Whether the NodeClass has an image that the type can boot."""
    spot_hours: int = DEFAULT_SPOT_HOURS
    """For how long spot instances are safe at least."""
    spot_price_limit: float | None = None
    """What spot may cost per hour at most."""
    reservations: tuple[CapacityReservation, ...] = ()
    """Private pools of this type in zones with a vSwitch; sorted by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What of a region's offerings can be had at one moment, and for how much."""

    stock: Stock
    prices: PriceList
    shortages: Shortages
    reserved_left: Callable[[str], int]
    """How many machines are left of a private pool, by its id."""


class OfferingRow(NamedTuple):
    """One offering as values, to see whether it is another one now."""

    capacity_type: str
    zone: str
    price: Price
    available: bool
    reservation: str = ""
    """Id of the private pool."""
    left: int = 0
    """How many machines are left of it."""


def offering_rows(sold: SoldType, market: Market) -> tuple[OfferingRow, ...]:
    """Return all ways to buy a type, on demand first, then spot, then private pools."""
    return (*_on_demand(sold, market), *_spot(sold, market), *_reserved(sold, market))


def _on_demand(sold: SoldType, market: Market) -> Iterator[OfferingRow]:
    if not sold.on_demand:
        return
    price = market.prices.on_demand(sold.facts)
    in_stock = market.stock.on_demand.get(sold.facts.name, ())
    for each in sold.on_demand:
        available = (
            sold.has_image
            and each.zone in in_stock
            and not _is_short(sold, each, ON_DEMAND, market.shortages)
        )
        yield OfferingRow(ON_DEMAND, each.zone, price, available)


def _spot(sold: SoldType, market: Market) -> Iterator[OfferingRow]:
    in_stock = market.stock.spot_zones(sold.facts.name, sold.spot_hours)
    limit = sold.spot_price_limit
    for each in sold.spot:
        price = market.prices.spot(sold.facts, each.zone, hours=sold.spot_hours)
        available = (
            sold.has_image
            and each.zone in in_stock
            and (limit is None or price.amount <= limit)
            and not _is_short(sold, each, SPOT, market.shortages)
        )
        yield OfferingRow(SPOT, each.zone, price, available)


def _reserved(sold: SoldType, market: Market) -> Iterator[OfferingRow]:
    if not sold.reservations:
        return
    on_demand = market.prices.on_demand(sold.facts)
    price = Price(on_demand.amount / _RESERVED_DISCOUNT, on_demand.currency)
    for pool in sold.reservations:
        left = max(0, market.reserved_left(pool.id))
        available = sold.has_image and left > 0
        yield OfferingRow(RESERVED, pool.zone_id, price, available, pool.id, left)


def _is_short(
    sold: SoldType, zone: ZoneVSwitches, capacity_type: str, shortages: Shortages
) -> bool:
    if shortages.is_empty:
        return False
    mark = OfferingMark(sold.facts.name, zone.zone, capacity_type)
    return shortages.is_unavailable(mark, zone.v_switches)


def offerings_of(rows: Iterable[OfferingRow]) -> tuple[Offering, ...]:
    """Make the offerings of their values."""
    return tuple(
        Offering(
            requirements=offering_requirements(row.capacity_type, row.zone, row.reservation),
            price=row.price,
            available=row.available,
            reservation_capacity=row.left,
        )
        for row in rows
    )
