"""Prices plans with what is left of commitments, each unit of which counts once.

The price of a node then depends on the nodes beside it, which columns of prices cannot express. So up
to three plans are made: at list prices; at prices as if each node had the rest of the commitments to
itself; and at those prices with nodes that the rest covers only. Each plan is priced exactly, in the
order of its claims, and the cheapest one is taken. It is never dearer than the plan at list prices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from karpenter_core.api.commitments import COMMITTED_SOURCE
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, WELL_KNOWN
from karpenter_core.scheduling.commitments import (
    Cover,
    SoldNode,
    committed_units,
    discounted_catalogue,
    is_covered,
)
from karpenter_core.scheduling.offerings import compatible_offerings, count_min_values
from karpenter_core.scheduling.problem import (
    Catalogue,
    CheapestOffering,
    LaunchQuota,
    SchedulingPlan,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.resources import element_max

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Mapping, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
        PlannedNodeClaim,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = ["committed_plan_steps"]


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
    order: int
    covers: tuple[tuple[CommitmentBalance, int, float], ...]
    floor: float

    @property
    def instance_type(self) -> InstanceType:
        """Its instance type."""
        return self.sold.instance_type

    @property
    def offering(self) -> Offering:
        """Its offering."""
        return self.sold.offering

    @property
    def price(self) -> float:
        """Its list price."""
        return self.sold.offering.price.amount

    def rank(self, price: float) -> tuple[float, str, str, int]:
        """Return its place in the order of choices at a price."""
        return price, self.instance_type.name, self.offering.zone, self.order

    def cover(self, remaining: Mapping[str, int]) -> Cover | None:
        """Return the cover that makes it cheapest; the first one of equals, None without any."""
        best: Cover | None = None
        for balance, units, covered in self.covers:
            taken = min(units, remaining[balance.commitment.name])
            price = _part_price(self.price, units, covered, taken)
            if taken > 0 and price < (self.price if best is None else best.price):
                best = Cover(price, taken, balance.commitment.name)
        return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choices:
    """All choices of a NodePool under equal requirements for offerings, in two orders."""

    by_price: tuple[_Choice, ...]
    by_floor: tuple[_Choice, ...]

    @classmethod
    def of(cls, choices: Sequence[_Choice]) -> _Choices:
        """Sort choices."""
        return cls(
            by_price=tuple(sorted(choices, key=lambda each: each.rank(each.price))),
            by_floor=tuple(sorted(choices, key=lambda each: each.rank(each.floor))),
        )

    def cheapest(
        self, names: Container[str], remaining: Mapping[str, int]
    ) -> tuple[_Choice, float, Cover | None] | None:
        """Return the choice among some types that is cheapest with what is left, and its price."""
        best: tuple[_Choice, float, Cover | None] | None = None
        for choice in self.by_floor:
            if choice.instance_type.name not in names:
                continue
            if best is not None and choice.floor > best[1]:
                break
            cover = choice.cover(remaining)
            price = choice.price if cover is None else cover.price
            if best is None or choice.rank(price) < best[0].rank(best[1]):
                best = choice, price, cover
        return best


@final
class _PlanPricing:
    """Prices the claims of plans, in their order; each takes from what is left.

    Claims have hundreds of instance types and differ in few of the labels that offerings have: the
    choices of those with the same are sorted once.
    """

    def __init__(self, problem: SchedulingProblem, options: SolveOptions) -> None:
        self._problem = problem
        self._rates = {options.currency: 1.0, **options.exchange_rates}
        self._well_known = WELL_KNOWN | problem.well_known
        self._remaining: dict[str, int] = {}
        self._offered_keys: dict[str, tuple[str, ...]] = {}
        self._choices: dict[tuple[object, ...], _Choices] = {}

    def priced_steps(self, plan: SchedulingPlan) -> Generator[int, None, SchedulingPlan]:
        """Return a plan at the prices that its claims have together."""
        self._remaining = {
            balance.commitment.name: balance.remaining for balance in self._problem.commitments
        }
        claims: list[PlannedNodeClaim] = []
        for planned in plan.claims:
            claims.append(self._claim(planned))
            yield 1
        hourly = sum(planned.cheapest.price_per_hour for planned in claims)
        return replace(plan, claims=tuple(claims), cost=replace(plan.cost, hourly=hourly))

    def _claim(self, planned: PlannedNodeClaim) -> PlannedNodeClaim:
        requirements = Requirements(planned.requirements)
        choices, names = self._choices_of(planned.pool, requirements), set(planned.instance_types)
        found = choices.cheapest(names, self._remaining)
        if found is None:
            return planned
        best, price, cover = found
        listed = next(each for each in choices.by_price if each.instance_type.name in names)
        if cover is not None and price < listed.price:
            narrowed = self._narrowed(planned, requirements, choices, best, cover)
            if narrowed is not None:
                self._remaining[cover.commitment] -= cover.units
                return narrowed
        rate = self._rates.get(listed.offering.price.currency, 0.0)
        if planned.cheapest.price_per_hour == listed.price * rate:
            return planned
        kept = [each for each in choices.by_price if each.instance_type.name in names]
        return self._with_choices(planned, requirements, kept, listed) or planned

    def _choices_of(self, pool: str, requirements: Requirements) -> _Choices:
        catalogue = self._problem.catalogues[pool]
        if pool not in self._offered_keys:
            offerings = (each for item in catalogue.instance_types for each in item.offerings)
            keys = {key for offering in offerings for key in offering.requirements}
            self._offered_keys[pool] = tuple(sorted(keys))
        asked = tuple(
            requirements.get(key) if key in requirements else None
            for key in self._offered_keys[pool]
        )
        found = self._choices.get((pool, asked))
        if found is None:
            sold = (
                SoldNode(item, offering)
                for item in catalogue.instance_types
                for offering in compatible_offerings(
                    item, requirements, well_known=self._well_known
                )
            )
            made = [self._choice(each, order) for order, each in enumerate(sold)]
            found = self._choices[pool, asked] = _Choices.of(made)
        return found

    def _choice(self, sold: SoldNode, order: int) -> _Choice:
        listed = sold.offering.price.amount
        covers = tuple(
            (balance, units, balance.commitment.covered_price(units, listed))
            for balance in self._problem.commitments
            if is_covered(balance, sold) and (units := committed_units(balance, sold)) > 0
        )
        floor = min((listed, *(_part_price(listed, *cover[1:], cover[1]) for cover in covers)))
        return _Choice(sold=sold, order=order, covers=covers, floor=floor)

    def _narrowed(
        self,
        planned: PlannedNodeClaim,
        requirements: Requirements,
        choices: _Choices,
        best: _Choice,
        cover: Cover,
    ) -> PlannedNodeClaim | None:
        """Return a claim that only becomes a node of the commitment; None if `minValues` forbid it.

        The provider takes the cheapest type at list prices, which need not be one of these.
        """
        balance = next(
            each for each in self._problem.commitments if each.commitment.name == cover.commitment
        )
        requirements = requirements.replace(Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND,)))
        names = set(planned.instance_types)
        among = [each for each in choices.by_price if each.instance_type.name in names]
        offered = {
            key
            for choice in among
            for key in choice.offering.requirements
            if key in balance.requirements
        }
        for key in sorted(offered):
            requirements = requirements.merge(Requirements((balance.requirements.get(key),)))
        kept = [choice for choice in among if any(each is balance for each, _, _ in choice.covers)]
        return self._with_choices(planned, requirements, kept, best, cover=cover, is_strict=True)

    def _with_choices(
        self,
        planned: PlannedNodeClaim,
        requirements: Requirements,
        choices: Sequence[_Choice],
        best: _Choice,
        *,
        cover: Cover | None = None,
        is_strict: bool = False,
    ) -> PlannedNodeClaim | None:
        """Return a claim for choices, given in the order of their prices, the best one first."""
        types = {best.instance_type.name: best.instance_type}
        types.update((choice.instance_type.name, choice.instance_type) for choice in choices)
        return self._with_types(
            planned, requirements, tuple(types.values()), best, cover=cover, is_strict=is_strict
        )

    def _with_types(
        self,
        planned: PlannedNodeClaim,
        requirements: Requirements,
        types: tuple[InstanceType, ...],
        best: _Choice,
        *,
        cover: Cover | None,
        is_strict: bool,
    ) -> PlannedNodeClaim | None:
        listed = requirements.get(INSTANCE_TYPE)
        narrowed = requirements.replace(
            Requirement(
                key=INSTANCE_TYPE,
                complement=False,
                values=frozenset(item.name for item in types),
                min_values=listed.min_values,
            )
        )
        if is_strict and not count_min_values(types, narrowed):
            return None
        rate = self._rates.get(best.offering.price.currency, 0.0)
        return replace(
            planned,
            instance_types=tuple(item.name for item in types),
            requirements=tuple(narrowed.get(key) for key in sorted(narrowed)),
            cheapest=_cheapest(best, cover, rate),
            capacity_max=element_max(item.capacity for item in types),
        )


def _cheapest(choice: _Choice, cover: Cover | None, rate: float) -> CheapestOffering:
    offering = choice.offering
    listed, source = offering.list_price, offering.price_source
    price = offering.price.amount
    if cover is not None:
        price, listed = cover.price, listed or offering.price
        own = f'{COMMITTED_SOURCE}{cover.commitment}"'
        source = ", ".join(filter(None, (source, own)))
    return CheapestOffering(
        instance_type=choice.instance_type.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price_per_hour=price * rate,
        list_price_per_hour=None if listed is None else listed.amount * rate,
        price_source=source,
    )


def committed_plan_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    steps: Callable[[SchedulingProblem], Generator[int, None, SchedulingPlan]],
) -> Generator[int, None, SchedulingPlan]:
    """Return the cheapest of the plans that `steps` makes, priced with the commitments."""
    listed = yield from steps(replace(problem, commitments=()))
    balances = tuple(balance for balance in problem.commitments if balance.remaining > 0)
    if not listed.claims or not balances:
        return listed
    pricing = _PlanPricing(problem, options)
    plans = [(yield from pricing.priced_steps(listed))]
    if listed.partial:
        return plans[0]
    discounted = replace(
        problem, catalogues=_discounted_catalogues(problem, balances), commitments=()
    )
    alike = yield from steps(discounted)
    plans.append((yield from pricing.priced_steps(alike)))
    if _is_short(alike, plans[-1]):
        quotas = (*problem.quotas, *(_quota(balance) for balance in balances))
        within = yield from steps(replace(discounted, quotas=quotas))
        plans.append((yield from pricing.priced_steps(within)))
    best = min(plans, key=lambda plan: _plan_rank(plan, options))
    bounds = (plan.cost.lower_bound for plan in (listed, alike))
    known = [bound for bound in bounds if bound is not None]
    bound = min(known) if len(known) == 2 else None  # noqa: PLR2004 - of both plans
    first_fit = listed.cost.first_fit_hourly
    cost = replace(best.cost, lower_bound=bound, first_fit_hourly=first_fit)
    return replace(best, cost=cost)


def _plan_rank(plan: SchedulingPlan, options: SolveOptions) -> tuple[bool, int, float]:
    """Return the order of plans: whole ones, fewest pods left, then the price with the fee."""
    fee = options.node_fee_per_hour * len(plan.claims)
    return plan.partial, len(plan.unschedulable), plan.cost.hourly + fee


def _is_short(planned: SchedulingPlan, priced: SchedulingPlan) -> bool:
    """Tell whether the commitments do not cover all that the plan took to be covered."""
    pairs = zip(planned.claims, priced.claims, strict=True)
    return any(
        after.cheapest.price_per_hour > before.cheapest.price_per_hour for before, after in pairs
    )


def _quota(balance: CommitmentBalance) -> LaunchQuota:
    """Return a quota that lets new nodes take no more than is left."""
    on_demand = Requirements((Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND,)),))
    return LaunchQuota(
        name=f'{COMMITTED_SOURCE}{balance.commitment.name}"',
        requirements=balance.requirements.merge(on_demand),
        limits={balance.commitment.resource: balance.remaining},
    )


def _discounted_catalogues(
    problem: SchedulingProblem, balances: Sequence[CommitmentBalance]
) -> dict[str, Catalogue]:
    made: dict[int, Catalogue] = {}
    for catalogue in problem.catalogues.values():
        if id(catalogue) not in made:
            made[id(catalogue)] = discounted_catalogue(catalogue, balances)
    return {name: made[id(catalogue)] for name, catalogue in problem.catalogues.items()}
