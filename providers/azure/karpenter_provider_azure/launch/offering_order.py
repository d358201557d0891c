"""Orders the offerings that a claim may be launched from.

A region has thousands of offerings, and a wave of claims asks for the same ones: they are ranked once.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.launch.cheapest import cheapest_offerings
from karpenter_provider_azure import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest

    OfferedType: TypeAlias = "tuple[InstanceType, Offering]"
    RankedOfferings: TypeAlias = "tuple[tuple[OfferedType, ...], ...]"

__all__ = ["OfferingOrder", "ranked_offerings"]

_WAVES_KEPT: Final = 8


def ranked_offerings(request: LaunchRequest) -> RankedOfferings:
    """Return the available offerings that a claim allows, the best first; equal ones together.

    The lower price is better, then spot, then an offering with a zone, then the name of the type. What is
    left equal are zones of one type.
    """
    found = cheapest_offerings(request, own_labels=labels.WELL_KNOWN)
    return tuple(tuple(equal) for _, equal in groupby(sorted(found, key=_rank), key=_rank))


def _rank(each: OfferedType) -> tuple[float, bool, bool, str]:
    it, offering = each
    is_regional = offering.zone == labels.REGIONAL_ZONE
    return offering.price.amount, offering.capacity_type != SPOT, is_regional, it.name


@final
class OfferingOrder:
    """Orders the offerings of claims; callable from any thread."""

    def __init__(self, draw: Callable[[], float]) -> None:
        """`draw` returns a random number (`random.random`), which decides between equal zones."""
        self._draw: Final = draw
        self._lock: Final = Lock()
        self._ranked: Final[
            OrderedDict[
                tuple[int, tuple[RequirementSpec, ...]],
                tuple[Sequence[InstanceType], RankedOfferings],
            ]
        ] = OrderedDict()
        """By identity of the instance types, which are kept so that no other ones get it."""

    def offerings(self, request: LaunchRequest) -> Iterator[OfferedType]:
        """Yield the available offerings that a claim allows, the best first.

        Zones that differ in nothing are shuffled, so that many claims are spread over them.
        """
        for equal in self._ranked_for(request):
            if len(equal) == 1:
                yield equal[0]
            else:
                yield from sorted(equal, key=lambda _each: self._draw())

    def _ranked_for(self, request: LaunchRequest) -> RankedOfferings:
        key = id(request.instance_types), request.node_claim.spec.requirements
        with self._lock:
            kept = self._ranked.get(key)
        if kept is not None:
            return kept[1]
        ranked = ranked_offerings(request)
        with self._lock:
            self._ranked[key] = request.instance_types, ranked
            while len(self._ranked) > _WAVES_KEPT:
                self._ranked.popitem(last=False)
        return ranked
