"""Prices candidates, and limits replacements to cheaper instance types.

A replacement may become any type that its claim lists, so a type is kept only if even the most
expensive offering that may be launched costs less (`worst_launch_price`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import fsum, inf, isnan
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
from karpenter_core.scheduling.commitment_bill import CommitmentBill
from karpenter_core.scheduling.commitment_prices import PlanPricing
from karpenter_core.scheduling.commitments import SoldNode
from karpenter_core.scheduling.offerings import (
    cheapest_offering,
    cheapest_price,
    count_min_values,
    worst_launch_price,
)
from karpenter_core.scheduling.problem import CheapestOffering, SchedulingProblem
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.resources import element_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
        PlannedNodeClaim,
        SolveOptions,
    )
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["FREE", "NodePrices", "ReplacementRefusedError", "current_price"]

FREE: Final = Price(0.0)
_PRICE_DIGITS: Final = 9


def current_price(instance_type: InstanceType | None, zone: str, capacity_type: str) -> Price:
    """Return the price of a running node, available or not; 0 when it is unknown."""
    listed_price = _listed_price(instance_type, zone, capacity_type)
    return FREE if listed_price is None else listed_price


def _listed_price(
    instance_type: InstanceType | None, zone: str, capacity_type: str
) -> Price | None:
    offering = _offering(instance_type, zone, capacity_type)
    return None if offering is None or isnan(offering.price.amount) else offering.price


def _offering(instance_type: InstanceType | None, zone: str, capacity_type: str) -> Offering | None:
    for offering in () if instance_type is None else instance_type.offerings:
        if offering.zone == zone and offering.capacity_type == capacity_type:
            return offering
    return None


class ReplacementRefusedError(Exception):
    """A replacement is not possible; the text is for Events."""


class PricedNode(Protocol):
    """A node with a price, such as a candidate."""

    @property
    def price(self) -> Price:
        """Its price per hour."""
        ...

    @property
    def instance_type(self) -> InstanceType | None:
        """Its instance type, if it is known."""
        ...

    @property
    def zone(self) -> str:
        """Its zone."""
        ...

    @property
    def capacity_type(self) -> str:
        """Its capacity type."""
        ...


@final
class NodePrices:
    """Compares prices in the reporting currency, and narrows replacements down by price."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: SolveOptions,
        *,
        well_known: frozenset[str] = frozenset(),
        commitments: tuple[CommitmentBalance, ...] = (),
    ) -> None:
        """Take the balances of commitments, which are paid whether nodes use them or not."""
        self._commitments: Final = commitments
        self._snapshot: Final = snapshot
        self._currency: Final = options.currency
        self._rates: Final = {options.currency: 1.0, **options.exchange_rates}
        self._well_known: Final = WELL_KNOWN | well_known
        self._options: Final = options
        self._types: Final = dict[str, "Mapping[str, InstanceType]"]()

    @property
    def currency(self) -> str:
        """The reporting currency."""
        return self._currency

    @property
    def rates(self) -> Mapping[str, float]:
        """Exchange rates to the reporting currency."""
        return self._rates

    @property
    def has_commitments(self) -> bool:
        """Whether part of the price of nodes is paid anyway."""
        return bool(self._commitments)

    def cost_per_hour(self, candidates: Iterable[PricedNode]) -> float:
        """Return what would be saved per hour without candidates; unknown prices count 0.

        That is the sum of their prices, less what commitments pay for anyway.
        """
        counted = tuple(candidates)
        total = fsum(self.convert(candidate.price) for candidate in counted)
        if not self._commitments:
            return total
        sold = tuple(found for each in counted if (found := self._sold(each)) is not None)
        listed = fsum(self.convert(each.offering.price) for each in sold)
        # Exact sums differ by nothing, and nodes would be replaced for what is left of rounding.
        return round(max(total - listed + self._bill.saved_without(sold), 0.0), _PRICE_DIGITS)

    def paid_anyway(self, state_node: StateNode) -> float:
        """Return the part of a node's price that commitments would still pay for without it."""
        sold = self._sold_node(state_node) if self._commitments else None
        if sold is None:
            return 0.0
        return max(self.convert(sold.offering.price) - self._bill.saved_without((sold,)), 0.0)

    @cached_property
    def _bill(self) -> CommitmentBill:
        """The bill of all nodes that stay: those that leave are about to use no commitment."""
        staying = (
            found
            for state_node in self._snapshot.state_nodes
            if not state_node.marked_for_deletion
            and (found := self._sold_node(state_node)) is not None
        )
        return CommitmentBill(self._commitments, staying, self._rates)

    def _sold_node(self, state_node: StateNode) -> SoldNode | None:
        types = self._types_of_pool(state_node.pool)
        instance_type = types.get(state_node.labels.get(INSTANCE_TYPE, ""))
        offering = self.offering_of(state_node)
        if instance_type is None or offering is None or isnan(offering.price.amount):
            return None
        return SoldNode(instance_type, offering)

    def _sold(self, candidate: PricedNode) -> SoldNode | None:
        found = _offering(candidate.instance_type, candidate.zone, candidate.capacity_type)
        if candidate.instance_type is None or found is None or isnan(found.price.amount):
            return None
        return SoldNode(candidate.instance_type, found)

    def convert(self, price: Price) -> float:
        """Return a price per hour in the reporting currency; 0 when it has no rate.

        A node that cannot be priced is never replaced: no replacement costs less than 0.
        """
        return price.amount * self._rates.get(price.currency, 0.0)

    def missing_rates_message(self, currencies: Iterable[str]) -> str:
        """Return a message naming currencies without exchange rate; empty when all have one."""
        missing = sorted(set(currencies) - self._rates.keys())
        return f"no exchange rate from {', '.join(missing)} to {self._currency}" if missing else ""

    def price_of(self, state_node: StateNode) -> Price:
        """Return the price of a node by its labels, whether its offering is available or not."""
        listed_price = self.listed_price_of(state_node)
        return FREE if listed_price is None else listed_price

    def hourly_cost_of(self, state_node: StateNode) -> float | None:
        """Return that price in the reporting currency; None when it is unknown."""
        listed_price = self.listed_price_of(state_node)
        if listed_price is None or listed_price.currency not in self._rates:
            return None
        return self.convert(listed_price)

    def offering_of(self, state_node: StateNode) -> Offering | None:
        """Return the offering of a node by its labels, available or not; None if none is listed."""
        labels = state_node.labels
        instance_type = self._types_of_pool(state_node.pool).get(labels.get(INSTANCE_TYPE, ""))
        return _offering(instance_type, labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ""))

    def listed_price_of(self, state_node: StateNode) -> Price | None:
        """Return the price of a node in its catalogue, overlays included; None when it is unknown."""
        instance_type = self._types_of_pool(state_node.pool).get(
            state_node.labels.get(INSTANCE_TYPE, "")
        )
        return _listed_price(
            instance_type, state_node.labels.get(ZONE, ""), state_node.labels.get(CAPACITY_TYPE, "")
        )

    def types_of(self, planned: PlannedNodeClaim) -> tuple[InstanceType, ...]:
        """Return the types that a replacement lists, in its order."""
        types_by_name = self._types_of_pool(planned.pool)
        return tuple(
            types_by_name[name] for name in planned.instance_types if name in types_by_name
        )

    def is_spot_possible(self, planned: PlannedNodeClaim) -> bool:
        """Tell whether a replacement may be launched as spot."""
        return _requirements(planned).get(CAPACITY_TYPE).has(SPOT)

    def limited_by_price(
        self, planned: PlannedNodeClaim, *, below_price: float, only_spot: bool = False
    ) -> PlannedNodeClaim:
        """Return a replacement with only the types that always cost less than a price per hour.

        One that allows spot and on-demand is narrowed to spot where it can be, so that a failed
        spot launch does not end in an on-demand node that costs more than the candidates. With
        `only_spot` it is spot in any case.

        Raises:
            ReplacementRefusedError: no type is left, or too few for `minValues`.
        """
        requirements = _requirements(planned)
        capacity_types = requirements.get(CAPACITY_TYPE)
        if only_spot or (capacity_types.has(SPOT) and not capacity_types.has(RESERVED)):
            spot = _with_capacity_type(requirements, SPOT)
            cheaper_types = self._cheaper(self.types_of(planned), spot, below_price)
            if cheaper_types or only_spot:
                return self._replacement(planned, cheaper_types, spot)
            if not capacity_types.has(ON_DEMAND):
                return self._replacement(planned, (), spot)
            requirements = _with_capacity_type(requirements, ON_DEMAND)
        cheaper_types = self._cheaper(self.types_of(planned), requirements, below_price)
        return self._replacement(planned, cheaper_types, requirements)

    def limited_by_ceilings(
        self, planned: PlannedNodeClaim, ceilings: Mapping[str, float]
    ) -> PlannedNodeClaim:
        """Return a replacement without types that cost as much as a listed candidate's type.

        `ceilings` are the current prices of the candidates' types. A type that costs as much as
        the cheapest of those that the replacement lists too would only swap nodes.

        Raises:
            ReplacementRefusedError: no type is left, or too few for `minValues`.
        """
        shared = [ceilings[name] for name in planned.instance_types if name in ceilings]
        if not shared:
            return planned
        requirements = _requirements(planned)
        cheaper_types = self._cheaper(self.types_of(planned), requirements, min(shared))
        return self._replacement(planned, cheaper_types, requirements)

    def limited_to_cheapest(self, planned: PlannedNodeClaim, max_types: int) -> PlannedNodeClaim:
        """Return a replacement with its cheapest types only, but enough for `minValues`."""
        requirements = _requirements(planned)
        types = self._ordered(self.types_of(planned), requirements)
        needed = count_min_values(types, requirements).needed
        return self._replacement(planned, types[: max(max_types, needed)], requirements)

    @property
    def has_unused_commitments(self) -> bool:
        """Whether a commitment has something left for another node."""
        return any(balance.remaining > 0 for balance in self._commitments)

    def limited_to_commitment(
        self, planned: PlannedNodeClaim, *, below_price: float
    ) -> PlannedNodeClaim | None:
        """Return a replacement with the types of a commitment that cost less with what is left of it.

        None if there are none, or too few for `minValues`.
        """
        return self._plan_pricing.within_commitment(planned, below_price=below_price)

    @cached_property
    def _plan_pricing(self) -> PlanPricing:
        problem = SchedulingProblem(
            pods=(),
            catalogues=self._snapshot.catalogues,
            well_known=self._well_known,
            commitments=self._commitments,
        )
        return PlanPricing(problem, self._options)

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
            raise ReplacementRefusedError("Can't replace with a cheaper node")
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
            raise ReplacementRefusedError(f"Filtering by price: {satisfied}")
        offering = cheapest_offering(ordered[0], requirements, well_known=self._well_known)
        if offering is None:
            raise ReplacementRefusedError("Can't replace with a cheaper node")
        return replace(
            planned,
            instance_types=tuple(it.name for it in ordered),
            requirements=tuple(requirements.get(key) for key in sorted(requirements)),
            cheapest=CheapestOffering(
                instance_type=ordered[0].name,
                zone=offering.zone,
                capacity_type=offering.capacity_type,
                price_per_hour=self.convert(offering.price),
                list_price_per_hour=None
                if offering.list_price is None
                else self.convert(offering.list_price),
                price_source=offering.price_source,
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
        """Return the exchange rate of a type's prices; infinite without one, so never cheaper."""
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
