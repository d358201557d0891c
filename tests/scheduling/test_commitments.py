"""Plans with commitments: each unit counts once, and no plan is dearer than without them."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CPU,
    MEMORY,
    NODES,
    ON_DEMAND,
    PRICE_PER_HOUR,
    SPOT,
)
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.quantities import parse_amount
from karpenter_core.scheduling import solve as solve_module
from karpenter_core.scheduling.commitment_bill import CommitmentBill
from karpenter_core.scheduling.commitment_prices import PlanPricing
from karpenter_core.scheduling.commitments import (
    SoldNode,
    committed_units,
    is_covered,
)
from karpenter_core.scheduling.problem import CommitmentBalance, PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    problem,
    requirement_spec,
    standard_catalogue,
)
from tests.properties import with_examples

FAMILY = "example.com/family"


def kind(name, cores, price, *, family="a", capacity_type=ON_DEMAND):
    return instance_type(
        name,
        cpu=str(cores),
        memory=f"{4 * cores}Gi",
        overhead={},
        offerings=[offering("zone-a", capacity_type, price)],
        labels={FAMILY: family},
    )


CHEAP = kind("cheap", 4, 0.20, family="b")
DEAR = kind("dear", 4, 0.24)
TYPES = catalogue(CHEAP, DEAR)


def balance(
    amount, *, used="0", name="savings", family=("a",), resource=CPU, price=None, discount=0.0
):
    specs = (RequirementSpec(key=FAMILY, operator="In", values=tuple(family)),) if family else ()
    commitment = Commitment(
        name=name,
        requirements=specs,
        resource=resource,
        amount=parse_amount(resource, amount),
        price=price,
        discount=discount,
    )
    return CommitmentBalance(
        commitment=commitment,
        requirements=Requirements.from_specs(specs),
        used=parse_amount(resource, used),
    )


def plan_of(count, *balances, types=TYPES, cpu="3500m", **options):
    asked = problem(
        [pod(f"web-{n}", cpu=cpu) for n in range(count)], catalogue=types, well_known=(FAMILY,),
        pools=options.pop("pools", None),
    )  # fmt: skip
    return solve(replace(asked, commitments=balances), SolveOptions(**options))


def bought(plan):
    return sorted(claim.cheapest.instance_type for claim in plan.claims)


def test_nodes_of_the_committed_family_are_launched_up_to_the_amount():
    """Two nodes at 0.04 instead of 0.20, the third one at the list price of the cheap family."""
    plan = plan_of(3, balance("8", price=0.01))

    assert bought(plan) == ["cheap", "dear", "dear"]
    assert isclose(plan.cost.hourly, 0.04 + 0.04 + 0.20)
    covered = next(claim for claim in plan.claims if claim.cheapest.instance_type == "dear")
    assert covered.instance_types == ("dear",)
    assert covered.capacity_max[CPU] == 4000
    assert covered.cheapest.list_price_per_hour == pytest.approx(0.24)
    assert covered.cheapest.price_source == 'commitment "savings"'
    requirements = Requirements(covered.requirements)
    assert requirements.get(CAPACITY_TYPE).values == {ON_DEMAND}


def counted_plans(monkeypatch):
    """Return a list that grows by each plan."""
    made = []
    portfolio_steps = solve_module.portfolio_steps

    def counted(*arguments):
        made.append(1)
        return portfolio_steps(*arguments)

    monkeypatch.setattr(solve_module, "portfolio_steps", counted)
    return made


@pytest.mark.parametrize(
    ("types", "amount", "plans"),
    [((DEAR,), "8", 2), ((DEAR,), "12", 2), ((DEAR,), "11", 3), (TYPES.instance_types, "8", 3)],
)
def test_no_plan_is_made_that_the_commitment_cannot_hold(monkeypatch, types, amount, plans):
    """Three pods of 3.5 cores, where everything for sale is committed, do not fit into 8 cores."""
    made = counted_plans(monkeypatch)
    plan = plan_of(3, balance(amount, price=0.01), types=catalogue(*types))

    assert len(made) == plans
    assert not plan.unschedulable


@pytest.mark.parametrize("used", ["8", "9"])
def test_used_up_commitment_changes_nothing(monkeypatch, used):
    """The plan is the one without it, and no other one is made."""
    made = counted_plans(monkeypatch)

    plan = plan_of(3, balance("8", used=used, price=0.01))

    assert len(made) == 1
    assert bought(plan) == ["cheap"] * 3
    assert isclose(plan.cost.hourly, 0.60)


def test_rest_smaller_than_a_node_covers_its_part():
    """One of four cores at 0.00: 0.18 is less than 0.20, for one node."""
    plan = plan_of(2, balance("4", used="3", price=0.0))

    assert bought(plan) == ["cheap", "dear"]
    assert isclose(plan.cost.hourly, 0.20 + 0.18)


def test_rest_that_saves_too_little_is_left():
    """A quarter of 0.04 less makes the dear family no cheaper."""
    assert bought(plan_of(1, balance("4", used="3", price=0.05))) == ["cheap"]


def test_of_two_commitments_the_one_is_used_of_which_enough_is_left():
    """The other would make its node cheaper, but has a core for one of four."""
    types = catalogue(CHEAP, DEAR, kind("other", 4, 0.30, family="c"))
    scarce = balance("1", price=0.01, name="scarce")
    ample = balance("8", price=0.025, name="ample", family=("c",))
    for balances in ((scarce, ample), (ample, scarce)):
        plan = plan_of(1, *balances, types=types)
        assert bought(plan) == ["other"]
        assert isclose(plan.cost.hourly, 0.10)
        asked = problem([pod("web-0", cpu="3500m")], catalogue=types, well_known=(FAMILY,))
        pricing = PlanPricing(replace(asked, commitments=balances), SolveOptions())
        priced = run_steps(pricing.priced_steps(solve(asked, SolveOptions())))
        assert isclose(priced.hourly, 0.10)


def test_commitment_is_shared_by_nodepools():
    """Two NodePools with the same types; the eight cores count once."""
    pools = [node_pool("first"), node_pool("second")]

    plan = plan_of(4, balance("8", price=0.01), pools=pools)

    assert bought(plan) == ["cheap", "cheap", "dear", "dear"]


def test_spot_is_not_covered():
    """Commitments pay for on-demand nodes."""
    spot = kind("spot", 4, 0.10, capacity_type=SPOT)

    plan = plan_of(1, balance("4", price=0.0), types=catalogue(spot, CHEAP))

    assert bought(plan) == ["spot"]


def test_types_with_room_only_as_spot_are_not_listed_on_demand():
    """`odd` has 16 GiB as spot and 2 GiB on demand; under a commitment only `dear` holds the pod."""
    spot = replace(offering("zone-a", SPOT, 0.01), capacity_override={MEMORY: 16 * 2**30})
    odd = instance_type(
        "odd", cpu="4", memory="2Gi", overhead={}, labels={FAMILY: "a"},
        offerings=[offering("zone-a", ON_DEMAND, 0.02), spot],
    )  # fmt: skip
    asked = problem(
        [pod("web", cpu="1", memory="8Gi")], catalogue=catalogue(odd, DEAR), well_known=(FAMILY,)
    )

    plan = solve(replace(asked, commitments=(balance("8", price=0.0),)))

    assert [claim.instance_types for claim in plan.claims] == [("dear",)]
    assert plan.claims[0].cheapest.capacity_type == ON_DEMAND


@pytest.mark.parametrize(("least", "kinds"), [(1, {ON_DEMAND}), (2, {ON_DEMAND, SPOT})])
def test_claims_that_need_several_capacity_types_are_planned_at_list_prices(least, kinds):
    """A commitment covers on-demand nodes only, and would leave the claim one capacity type."""
    offerings = [offering("zone-a", ON_DEMAND, 0.24), offering("zone-a", SPOT, 0.20)]
    both = instance_type("both", cpu="4", memory="16Gi", overhead={}, offerings=offerings)
    pool = node_pool(requirements=[requirement_spec(CAPACITY_TYPE, "Exists", min_values=least)])

    plan = plan_of(1, balance("8", family=(), price=0.0), types=catalogue(both), pools=[pool])

    (claim,) = plan.claims
    assert Requirements(claim.requirements).get(CAPACITY_TYPE).values == kinds
    assert (claim.cheapest.price_per_hour == 0) == (least == 1)


@pytest.mark.parametrize(
    ("resource", "amount", "terms", "hourly"),
    [
        (NODES, "1", {"price": 0.05}, 0.05 + 0.20),
        (MEMORY, "16Gi", {"price": 0.005}, 0.08 + 0.20),
        (PRICE_PER_HOUR, "0.24", {"discount": 0.5}, 0.12 + 0.20),
    ],
)
def test_commitments_to_nodes_memory_and_spend(resource, amount, terms, hourly):
    """Each covers one node of two."""
    plan = plan_of(2, balance(amount, resource=resource, **terms))

    assert bought(plan) == ["cheap", "dear"]
    assert isclose(plan.cost.hourly, hourly)


@pytest.mark.parametrize(("others", "saved"), [(0, 0.0), (1, 0.24), (2, 0.48), (5, 0.48)])
def test_removed_nodes_save_only_costs_outside_of_commitments(others, saved):
    """Two nodes of four cores, eight of which are committed; others use the commitment instead."""
    nodes = [SoldNode(DEAR, DEAR.offerings[0])] * 2
    everything = nodes + nodes[:1] * others
    bill = CommitmentBill((balance("8", price=0.0),), everything, {"USD": 1.0})

    assert isclose(bill.saved_without(nodes), saved, abs_tol=1e-12)


def test_a_commitment_that_a_node_leaves_covers_a_cheaper_one():
    """So not the price of the node is saved, but that of the other."""
    small = kind("small", 4, 0.10)
    sold = [SoldNode(each, each.offerings[0]) for each in (DEAR, small)]
    bill = CommitmentBill((balance("4", price=0.01),), sold, {"USD": 1.0})

    assert isclose(bill.saved_without(sold[:1]), 0.10)
    assert isclose(bill.saved_without(sold[1:]), 0.10)
    assert isclose(bill.saved_without(sold), 0.10)


@with_examples(100)
@given(seed=st.integers(0, 2**32))
def test_bills_agree_with_one_that_counts_every_unit(seed):
    random = Random(seed)
    kinds = [
        kind(
            f"k{number}",
            random.choice((1, 2, 4)),
            round(random.uniform(0.05, 0.4), 2),
            family=random.choice("abc"),
        )
        for number in range(5)
    ]
    sold = [
        SoldNode(each, each.offerings[0]) for each in random.choices(kinds, k=random.randint(1, 8))
    ]
    row = balance(str(random.randint(0, 12)), price=0.0, family=("a", "b"))
    gone = random.sample(range(len(sold)), random.randint(1, len(sold)))

    def cost(nodes):
        units = sorted(
            (
                (each.offering.price.amount / (each.instance_type.capacity[CPU] // 1000), each)
                for each in nodes
                if is_covered(row, each)
                for _ in range(each.instance_type.capacity[CPU] // 1000)
            ),
            key=lambda unit: -unit[0],
        )
        covered = units[: row.commitment.amount // 1000]
        return sum(each.offering.price.amount for each in nodes) - sum(
            price for price, _ in covered
        )

    bill = CommitmentBill((row,), sold, {"USD": 1.0})
    rest = [each for number, each in enumerate(sold) if number not in gone]
    saved = bill.saved_without(sold[number] for number in gone)

    assert isclose(saved, cost(sold) - cost(rest), abs_tol=1e-9)


STANDARD = standard_catalogue()
BY_NAME = {item.name: item for item in STANDARD.instance_types}


@with_examples(25)
@given(
    sizes=st.lists(st.sampled_from((300, 900, 1700, 3500, 7200)), min_size=1, max_size=14),
    rows=st.lists(
        st.tuples(
            st.sampled_from((("c",), ("m",), ("c", "r"), ())),
            st.sampled_from((CPU, MEMORY, NODES, PRICE_PER_HOUR)),
            st.integers(0, 12),
            st.integers(0, 6),
            st.sampled_from((0.0, 0.01, None)),
        ),
        min_size=1,
        max_size=3,
    ),
    packing=st.sampled_from(list(PackingPolicy)),
    only_on_demand=st.sampled_from((True, True, False)),
)
def test_no_unit_counts_twice_and_prices_agree_with_an_independent_sum(
    sizes, rows, packing, only_on_demand
):
    """The sum of what is covered is within each rest, and the plan is no dearer than without."""
    scale = {CPU: 1000, MEMORY: 2**30 * 4, NODES: 1, PRICE_PER_HOUR: 50_000}
    balances = tuple(
        CommitmentBalance(
            commitment=Commitment(
                name=f"c{number}",
                requirements=(),
                resource=resource,
                amount=amount * scale[resource],
                price=None if resource == PRICE_PER_HOUR else price,
                discount=0.4,
            ),
            requirements=Requirements((Requirement.of(FAMILY, "In", family),) if family else ()),
            used=used * scale[resource],
        )
        for number, (family, resource, amount, used, price) in enumerate(rows)
    )
    asked = problem(
        [pod(f"p-{n}", cpu=f"{size}m", memory="200Mi") for n, size in enumerate(sizes)],
        pools=[
            node_pool(requirements=[(CAPACITY_TYPE, "In", ON_DEMAND)] if only_on_demand else ())
        ],
        well_known=(FAMILY,),
    )
    options = SolveOptions(packing=packing)
    without = solve(asked, options)

    plan = solve(replace(asked, commitments=balances), options)

    left = {one.commitment.name: one.remaining for one in balances}
    by_name = {one.commitment.name: one for one in balances}
    total = 0.0
    for claim in plan.claims:
        item = BY_NAME[claim.cheapest.instance_type]
        (sold,) = (
            o
            for o in item.offerings
            if o.zone == claim.cheapest.zone and o.capacity_type == claim.cheapest.capacity_type
        )
        price = sold.price.amount
        if claim.cheapest.price_source:
            name = claim.cheapest.price_source.split('"')[1]
            units = committed_units(by_name[name], SoldNode(item, sold))
            part = min(units, left[name])
            left[name] -= part
            full = by_name[name].commitment.covered_price(units, price)
            price = price * (1 - part / units) + full * part / units
            assert part > 0
        assert isclose(claim.cheapest.price_per_hour, price, abs_tol=1e-9)
        total += price
    assert min(left.values()) >= 0
    assert isclose(plan.cost.hourly, total, abs_tol=1e-9)
    assert len(plan.unschedulable) <= len(without.unschedulable)
    fee = options.node_fee_per_hour
    if len(plan.unschedulable) == len(without.unschedulable):
        ours = plan.cost.hourly + fee * len(plan.claims)
        assert ours <= without.cost.hourly + fee * len(without.claims) + 1e-9
    placed = sum(len(claim.pods) for claim in plan.claims) + len(plan.unschedulable)
    assert placed == len(sizes)
    if plan.cost.lower_bound is not None and not plan.unschedulable:
        assert plan.cost.lower_bound <= total + 1e-6
