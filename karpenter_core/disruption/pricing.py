"""Money of a move: what candidates cost, and which types of a replacement are surely cheaper.

A replacement may become any type that its claim lists, so a type is kept only if even the dearest
offering it may be launched as costs less (`worst_launch_price`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    RESERVED,
    SPOT,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.offerings import (
    cheapest_offering,
    cheapest_price,
    count_min_values,
    worst_launch_price,
)
from karpenter_core.scheduling.problem import CheapestOffering
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.resources import element_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SolveOptions
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["FREE", "Prices", "Refused", "current_price"]

FREE: Final = Price(0.0)


def current_price(instance_type: InstanceType | None, zone: str, capacity_type: str) -> Price:
    """Return what a running machine costs, be its offering available or not; 0 when unknown."""
    found = _listed_price(instance_type, zone, capacity_type)
    return FREE if found is None else found


def _listed_price(
    instance_type: InstanceType | None, zone: str, capacity_type: str
) -> Price | None:
    for offering in () if instance_type is None else instance_type.offerings:
        if offering.zone == zone and offering.capacity_type == capacity_type:
            return None if isnan(offering.price.amount) else offering.price
    return None


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """A replacement is not possible; the text says why, for Events."""


class Priced(Protocol):
    """A node that costs something: a candidate, as far as its money goes."""

    @property
    def price(self) -> Price:
        """Its price per hour."""
        ...


@final
class Prices:
    """Compares prices in the reporting currency, and narrows replacements down by price."""

    def __init__(
        self, snapshot: Snapshot, options: SolveOptions, *, well_known: frozenset[str] = frozenset()
    ) -> None:
        self._snapshot: Final = snapshot
        self._currency: Final = options.currency
        self._rates: Final = {options.currency: 1.0, **options.exchange_rates}
        self._well_known: Final = WELL_KNOWN | well_known
        self._types: Final = dict[str, "Mapping[str, InstanceType]"]()

    def of(self, candidates: Iterable[Priced]) -> float:
        """Return what candidates cost per hour together; 0 for what nobody can price."""
        return sum(self.of_price(candidate.price) for candidate in candidates)

    def of_price(self, price: Price) -> float:
        """Return a price per hour in the reporting currency; 0 when it has no rate.

        A machine that cannot be priced is never replaced: nothing is cheaper than nothing.
        """
        return price.amount * self._rates.get(price.currency, 0.0)

    def unrated(self, currencies: Iterable[str]) -> str:
        """Say which of these have no exchange rate; empty when all have one."""
        missing = sorted(set(currencies) - self._rates.keys())
        return f"no exchange rate from {', '.join(missing)} to {self._currency}" if missing else ""

    def known(self, machine: StateNode) -> Price:
        """Return what a machine costs by its labels, whether that can be bought now or not."""
        found = self._listed(machine)
        return FREE if found is None else found

    def cost_of(self, machine: StateNode) -> float | None:
        """Return the same in the reporting currency; None when it cannot be told."""
        found = self._listed(machine)
        if found is None or found.currency not in self._rates:
            return None
        return self.of_price(found)

    def _listed(self, machine: StateNode) -> Price | None:
        known = self._types_of_pool(machine.pool).get(machine.labels.get(INSTANCE_TYPE, ""))
        return _listed_price(
            known, machine.labels.get(ZONE, ""), machine.labels.get(CAPACITY_TYPE, "")
        )

    def types_of(self, planned: PlannedNodeClaim) -> tuple[InstanceType, ...]:
        """Return the types that a replacement lists, in its order."""
        known = self._types_of_pool(planned.pool)
        return tuple(known[name] for name in planned.instance_types if name in known)

    def is_spot_possible(self, planned: PlannedNodeClaim) -> bool:
        """Tell whether a replacement may be launched as spot."""
        return _requirements(planned).get(CAPACITY_TYPE).has(SPOT)

    def narrowed(
        self, planned: PlannedNodeClaim, *, below_price: float, only_spot: bool = False
    ) -> PlannedNodeClaim:
        """Return a replacement with only the types that surely cost less than a price per hour.

        One that might be spot or on demand becomes spot, so that a failed launch of spot does not
        end in something dearer than what it replaces. With `only_spot` it is spot in any case.

        Raises:
            Refused: no type is left, or too few for `minValues`.
        """
        requirements = _requirements(planned)
        capacity_types = requirements.get(CAPACITY_TYPE)
        if only_spot or (capacity_types.has(SPOT) and not capacity_types.has(RESERVED)):
            spot = _with_capacity_type(requirements, SPOT)
            kept = self._cheaper(self.types_of(planned), spot, below_price)
            if kept or only_spot:
                return self._replacement(planned, kept, spot)
            if not capacity_types.has(ON_DEMAND):
                return self._replacement(planned, (), spot)
            requirements = _with_capacity_type(requirements, ON_DEMAND)
        kept = self._cheaper(self.types_of(planned), requirements, below_price)
        return self._replacement(planned, kept, requirements)

    def without(self, planned: PlannedNodeClaim, ceilings: Mapping[str, float]) -> PlannedNodeClaim:
        """Return a replacement without the types that are no improvement on what is there.

        `ceilings` are the current prices of the types among the candidates. Whatever costs as much
        as the cheapest of those that the replacement lists as well would only swap machines.

        Raises:
            Refused: no type is left, or too few for `minValues`.
        """
        shared = [ceilings[name] for name in planned.instance_types if name in ceilings]
        if not shared:
            return planned
        requirements = _requirements(planned)
        kept = self._cheaper(self.types_of(planned), requirements, min(shared))
        return self._replacement(planned, kept, requirements)

    def limited(self, planned: PlannedNodeClaim, most_types: int) -> PlannedNodeClaim:
        """Return a replacement with its cheapest types only, but enough for `minValues`."""
        requirements = _requirements(planned)
        types = self._ordered(self.types_of(planned), requirements)
        needed = count_min_values(types, requirements).needed
        return self._replacement(planned, types[: max(most_types, needed)], requirements)

    def _cheaper(
        self, types: Sequence[InstanceType], requirements: Requirements, below_price: float
    ) -> tuple[InstanceType, ...]:
        return tuple(
            it
            for it in types
            if worst_launch_price(it, requirements, well_known=self._well_known) * self._rate(it)
            < below_price
        )

    def _replacement(
        self,
        planned: PlannedNodeClaim,
        types: Sequence[InstanceType],
        requirements: Requirements,
    ) -> PlannedNodeClaim:
        if not types:
            raise Refused("Can't replace with a cheaper node")
        ordered = self._ordered(types, requirements)
        names = frozenset(it.name for it in ordered)
        listed = requirements.get(INSTANCE_TYPE)
        requirements = requirements.replace(
            Requirement(
                key=INSTANCE_TYPE, complement=False, values=names, min_values=listed.min_values
            )
        )
        satisfied = count_min_values(ordered, requirements)
        if not satisfied:
            raise Refused(f"Filtering by price: {satisfied}")
        offering = cheapest_offering(ordered[0], requirements, well_known=self._well_known)
        if offering is None:
            raise Refused("Can't replace with a cheaper node")
        return replace(
            planned,
            instance_types=tuple(it.name for it in ordered),
            requirements=tuple(requirements.get(key) for key in sorted(requirements)),
            cheapest=CheapestOffering(
                instance_type=ordered[0].name,
                zone=offering.zone,
                capacity_type=offering.capacity_type,
                price_per_hour=self.of_price(offering.price),
            ),
            capacity_max=element_max(it.capacity for it in ordered),
        )

    def _ordered(
        self, types: Sequence[InstanceType], requirements: Requirements
    ) -> tuple[InstanceType, ...]:
        """Sort by the cheapest offering that the requirements allow, then by name."""

        def rank(it: InstanceType) -> tuple[float, str]:
            price = cheapest_price(it, requirements, well_known=self._well_known)
            return price * self._rate(it), it.name

        return tuple(sorted(types, key=rank))

    def _rate(self, instance_type: InstanceType) -> float:
        """Return the exchange rate of a type's prices; without one it is never cheaper."""
        currencies = {offering.price.currency for offering in instance_type.offerings}
        return max((self._rates.get(currency, inf) for currency in currencies), default=1.0)

    def _types_of_pool(self, pool: str) -> Mapping[str, InstanceType]:
        if pool not in self._types:
            catalogue = self._snapshot.catalogues.get(pool)
            types = () if catalogue is None else catalogue.instance_types
            self._types[pool] = {it.name: it for it in types}
        return self._types[pool]


def _requirements(planned: PlannedNodeClaim) -> Requirements:
    return Requirements(planned.requirements)


def _with_capacity_type(requirements: Requirements, capacity_type: str) -> Requirements:
    return requirements.replace(Requirement.of(CAPACITY_TYPE, "In", (capacity_type,)))
