"""Orders the offerings that a claim may be launched from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.launch.cheapest import cheapest_offerings
from karpenter_provider_azure import labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest

__all__ = ["ordered_offerings"]


def ordered_offerings(
    request: LaunchRequest, *, draw: Callable[[], float]
) -> list[tuple[InstanceType, Offering]]:
    """Return the available offerings that a claim allows, the best first.

    The lower price is better, then spot, then an offering with a zone, then the name of the type. Zones of
    one type that differ in nothing are shuffled, so that many claims are spread over them: `draw` returns
    a random number (`random.random`).
    """
    found = cheapest_offerings(request, own_labels=labels.WELL_KNOWN)

    def rank(each: tuple[InstanceType, Offering]) -> tuple[float, bool, bool, str, float]:
        it, offering = each
        is_regional = offering.zone == labels.REGIONAL_ZONE
        price = offering.price.amount
        return price, offering.capacity_type != SPOT, is_regional, it.name, draw()

    return sorted(found, key=rank)
