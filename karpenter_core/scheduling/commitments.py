"""Prices plans with what is left of commitments, each unit of which counts once.

The price of a node then depends on the nodes beside it, which columns of prices cannot express. So up
to three plans are made: at list prices; at prices as if each node had the rest of the commitments to
itself; and at those prices with nodes that the rest covers only. Each plan is priced exactly, in the
order of its claims, and the cheapest one is taken. It is never dearer than the plan at list prices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, final

from karpenter_core.api.commitments import COMMITTED_SOURCE
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODES, ON_DEMAND, WELL_KNOWN
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.offerings import (
    compatible_offerings,
    count_min_values,
    price_amount,
)
from karpenter_core.scheduling.problem import (
    Catalogue,
    CheapestOffering,
    LaunchQuota,
    SchedulingPlan,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.resources import element_max

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
        PlannedNodeClaim,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = [
    "SoldNode",
    "committed_plan_steps",
    "committed_units",
    "cost_without_commitments",
    "discounted_catalogue",
    "is_covered",
]


class SoldNode(NamedTuple):
    """A node, or one that may be launched: its instance type and its offering at list prices."""

    instance_type: InstanceType
    offering: Offering


def is_covered(balance: CommitmentBalance, sold: SoldNode) -> bool:
    """Tell whether a commitment is for a node: on demand, of its currency and its labels."""
    instance_type, offering = sold
    if offering.capacity_type != ON_DEMAND:
        return False
    if offering.price.currency != balance.commitment.currency:
        return False
    return all(
        (offering if key in offering.requirements else instance_type).requirements.compatible(
            Requirements((requirement,))
        )
        for key, requirement in balance.requirements.items()
    )


def committed_units(balance: CommitmentBalance, sold: SoldNode) -> int:
    """Return the units of a commitment that a node takes."""
    instance_type, offering = sold
    if balance.commitment.resource == NODES:
        return 1
    if balance.commitment.is_of_spend:
        return price_amount(offering.price, {offering.price.currency: 1.0})
    capacity = {**instance_type.capacity, **(offering.capacity_override or {})}
    return capacity.get(balance.commitment.resource, 0)


def cost_without_commitments(
    balances: Sequence[CommitmentBalance], nodes: Iterable[SoldNode]
) -> float:
    """Return the part of the list price of nodes that is saved if they go.

    What a commitment covers is paid whether it is used or not. So only what all nodes together use
    beyond the amount is saved, and of these nodes the part with the lowest prices.
    """
    left = list(nodes)
    saved = sum(sold.offering.price.amount for sold in left)
    for balance in balances:
        covered = [sold for sold in left if is_covered(balance, sold)]
        left = [sold for sold in left if not is_covered(balance, sold)]
        units = [(committed_units(balance, sold), sold.offering.price.amount) for sold in covered]
        beyond = max(balance.used - balance.commitment.amount, 0)
        kept = max(sum(count for count, _ in units) - beyond, 0)
        for count, price in sorted(units, key=lambda item: -item[1] / max(item[0], 1)):
            part = min(count, kept)
            kept -= part
            saved -= price * part / max(count, 1)
    return max(saved, 0.0)


class _Cover(NamedTuple):
    """The price of a node with what a commitment covers of it."""

    price: float
    units: int
    """Units that it takes, as many as are left at most."""
    commitment: str


def _cover(balance: CommitmentBalance, sold: SoldNode, remaining: int) -> _Cover | None:
    """Return the price with one commitment; None if it covers nothing or saves nothing."""
    if remaining <= 0 or not is_covered(balance, sold):
        return None
    units, listed = committed_units(balance, sold), sold.offering.price.amount
    if units <= 0:
        return None
    taken = min(units, remaining)
    covered = balance.commitment.covered_price(units, listed)
    price = listed - (listed - covered) * taken / units
    return _Cover(price, taken, balance.commitment.name) if price < listed else None


def _best_cover(
    sold: SoldNode, remaining: Iterable[tuple[CommitmentBalance, int]]
) -> _Cover | None:
    """Return the cover that makes a node cheapest; the first one of equals, None without any."""
    covers = (_cover(balance, sold, left) for balance, left in remaining)
    return min(
        (cover for cover in covers if cover is not None), key=lambda one: one.price, default=None
    )


def discounted_catalogue(catalogue: Catalogue, balances: Sequence[CommitmentBalance]) -> Catalogue:
    """Return a catalogue with the price of each node as if it had all that is left to itself."""
    changes: list[str] = []
    types = tuple(_discounted(item, balances, changes) for item in catalogue.instance_types)
    if not changes:
        return catalogue
    digest = blake2b("\n".join(changes).encode(), digest_size=8).hexdigest()
    return Catalogue(version=f"{catalogue.version}%{digest}", instance_types=types)


def _discounted(
    instance_type: InstanceType, balances: Sequence[CommitmentBalance], changes: list[str]
) -> InstanceType:
    offerings: list[Offering] = []
    before = len(changes)
    for offering in instance_type.offerings:
        sold = SoldNode(instance_type, offering)
        cover = _best_cover(sold, ((balance, balance.remaining) for balance in balances))
        if cover is None:
            offerings.append(offering)
            continue
        changes.append(f"{instance_type.name}/{offering.zone}/{cover.commitment}/{cover.price!r}")
        offerings.append(
            replace(
                offering,
                price=Price(cover.price, offering.price.currency),
                uncommitted_price=offering.price,
            )
        )
    if len(changes) == before:
        return instance_type
    return replace(instance_type, offerings=tuple(offerings))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Choice:
    """One way to launch a planned claim."""

    sold: SoldNode
    price: float
    cover: _Cover | None = None

    @property
    def instance_type(self) -> InstanceType:
        """Its instance type."""
        return self.sold.instance_type

    @property
    def offering(self) -> Offering:
        """Its offering."""
        return self.sold.offering

    @property
    def rank(self) -> tuple[float, str, str]:
        """The order of choices."""
        return self.price, self.instance_type.name, self.offering.zone


@final
class _PlanPricing:
    """Prices the claims of one plan, in their order; each takes from what is left."""

    def __init__(self, problem: SchedulingProblem, options: SolveOptions) -> None:
        self._problem = problem
        self._rates = {options.currency: 1.0, **options.exchange_rates}
        self._well_known = WELL_KNOWN | problem.well_known
        self._remaining = {
            balance.commitment.name: balance.remaining for balance in problem.commitments
        }
        self._types: dict[str, Mapping[str, InstanceType]] = {}

    def priced(self, plan: SchedulingPlan) -> SchedulingPlan:
        """Return a plan at the prices that its claims have together."""
        claims = tuple(self._claim(planned) for planned in plan.claims)
        hourly = sum(planned.cheapest.price_per_hour for planned in claims)
        return replace(plan, claims=claims, cost=replace(plan.cost, hourly=hourly))

    def _claim(self, planned: PlannedNodeClaim) -> PlannedNodeClaim:
        requirements = Requirements(planned.requirements)
        types = [
            self._types_of(planned.pool)[name]
            for name in planned.instance_types
            if name in self._types_of(planned.pool)
        ]
        choices = [
            _Choice(sold=SoldNode(item, offering), price=offering.price.amount)
            for item in types
            for offering in compatible_offerings(item, requirements, well_known=self._well_known)
        ]
        if not choices:
            return planned
        listed = min(choices, key=lambda choice: choice.rank)
        best = min((self._covered(choice) for choice in choices), key=lambda choice: choice.rank)
        if best.cover is not None and best.price < listed.price:
            narrowed = self._narrowed(planned, requirements, choices, best)
            if narrowed is not None:
                self._remaining[best.cover.commitment] -= best.cover.units
                return narrowed
        rate = self._rates.get(listed.offering.price.currency, 0.0)
        if planned.cheapest.price_per_hour == listed.price * rate:
            return planned
        return self._with_choices(planned, requirements, choices, listed) or planned

    def _covered(self, choice: _Choice) -> _Choice:
        cover = _best_cover(
            choice.sold,
            (
                (balance, self._remaining[balance.commitment.name])
                for balance in self._problem.commitments
            ),
        )
        return choice if cover is None else replace(choice, price=cover.price, cover=cover)

    def _narrowed(
        self,
        planned: PlannedNodeClaim,
        requirements: Requirements,
        choices: Sequence[_Choice],
        best: _Choice,
    ) -> PlannedNodeClaim | None:
        """Return a claim that only becomes a node of the commitment; None if `minValues` forbid it.

        The provider takes the cheapest type at list prices, which need not be one of these.
        """
        balance = next(
            each
            for each in self._problem.commitments
            if best.cover is not None and each.commitment.name == best.cover.commitment
        )
        requirements = requirements.replace(Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND,)))
        offered = {
            key
            for choice in choices
            for key in choice.offering.requirements
            if key in balance.requirements
        }
        for key in sorted(offered):
            requirements = requirements.merge(Requirements((balance.requirements.get(key),)))
        kept = [choice for choice in choices if is_covered(balance, choice.sold)]
        return self._with_choices(planned, requirements, kept, best, is_strict=True)

    def _with_choices(
        self,
        planned: PlannedNodeClaim,
        requirements: Requirements,
        choices: Sequence[_Choice],
        best: _Choice,
        *,
        is_strict: bool = False,
    ) -> PlannedNodeClaim | None:
        ordered = sorted(choices, key=lambda choice: (choice is not best, choice.rank))
        types = tuple(
            {choice.instance_type.name: choice.instance_type for choice in ordered}.values()
        )
        types = (
            best.instance_type,
            *(item for item in types if item.name != best.instance_type.name),
        )
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
            cheapest=_cheapest(best, rate),
            capacity_max=element_max(item.capacity for item in types),
        )

    def _types_of(self, pool: str) -> Mapping[str, InstanceType]:
        if pool not in self._types:
            catalogue = self._problem.catalogues[pool]
            self._types[pool] = {item.name: item for item in catalogue.instance_types}
        return self._types[pool]


def _cheapest(choice: _Choice, rate: float) -> CheapestOffering:
    offering = choice.offering
    listed, source = offering.list_price, offering.price_source
    if choice.cover is not None:
        listed = listed or offering.price
        own = f'{COMMITTED_SOURCE}{choice.cover.commitment}"'
        source = ", ".join(filter(None, (source, own)))
    return CheapestOffering(
        instance_type=choice.instance_type.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price_per_hour=choice.price * rate,
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
    plans = [_PlanPricing(problem, options).priced(listed)]
    if listed.partial:
        return plans[0]
    discounted = replace(
        problem, catalogues=_discounted_catalogues(problem, balances), commitments=()
    )
    alike = yield from steps(discounted)
    plans.append(_PlanPricing(problem, options).priced(alike))
    if _is_short(alike, plans[-1]):
        quotas = (*problem.quotas, *(_quota(balance) for balance in balances))
        within = yield from steps(replace(discounted, quotas=quotas))
        plans.append(_PlanPricing(problem, options).priced(within))
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
