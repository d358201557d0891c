"""Prices and lists of instance types."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, RESERVED, SPOT, ZONE
from karpenter_core.scheduling.instance_types import Overhead
from karpenter_core.scheduling.offerings import (
    allocatable_groups,
    cheapest_offering,
    cheapest_price,
    compatible_instance_types,
    count_min_values,
    offering_price,
    order_by_price,
    worst_launch_price,
)
from karpenter_core.scheduling.problem import CheapestOffering, PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pods,
    problem,
)

ANY = Requirements()
GIB = 2**30


def only(key, *values, min_values=None):
    return Requirements((Requirement.of(key, "In", values, min_values=min_values),))


def sold(name, *prices):
    return instance_type(name, offerings=[offering(z, c, p) for z, c, p in prices])


TWO = sold("two", ("a", SPOT, 0.3), ("b", SPOT, 0.2), ("a", ON_DEMAND, 1.0), ("b", ON_DEMAND, 0.9))


def test_the_price_of_a_claim_is_that_of_its_allowed_offerings():
    """Cheapest, worst and single offerings."""
    assert cheapest_price(TWO, ANY) == 0.2
    assert cheapest_price(TWO, only(ZONE, "a")) == 0.3
    assert cheapest_price(TWO, only(ZONE, "c")) == inf
    result = cheapest_offering(TWO, only(CAPACITY_TYPE, ON_DEMAND))
    assert result is not None
    assert (result.zone, result.price.amount) == ("b", 0.9)
    assert worst_launch_price(TWO, ANY) == 0.3
    assert worst_launch_price(TWO, only(CAPACITY_TYPE, ON_DEMAND)) == 1.0
    reserved = sold("r", ("a", RESERVED, 0.01), ("a", SPOT, 0.5))
    assert worst_launch_price(reserved, ANY) == 0.01
    assert worst_launch_price(TWO, only(ZONE, "c")) == inf
    assert offering_price(TWO, zone="b", capacity_type=SPOT) == 0.2
    assert offering_price(TWO, zone="c", capacity_type=SPOT) is None
    several = sold("several", ("a", RESERVED, 0.02), ("a", RESERVED, 0.01))
    assert offering_price(several, zone="a", capacity_type=RESERVED) == 0.01


def test_types_are_ordered_by_price_then_name_and_truncated():
    """Decision Q19: ties are broken by name; case 189 for the cut."""
    types = [sold(name, ("a", SPOT, price)) for name, price in (("z", 1), ("b", 2), ("a", 2))]
    assert [it.name for it in order_by_price(types, ANY)] == ["z", "a", "b"]
    enough = only(INSTANCE_TYPE, "a", "b", "z", min_values=2)
    verdict = count_min_values(order_by_price(types, enough), enough)
    assert (verdict.needed, bool(verdict)) == (2, True)
    failed = count_min_values(order_by_price(types, enough)[:1], enough)
    assert not failed
    assert str(failed) == (
        f"minValues requirement is not met for label(s) (label(s)=[{INSTANCE_TYPE}])"
    )
    assert failed.missing == {INSTANCE_TYPE: 1}
    assert count_min_values(types, ANY).needed == 0


def overriding(*, available=True):
    """Case 51's type: half of the offerings have other capacity."""
    made = sold("groups", ("a", SPOT, 1.0), ("b", SPOT, 1.0))
    special = [
        replace(
            offering(zone, ON_DEMAND, 2.0, available=available),
            capacity_override={"example.com/ext": 12},
            overhead_override={"memory": 3 * GIB},
        )
        for zone in ("a", "b")
    ]
    return replace(
        made,
        offerings=(*made.offerings, *special),
        overhead=Overhead(kube_reserved={"cpu": 100, "memory": GIB}),
    )


def test_offerings_may_override_capacity():
    """Cases 49 to 51."""
    plain = sold("plain", ("a", SPOT, 1.0))
    huge = replace(plain, capacity={**plain.capacity, "hugepages-2Mi": 20 * GIB})
    assert huge.allocatable()["memory"] == 0
    (group,) = allocatable_groups(plain)
    assert group.allocatable["cpu"] == 3900
    base, special = allocatable_groups(overriding())
    assert (len(base.offerings), base.allocatable["memory"]) == (2, 15 * GIB)
    assert "example.com/ext" not in base.allocatable
    assert (len(special.offerings), special.allocatable["memory"]) == (2, 13 * GIB)
    assert special.allocatable["example.com/ext"] == 12


