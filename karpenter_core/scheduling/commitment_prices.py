"""Prices a plan's claims with unused commitments; each unit counts once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

from karpenter_core.api.commitments import COMMITTED_SOURCE
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, WELL_KNOWN
from karpenter_core.scheduling.commitments import (
    Cover,
    SoldNode,
    committed_units,
    is_covered,
)
from karpenter_core.scheduling.offerings import (
    AllocatableGroup,
    allocatable_groups,
    compatible_offerings,
    count_min_values,
)
from karpenter_core.scheduling.problem import CheapestOffering
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.resources import fits

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Mapping, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
        PlannedNodeClaim,
        SchedulingPlan,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = ["PlanPricing", "PricedPlan"]

_Result = TypeVar("_Result")

_ROUNDING: Final = 1e-9
"""Relative; the solver's prices went through other operations."""


def _part_price(listed: float, units: int, covered: float, taken: int) -> float:
    """Return the price of a node of which so many units are covered."""
    return listed - (listed - covered) * taken / units


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choice:
    """One way to launch a planned claim, at list prices.

    `covers` are the commitments for it, with the units that it takes and its price if all of them
    are covered; `floor` is the lowest of these prices.
    """

    sold: SoldNode
    name: str
    """Of its instance type."""
    order: int
    covers: tuple[tuple[CommitmentBalance, int, float], ...]
    price: float
    """Its list price."""
    floor: float

    @property
    def currency(self) -> str:
        """The currency of its price."""
        return self.sold.offering.price.currency

    def rank(self, price: float) -> tuple[float, str, str, int]:
        """Return its place in the order of choices at a price."""
        return price, self.name, self.sold.offering.zone, self.order

    def cover(self, remaining: Mapping[str, int]) -> Cover | None:
        """Return the cover that makes it cheapest; the first one of equals, None without any."""
        best: Cover | None = None
        for balance, units, covered in self.covers:
            taken = min(units, remaining[balance.commitment.name])
            price = _part_price(self.price, units, covered, taken)
            if taken > 0 and price < (self.price if best is None else best.price):
                best = Cover(price, taken, balance.commitment.name)
        return best


class _CoveredTypes(NamedTuple):
    """The types among choices that a commitment covers, in the order of their list prices.

    `types_of_key` are, for each label that the commitment asks of offerings, the types with an
    offering that has it.
    """

    types: tuple[InstanceType, ...]
    types_of_key: tuple[tuple[str, frozenset[str]], ...]


