"""Builds the current offerings of an instance type.

Offerings come out of a chain of resolvers, each of which gets the result of the one before it:
on-demand and spot first, then reservations, then the partitions of a placement group, then what an
extension adds. Resolvers are plain functions of the type as one NodeClass sees it and of the market
at that moment.

A type is offered only in zones that sell it and in which the NodeClass has a subnet (rule PC-022);
an offering without capacity at the moment is listed as unavailable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED, SPOT, ZONE
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws import labels
from karpenter_provider_aws.catalogue.requirements import interruptible_text, is_any_of
from karpenter_provider_aws.quotas import quota_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_aws.api.nodeclass import CapacityReservation
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup

__all__ = [
    "RESOLVERS",
    "MarketState",
    "OfferingResolver",
    "PriceList",
    "PurchasableType",
    "ZoneSubnets",
    "base_offerings",
    "partitioned_offerings",
    "reserved_offerings",
]

_RESERVED_DISCOUNT: Final = 10_000_000
"""Reserved capacity is paid for anyway, so almost free; a smaller type is still cheaper."""
_EXPIRING: Final = "expiring"


class PriceList(Protocol):
    """The methods of `prices.RegionPrices` that the catalogue uses."""

    @property
    def currency(self) -> str:
        """Of all prices."""
        ...

    def on_demand(self, instance_type: str) -> Price | None:
        """Return the on-demand price; None when it is not known."""
        ...

    def spot(self, instance_type: str, zone: str) -> Price | None:
        """Return the spot price; None when it is not known."""
        ...

    def is_of_cloud(self, instance_type: str, capacity_type: str, zone: str, amount: float) -> bool:
        """Whether the cloud asks this amount, or has asked it of late."""
        ...


class ZoneSubnets(NamedTuple):
    """A zone and the NodeClass's subnets in it."""

    zone: str
    zone_id: str
    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchasableType:
    """An instance type as one NodeClass may buy it."""

    name: str
    zones: tuple[ZoneSubnets, ...]
    """Zones that sell the type and have a subnet of the NodeClass; sorted."""
    capacity_types: tuple[str, ...]
    """`on-demand` and `spot`, as far as it is sold so; sorted."""
    cpu_milli: int = 0
    is_compatible: bool = True
    reservations: tuple[CapacityReservation, ...]
    """Of this type; sorted by id."""
    group: DescribedPlacementGroup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketState:
    """Prices, stock and reservations of a region at one moment."""

    prices: PriceList
    shortages: UnavailableSnapshot
    reserved_left: Callable[[str], int]
    """Number of instances left of each reservation, by its id."""
    shifted_zones: frozenset[str] = frozenset()
    """Ids of zones that traffic is shifted away from."""


OfferingResolver: TypeAlias = (
    "Callable[[PurchasableType, tuple[Offering, ...], MarketState], tuple[Offering, ...]]"
)


def base_offerings(
    sold: PurchasableType, offerings: tuple[Offering, ...], market: MarketState
) -> tuple[Offering, ...]:
    """Add one offering for each zone and capacity type, reservations apart.

    A price that is not known makes an offering unavailable. It still has one, the on-demand price
    if there is one: that is what such an instance costs at most, should one be running.
    """
    on_demand = market.prices.on_demand(sold.name)
    added: list[Offering] = []
    for zone in sold.zones:
        is_open = sold.is_compatible and zone.zone_id not in market.shifted_zones
        for capacity_type in sold.capacity_types:
            is_spot = capacity_type == SPOT
            price = market.prices.spot(sold.name, zone.zone) if is_spot else on_demand
            added.append(
                Offering(
                    requirements=_plain(capacity_type, zone.zone, zone.zone_id),
                    price=price or on_demand or Price(0.0, market.prices.currency),
                    available=(
                        is_open
                        and price is not None
                        and not _is_sold_out(sold, zone, capacity_type, market.shortages)
                    ),
                )
            )
    return (*offerings, *added)


def reserved_offerings(
    sold: PurchasableType, offerings: tuple[Offering, ...], market: MarketState
) -> tuple[Offering, ...]:
    """Add one offering for each reservation of the type."""
    if not sold.reservations:
        return offerings
    zones = {zone.zone: zone for zone in sold.zones}
    on_demand = market.prices.on_demand(sold.name) or Price(0.0, market.prices.currency)
    price = Price(on_demand.amount / _RESERVED_DISCOUNT, on_demand.currency)
    added: list[Offering] = []
    for reservation in sold.reservations:
        zone = zones.get(reservation.availability_zone)
        if zone is None:
            continue
        remaining = market.reserved_left(reservation.id)
        added.append(
            Offering(
                requirements=_reserved(reservation, zone),
                price=price,
                available=(
                    sold.is_compatible
                    and remaining > 0
                    and reservation.state != _EXPIRING
                    and zone.zone_id not in market.shifted_zones
                ),
                reservation_capacity=max(remaining, 0),
            )
        )
    return (*offerings, *added)


def partitioned_offerings(
    sold: PurchasableType, offerings: tuple[Offering, ...], market: MarketState
) -> tuple[Offering, ...]:
    """Offer each partition of a partition placement group on its own."""
    group = sold.group
    if group is None or not group.partitions:
        return offerings
    partitions = tuple(str(number) for number in range(1, group.partitions + 1))
    return tuple(
        replace(
            offering,
            requirements=_in_partition(offering.requirements, partition),
            available=offering.available
            and UnavailableOffering(
                sold.name, offering.zone, offering.capacity_type, group.id, partition
            )
            not in market.shortages.offerings,
        )
        for offering in offerings
        for partition in partitions
    )


RESOLVERS: Final[tuple[OfferingResolver, ...]] = (
    base_offerings,
    reserved_offerings,
    partitioned_offerings,
)
"""The chain, in order; an extension's resolvers follow."""


def _is_sold_out(
    sold: PurchasableType, zone: ZoneSubnets, capacity_type: str, shortages: UnavailableSnapshot
) -> bool:
    if shortages.is_empty:
        return False
    mark = UnavailableOffering(
        sold.name, zone.zone, capacity_type, "" if sold.group is None else sold.group.id
    )
    return shortages.is_unavailable(
        mark, zone.subnets, group=quota_class(sold.name), cpu_milli=sold.cpu_milli
    )


@lru_cache(maxsize=1024)
def _plain(capacity_type: str, zone: str, zone_id: str) -> Requirements:
    """Return the requirements of offerings outside of reservations; of a thousand types one object."""
    return Requirements(
        (
            is_any_of(CAPACITY_TYPE, capacity_type),
            is_any_of(ZONE, zone),
            *((is_any_of(labels.ZONE_ID, zone_id),) if zone_id else ()),
            *(is_any_of(key) for key in sorted(labels.RESERVATION_LABELS)),
        )
    )


def _reserved(reservation: CapacityReservation, zone: ZoneSubnets) -> Requirements:
    interruptible = interruptible_text(reservation)
    return Requirements(
        (
            is_any_of(CAPACITY_TYPE, RESERVED),
            is_any_of(ZONE, zone.zone),
            *((is_any_of(labels.ZONE_ID, zone.zone_id),) if zone.zone_id else ()),
            is_any_of(labels.CAPACITY_RESERVATION_ID, reservation.id),
            is_any_of(labels.CAPACITY_RESERVATION_TYPE, reservation.reservation_type),
            is_any_of(labels.CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible),
        )
    )


@lru_cache(maxsize=4096)
def _in_partition(requirements: Requirements, partition: str) -> Requirements:
    return requirements.add(is_any_of(labels.PLACEMENT_GROUP_PARTITION, partition))