def test_offerings_with_other_overrides_have_other_groups():
    """Either override alone makes a group, and equal ones share it."""
    overrides = [
        {"capacity_override": {"cpu": 8000}},
        {"overhead_override": {"memory": GIB}},
        {"capacity_override": {"cpu": 8000}, "overhead_override": {"memory": GIB}},
        {"capacity_override": {"cpu": 8000}},
    ]
    made = sold("groups", ("a", SPOT, 1.0))
    special = [replace(made.offerings[0], **each) for each in overrides]
    groups = allocatable_groups(replace(made, offerings=(*made.offerings, *special)))
    assert [len(group.offerings) for group in groups] == [1, 2, 1, 1]


@pytest.mark.parametrize("available", [True, False])
def test_a_resource_of_some_offerings_is_launched_with_them(available):
    """Cases 52, 53: by the solver and by the list of a launch."""
    types = [overriding(available=available), sold("cheap", ("a", SPOT, 0.1))]
    asking = pod(requests={"example.com/ext": "1"})
    plan = solve(problem([asking], catalogue=catalogue(*types)))

    assert len(plan.claims) == available
    if available:
        (claim,) = plan.claims
        assert claim.cheapest == CheapestOffering(
            instance_type="groups", zone="a", capacity_type=ON_DEMAND, price_per_hour=2.0
        )
    result = compatible_instance_types(types, ANY, {"example.com/ext": 1})
    assert [it.name for it in result] == (["groups"] if available else [])


def test_prices_of_another_currency_are_converted_by_the_rate():
    """The cheapest by the rate wins, and costs are in the reporting currency."""
    euro = instance_type("euro", offerings=[offering(price=1.0, currency="EUR")])
    dollar = instance_type("dollar", offerings=[offering(price=1.05)])
    rates = SolveOptions(exchange_rates={"EUR": 1.1})

    plan = solve(problem([pod()], catalogue=catalogue(euro, dollar)), rates)

    assert plan.claims[0].instance_types == ("dollar", "euro")
    assert plan.cost.hourly == 1.05
    alone = solve(problem([pod()], catalogue=catalogue(euro)), rates)
    assert alone.cost.hourly == pytest.approx(1.1)


def test_a_currency_without_a_rate_is_ordered_within_its_pool_only():
    """Its claims are planned, cheapest first, but not added to the cost."""
    types = [
        instance_type(name, offerings=[offering(price=price, currency="CNY")])
        for name, price in (("dear", 7.0), ("cheap", 3.0))
    ]
    mixed = [types[0], instance_type("dollar", offerings=[offering(price=9.0)])]

    plan = solve(problem([pod()], catalogue=catalogue(*types)))

    assert plan.claims[0].instance_types == ("cheap", "dear")
    assert plan.cost.hourly == 0.0
    # Beside prices that can be compared, one that cannot is left out.
    assert solve(problem([pod()], catalogue=catalogue(*mixed))).claims[0].instance_types == (
        "dollar",
    )


def test_value_packing_uses_cheap_capacity():
    """Two middle-sized nodes cost less than the large one of first-fit."""
    types = [
        instance_type(name, cpu=cpu, memory="64Gi", price=price, capacity_types=(ON_DEMAND,))
        for name, cpu, price in (("large", "16", 1.0), ("medium", "8", 0.3), ("small", "2", 0.2))
    ]
    asked = problem(pods(15, cpu="1"), catalogue=catalogue(*types))

    first_fit = solve(asked, SolveOptions(packing=PackingPolicy.FIRST_FIT))
    value = solve(asked)

    assert [c.cheapest.instance_type for c in first_fit.claims] == ["large"]
    assert value.cost.first_fit_hourly == first_fit.cost.hourly == 1.0
    assert value.cost.hourly == pytest.approx(0.8)


def test_a_fee_per_node_launches_fewer_nodes():
    """A cent an hour for each node, the default, favours larger ones."""
    types = [
        instance_type(name, cpu=cpu, memory="64Gi", price=price, capacity_types=(ON_DEMAND,))
        for name, cpu, price in (("large", "16", 1.03), ("small", "2", 0.06))
    ]
    asked = problem(pods(15, cpu="1"), catalogue=catalogue(*types))

    assert len(solve(asked, SolveOptions(node_fee_per_hour=0.003)).claims) == 15
    assert len(solve(asked).claims) == 1


def test_pools_share_nothing_but_the_catalogue():
    """One compiled catalogue serves several pools, each with its own template."""
    types = catalogue(TWO)
    pools = [node_pool(name, labels={"example.com/team": name}) for name in ("blue", "green")]
    wanting = [pod(name, node_selector={"example.com/team": name}) for name in ("blue", "green")]
    plan = solve(problem(wanting, pools=pools, catalogue=types))
    assert {claim.pool: claim.pods[0].name for claim in plan.claims} == {
        "blue": "blue", "green": "green",
    }  # fmt: skip
