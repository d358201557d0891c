"""Builds the current offerings of an instance type.

A type is offered only in zones that ever listed it and in which the NodeClass has a vSwitch: the
type's requirements name the same zones, and pods that spread over zones count them. An offering
without capacity at the moment is listed as unavailable, so that a node that runs there keeps its
place in the catalogue.

An unknown price is estimated: a type whose price was never requested can be launched all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.provider.catalogue import Offering, Price
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.catalogue.requirements import offering_requirements
from karpenter_provider_alibabacloud.catalogue.stock import DEFAULT_SPOT_HOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_alibabacloud.api.nodeclass import CapacityReservation
    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo
    from karpenter_provider_alibabacloud.catalogue.stock import RegionStock

__all__ = [
    "MarketState",
    "OfferingRow",
    "PriceList",
    "PurchasableType",
    "ZoneVSwitches",
    "offering_rows",
    "offerings_of",
]

_RESERVED_DISCOUNT: Final = 10_000_000
"""Reserved capacity is paid for anyway, so almost free; a smaller type is still cheaper."""


class PriceList(Protocol):
    """The methods of `prices.RegionPrices` that the catalogue uses."""

    def on_demand(self, info: InstanceTypeInfo) -> Price:
        """Return the on-demand price, if need be an estimate."""
        ...

    def spot(self, info: InstanceTypeInfo, zone: str, *, hours: int = DEFAULT_SPOT_HOURS) -> Price:
        """Return the spot price in a zone, if need be an estimate."""
        ...


class ZoneVSwitches(NamedTuple):
    """A zone and the NodeClass's vSwitches in it."""

    zone: str
    v_switches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchasableType:
    """An instance type as one NodeClass may buy it."""

    info: InstanceTypeInfo
    on_demand: tuple[ZoneVSwitches, ...] = ()
    """Zones that ever listed the type and have a vSwitch of the NodeClass; sorted by zone."""
    spot: tuple[ZoneVSwitches, ...] = ()
    """The same for spot."""
    has_image: bool = True
    """Whether the NodeClass has an image that the type can boot."""
    spot_hours: int = DEFAULT_SPOT_HOURS
    """For how long spot instances are safe at least."""
    spot_price_limit: float | None = None
    """Maximum price of spot per hour."""
    reservations: tuple[CapacityReservation, ...]
    """Private pools of this type in zones with a vSwitch; sorted by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketState:
    """Prices, stock and reservations of a region at one moment."""

    stock: RegionStock
    prices: PriceList
    shortages: UnavailableSnapshot
    reserved_left: Callable[[str], int]
    """Number of instances left of each private pool, by its id."""


class OfferingRow(NamedTuple):
    """One offering as values, to see whether it is another one now."""

    capacity_type: str
    zone: str
    price: Price
    available: bool
    reservation: str = ""
    """Id of the private pool."""
    reservation_left: int = 0
    """Number of instances left of it."""


def offering_rows(sold: PurchasableType, market: MarketState) -> tuple[OfferingRow, ...]:
    """Return all ways to buy a type, on demand first, then spot, then private pools."""
    return (*_on_demand(sold, market), *_spot(sold, market), *_reserved(sold, market))


def _on_demand(sold: PurchasableType, market: MarketState) -> Iterator[OfferingRow]:
    if not sold.on_demand:
        return
    price = market.prices.on_demand(sold.info)
    in_stock = market.stock.on_demand.get(sold.info.name, ())
    for each in sold.on_demand:
        available = (
            sold.has_image
            and each.zone in in_stock
            and not _is_short(sold, each, ON_DEMAND, market.shortages)
        )
        yield OfferingRow(ON_DEMAND, each.zone, price, available)


def _spot(sold: PurchasableType, market: MarketState) -> Iterator[OfferingRow]:
    in_stock = market.stock.spot_zones(sold.info.name, sold.spot_hours)
    limit = sold.spot_price_limit
    for each in sold.spot:
        price = market.prices.spot(sold.info, each.zone, hours=sold.spot_hours)
        available = (
            sold.has_image
            and each.zone in in_stock
            and (limit is None or price.amount <= limit)
            and not _is_short(sold, each, SPOT, market.shortages)
        )
        yield OfferingRow(SPOT, each.zone, price, available)


def _reserved(sold: PurchasableType, market: MarketState) -> Iterator[OfferingRow]:
    if not sold.reservations:
        return
    on_demand = market.prices.on_demand(sold.info)
    price = Price(on_demand.amount / _RESERVED_DISCOUNT, on_demand.currency)
    for pool in sold.reservations:
        remaining = max(0, market.reserved_left(pool.id))
        available = sold.has_image and remaining > 0
        yield OfferingRow(RESERVED, pool.zone_id, price, available, pool.id, remaining)


def _is_short(
    sold: PurchasableType, zone: ZoneVSwitches, capacity_type: str, shortages: UnavailableSnapshot
) -> bool:
    if shortages.is_empty:
        return False
    name, cpu_milli = sold.info.name, sold.info.cpu_cores * 1000
    mark = UnavailableOffering(name, zone.zone, capacity_type)
    return shortages.is_unavailable(mark, zone.v_switches, group=name, cpu_milli=cpu_milli)


def offerings_of(rows: Iterable[OfferingRow]) -> tuple[Offering, ...]:
    """Make the offerings of their values."""
    return tuple(
        Offering(
            requirements=offering_requirements(row.capacity_type, row.zone, row.reservation),
            price=row.price,
            available=row.available,
            reservation_capacity=row.reservation_left,
        )
        for row in rows
    )