@final
class _Choices:
    """All choices of a NodePool for claims that can use the same offerings."""

    def __init__(self, choices: Iterable[_Choice]) -> None:
        ordered = sorted(choices, key=lambda each: each.rank(each.price))
        self._choices = tuple(ordered)
        cheapest_of_type: dict[str, _Choice] = {}
        for choice in ordered:
            cheapest_of_type.setdefault(choice.name, choice)
        self._by_price = tuple(cheapest_of_type.items())
        self._by_floor = tuple(
            (each.name, each.floor, each)
            for each in sorted(ordered, key=lambda each: each.rank(each.floor))
        )
        self._covered: dict[str, _CoveredTypes] = {}
        self._covers: dict[str, list[tuple[_Choice, Cover | None]]] = {}

    def listed(self, names: Container[str]) -> _Choice:
        """Return the choice among some types with the lowest list price."""
        return next(choice for name, choice in self._by_price if name in names)

    def types(self, names: Container[str]) -> tuple[InstanceType, ...]:
        """Return those types, in the order of their list prices."""
        return tuple(each.sold.instance_type for name, each in self._by_price if name in names)

    def cheapest(
        self, names: Container[str], remaining: Mapping[str, int]
    ) -> tuple[_Choice, float, Cover | None] | None:
        """Return the choice among some types that is cheapest with what is left, and its price."""
        best: tuple[_Choice, float, Cover | None] | None = None
        for name, floor, choice in self._by_floor:
            if name not in names:
                continue
            if best is not None and floor > best[1]:
                break
            cover = choice.cover(remaining)
            price = choice.price if cover is None else cover.price
            if best is None or choice.rank(price) < best[0].rank(best[1]):
                best = choice, price, cover
        return best

    def covered(self, balance: CommitmentBalance) -> _CoveredTypes:
        """Return the types that a commitment covers."""
        name = balance.commitment.name
        found = self._covered.get(name)
        if found is None:
            kept = [one for one in self._choices if any(it is balance for it, _, _ in one.covers)]
            types_of_key: dict[str, set[str]] = {}
            for choice in self._choices:
                for key in choice.sold.offering.requirements:
                    if key in balance.requirements:
                        types_of_key.setdefault(key, set()).add(choice.name)
            found = self._covered[name] = _CoveredTypes(
                tuple({one.name: one.sold.instance_type for one in kept}.values()),
                tuple((key, frozenset(names)) for key, names in sorted(types_of_key.items())),
            )
        return found

    def within(
        self,
        balance: CommitmentBalance,
        names: Container[str],
        rates: Mapping[str, float],
        below_price: float,
    ) -> list[tuple[_Choice, Cover]]:
        """Return what a commitment covers of some types, of those that always cost less than a price."""
        offers: list[tuple[_Choice, Cover]] = []
        dear: set[str] = set()
        for choice, cover in self._offers(balance):
            if choice.name not in names:
                continue
            price = choice.price if cover is None else cover.price
            if cover is None or price * rates.get(choice.currency, inf) >= below_price:
                dear.add(choice.name)
            else:
                offers.append((choice, cover))
        return [offer for offer in offers if offer[0].name not in dear]

    def _offers(self, balance: CommitmentBalance) -> Sequence[tuple[_Choice, Cover | None]]:
        """Return the choices that a commitment covers, with all that is left of it, or not any more."""
        name = balance.commitment.name
        found = self._covers.get(name)
        if found is None:
            remaining = {name: balance.remaining}
            found = self._covers[name] = [
                (choice, replace(choice, covers=covers).cover(remaining))
                for choice in self._choices
                if (covers := tuple(each for each in choice.covers if each[0] is balance))
            ]
        return found

    @cached_property
    def _largest_first(self) -> tuple[tuple[str, tuple[tuple[int, str], ...]], ...]:
        amounts: dict[str, list[tuple[int, str]]] = {}
        for name, choice in self._by_price:
            for key, amount in choice.sold.instance_type.capacity.items():
                amounts.setdefault(key, []).append((amount, name))
        return tuple((key, tuple(sorted(each, reverse=True))) for key, each in amounts.items())

    def capacity_max(self, names: Container[str]) -> dict[str, int]:
        """Return the largest amount of every resource that any of some types has."""
        largest: dict[str, int] = {}
        for key, amounts in self._largest_first:
            found = next((amount for amount, name in amounts if name in names), None)
            if found is not None:
                largest[key] = found
        return largest


class _PricedClaim(NamedTuple):
    """A planned claim with its best choice at the price that it has in its plan; None: as it was."""

    planned: PlannedNodeClaim
    price_per_hour: float
    choices: _Choices | None = None
    best: _Choice | None = None
    cover: Cover | None = None


class PricedPlan(NamedTuple):
    """A plan whose claims are priced together, and not yet written again."""

    plan: SchedulingPlan
    claims: tuple[_PricedClaim, ...]
    hourly: float

    @property
    def is_short(self) -> bool:
        """Whether the commitments do not cover all that the plan took to be covered."""
        return any(
            priced.price_per_hour > priced.planned.cheapest.price_per_hour * (1 + _ROUNDING)
            for priced in self.claims
        )


