"""Builds a VM size's offerings: zones and regional, on-demand and spot.

An offering without capacity or quota at the moment is listed as unavailable, so that a node that runs
there keeps its place in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.catalogue import Offering, Price
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_azure.catalogue.requirements import (
    allows_ultra_ssd,
    offering_requirements,
    offering_zones,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_azure.catalogue.prices import RegionPrices
    from karpenter_provider_azure.catalogue.quotas import QuotaSnapshot
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["MarketState", "OfferingRow", "is_open", "offering_rows", "offerings_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketState:
    """Prices, shortages and quotas of a region at one moment."""

    location: str
    prices: RegionPrices
    shortages: UnavailableSnapshot
    quotas: QuotaSnapshot


class OfferingRow(NamedTuple):
    """One offering as values, to compare it with the last one."""

    capacity_type: str
    zone: str
    price: Price
    available: bool
    has_ultra_ssd: bool


def offering_rows(
    size: VmSize, market: MarketState, *, has_image: bool = True
) -> tuple[OfferingRow, ...]:
    """Return the offerings of a size by zone, the regional one last, on-demand before spot.

    Without an image that the size can boot none is available.
    """
    prices = ((ON_DEMAND, market.prices.on_demand), (SPOT, market.prices.spot))
    priced = [
        (capacity_type, price(size.name), has_image and _is_sold(size, capacity_type, market))
        for capacity_type, price in prices
    ]
    return tuple(
        OfferingRow(
            capacity_type,
            zone,
            price,
            sold and not _is_short(size, zone, capacity_type, market.shortages),
            has_ultra_ssd,
        )
        for zone in offering_zones(size, market.location)
        for has_ultra_ssd in (allows_ultra_ssd(size, zone),)
        for capacity_type, price, sold in priced
    )


def is_open(size: VmSize, zone: str, capacity_type: str, market: MarketState) -> bool:
    """Whether an offering can be launched now: no shortage is known, and the quota is large enough."""
    return _is_sold(size, capacity_type, market) and not _is_short(
        size, zone, capacity_type, market.shortages
    )


def offerings_of(rows: Iterable[OfferingRow]) -> tuple[Offering, ...]:
    """Return the offerings of their values."""
    return tuple(
        Offering(
            requirements=offering_requirements(
                row.capacity_type, row.zone, has_ultra_ssd=row.has_ultra_ssd
            ),
            price=row.price,
            available=row.available,
        )
        for row in rows
    )


def _is_sold(size: VmSize, capacity_type: str, market: MarketState) -> bool:
    if capacity_type == SPOT and not size.low_priority_capable:
        return False
    return market.quotas.has_room(size, capacity_type)


def _is_short(size: VmSize, zone: str, capacity_type: str, shortages: UnavailableSnapshot) -> bool:
    return not shortages.is_empty and shortages.is_unavailable(
        UnavailableOffering(size.name, zone, capacity_type),
        group=size.quota_group,
        cpu_milli=size.cpus * 1000,
    )