@final
class PlanPricing:
    """Prices the claims of plans, in their order; each takes from what is left.

    Claims have hundreds of instance types and differ in few of the labels that offerings have: the
    choices of those with the same are sorted once. A claim that a commitment covers is narrowed to
    its types, but only in the plan that is taken.
    """

    def __init__(self, problem: SchedulingProblem, options: SolveOptions) -> None:
        self._problem = problem
        self._balances = {each.commitment.name: each for each in problem.commitments}
        self._rates = {options.currency: 1.0, **options.exchange_rates}
        self._well_known = WELL_KNOWN | problem.well_known
        self._remaining: dict[str, int] = {}
        self._offered_keys: dict[str, tuple[str, ...]] = {}
        self._overriding: dict[str, tuple[AllocatableGroup, ...]] = {}
        self._too_small: dict[tuple[object, ...], frozenset[Offering]] = {}
        self._choices: dict[tuple[object, ...], _Choices] = {}

    def priced_steps(self, plan: SchedulingPlan) -> Generator[int, None, PricedPlan]:
        """Return the prices that the claims of a plan have together."""
        self._remaining = {name: each.remaining for name, each in self._balances.items()}
        claims: list[_PricedClaim] = []
        for planned in plan.claims:
            claims.append((yield from self._claim_steps(planned)))
            yield 1
        hourly = fsum(priced.price_per_hour for priced in claims)
        return PricedPlan(plan, tuple(claims), hourly)

    def written_steps(self, priced: PricedPlan) -> Generator[int, None, SchedulingPlan]:
        """Return a plan with its claims at these prices."""
        claims: list[PlannedNodeClaim] = []
        for each in priced.claims:
            claims.append(self._written(each) or each.planned)
            yield 1
        cost = replace(priced.plan.cost, hourly=priced.hourly)
        return replace(priced.plan, claims=tuple(claims), cost=cost)

    def within_commitment(
        self, planned: PlannedNodeClaim, *, below_price: float
    ) -> PlannedNodeClaim | None:
        """Return a claim with the types of the commitment that makes it cheapest, with all that is left.

        All of them cost less than a price per hour wherever they are launched. None if there are none,
        or too few for `minValues`.
        """
        self._remaining = {name: each.remaining for name, each in self._balances.items()}
        choices = _finish(self._choices_steps(planned))
        names = set(planned.instance_types)
        found: list[_PricedClaim] = []
        for balance in self._balances.values():
            offers = choices.within(balance, names, self._rates, below_price)
            if not offers:
                continue
            best, cover = min(offers, key=lambda offer: offer[0].rank(offer[1].price))
            kept = {choice.name for choice, _ in offers}
            narrowed = replace(
                planned,
                instance_types=tuple(name for name in planned.instance_types if name in kept),
            )
            price = cover.price * self._rate(best)
            found.append(_PricedClaim(narrowed, price, choices, best, cover))
        written = (self._written(each) for each in sorted(found, key=_price_of))
        return next((each for each in written if each is not None), None)

    def _claim_steps(self, planned: PlannedNodeClaim) -> Generator[int, None, _PricedClaim]:
        choices = yield from self._choices_steps(planned)
        names = set(planned.instance_types)
        found = choices.cheapest(names, self._remaining)
        if found is None:
            return _PricedClaim(planned, planned.cheapest.price_per_hour)
        best, price, cover = found
        listed = choices.listed(names)
        if cover is not None and price < listed.price:
            rate = self._rate(best)
            priced = _PricedClaim(planned, cover.price * rate, choices, best, cover)
            has_minimum = any(each.min_values is not None for each in planned.requirements)
            if not has_minimum or self._written(priced) is not None:
                self._remaining[cover.commitment] -= cover.units
                return priced
        rate = self._rate(listed)
        if planned.cheapest.price_per_hour == listed.price * rate:
            return _PricedClaim(planned, planned.cheapest.price_per_hour)
        return _PricedClaim(planned, listed.price * rate, choices, listed)

    def _rate(self, choice: _Choice) -> float:
        return self._rates.get(choice.currency, 0.0)

    def _choices_steps(self, planned: PlannedNodeClaim) -> Generator[int, None, _Choices]:
        pool, requirements = planned.pool, Requirements(planned.requirements)
        catalogue = self._problem.catalogues[pool]
        if pool not in self._offered_keys:
            offerings = (each for item in catalogue.instance_types for each in item.offerings)
            keys = {key for offering in offerings for key in offering.requirements}
            self._offered_keys[pool] = tuple(sorted(keys))
        asked = tuple(
            requirements.get(key) if key in requirements else None
            for key in self._offered_keys[pool]
        )
        too_small = self._too_small_offerings(planned)
        found = self._choices.get((pool, asked, too_small))
        if found is None:
            made: list[_Choice] = []
            for item in catalogue.instance_types:
                for offering in compatible_offerings(
                    item, requirements, well_known=self._well_known
                ):
                    if offering not in too_small:
                        made.append(self._choice(SoldNode(item, offering), len(made)))
                yield 1
            found = self._choices[pool, asked, too_small] = _Choices(made)
        return found

    def _too_small_offerings(self, planned: PlannedNodeClaim) -> frozenset[Offering]:
        """Return the offerings without room for a claim, of types whose offerings differ in room.

        Such a type is listed if any of its offerings has room, which may be one that a commitment
        does not cover.
        """
        pool, requests = planned.pool, planned.requests
        if pool not in self._overriding:
            self._overriding[pool] = tuple(
                group
                for item in self._problem.catalogues[pool].instance_types
                if len(groups := allocatable_groups(item)) > 1
                for group in groups
            )
        key = (pool, *sorted(requests.items()))
        if key not in self._too_small:
            self._too_small[key] = frozenset(
                offering
                for group in self._overriding[pool]
                if not fits(requests, group.allocatable)
                for offering in group.offerings
            )
        return self._too_small[key]

    def _choice(self, sold: SoldNode, order: int) -> _Choice:
        listed = sold.offering.price.amount
        covers = tuple(
            (balance, units, balance.commitment.covered_price(units, listed))
            for balance in self._problem.commitments
            if is_covered(balance, sold) and (units := committed_units(balance, sold)) > 0
        )
        floor = min((listed, *(_part_price(listed, *cover[1:], cover[1]) for cover in covers)))
        return _Choice(
            sold=sold,
            name=sold.instance_type.name,
            order=order,
            covers=covers,
            price=listed,
            floor=floor,
        )

    def _written(self, priced: _PricedClaim) -> PlannedNodeClaim | None:
        """Return the claim with its choices at list prices, or narrowed to those of its commitment.

        The provider takes the cheapest type at list prices, which need not be one of the commitment.
        None: as it was, or `minValues` forbid the narrowing.
        """
        planned, _, choices, best, cover = priced
        if choices is None or best is None:
            return None
        names = set(planned.instance_types)
        requirements = Requirements(planned.requirements)
        if cover is None:
            types: Sequence[InstanceType] = choices.types(names)
        else:
            balance = self._balances[cover.commitment]
            covered = choices.covered(balance)
            asked = requirements
            requirements = requirements.replace(
                Requirement.of(
                    CAPACITY_TYPE,
                    "In",
                    (ON_DEMAND,),
                    min_values=requirements.get(CAPACITY_TYPE).min_values,
                )
            )
            for key, offering_types in covered.types_of_key:
                if not names.isdisjoint(offering_types):
                    requirements = requirements.merge(
                        Requirements((balance.requirements.get(key),))
                    )
            if _has_fewer_values_than_asked(requirements, asked):
                return None
            types = [item for item in covered.types if item.name in names]
        best_type = best.sold.instance_type
        types = (best_type, *(item for item in types if item is not best_type))
        names = {item.name for item in types}
        listed = requirements.get(INSTANCE_TYPE)
        narrowed = requirements.replace(
            Requirement(
                key=INSTANCE_TYPE,
                complement=False,
                values=frozenset(names),
                min_values=listed.min_values,
            )
        )
        if cover is not None and not count_min_values(types, narrowed):
            return None
        return replace(
            planned,
            instance_types=tuple(item.name for item in types),
            requirements=tuple(narrowed.get(key) for key in sorted(narrowed)),
            cheapest=_cheapest(best, cover, self._rate(best)),
            capacity_max=choices.capacity_max(names),
        )


def _has_fewer_values_than_asked(narrowed: Requirements, asked: Requirements) -> bool:
    """Whether a label whose values were narrowed has fewer of them than its `minValues`."""
    return any(
        requirement.min_values is not None
        and not requirement.complement
        and requirement != asked.get(requirement.key)
        and len(requirement.values) < requirement.min_values
        for requirement in narrowed.values()
    )


def _finish(steps: Generator[int, None, _Result]) -> _Result:
    """Return the result of steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def _price_of(priced: _PricedClaim) -> float:
    return priced.price_per_hour


def _cheapest(choice: _Choice, cover: Cover | None, rate: float) -> CheapestOffering:
    offering = choice.sold.offering
    listed, source = offering.list_price, offering.price_source
    price = offering.price.amount
    if cover is not None:
        price, listed = cover.price, listed or offering.price
        own = f'{COMMITTED_SOURCE}{cover.commitment}"'
        source = ", ".join(filter(None, (source, own)))
    return CheapestOffering(
        instance_type=choice.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price_per_hour=price * rate,
        list_price_per_hour=None if listed is None else listed.amount * rate,
        price_source=source,
    )
