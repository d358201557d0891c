"""Tests the targets sent to ECS, and their order (cases 48 to 50, 52)."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE
from karpenter_core.errors import InsufficientCapacityError
from karpenter_provider_alibabacloud.prices import SpotAdvice, SpotQuote
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    SPOT,
    ZONE_B,
    ZONE_G,
    claim_of,
    class_of,
    in_zone,
)


def choices(sent):
    """Return the choices of one call, as type and vSwitch."""
    return [
        (config["InstanceType"], config["VSwitchId"]) for config in sent["LaunchTemplateConfig"]
    ]


def quote(process, **prices):
    """Let spot prices be known; zones are named by their letters."""
    by_zone = {f"cn-hangzhou-{letter}": price for letter, price in prices.items()}
    process.prices.update_spot(
        {LARGE: SpotQuote(by_zone, process.clock.now())}, hours=1, currency="CNY"
    )


def twenty_five_cheapest(process, node_class, capacity_type):
    """Types that launches of amd64 consider in zone b, in the order of their prices there."""
    there = {
        name: offering.price.amount
        for name, it in process.types(node_class).items()
        for offering in it.offerings
        if (offering.zone, offering.capacity_type) == (ZONE_B, capacity_type)
        and offering.available
        and it.requirements.single_value(ARCH) == "amd64"
        and not any(each in name for each in (".ebm", ".gn", ".vgn"))
    }
    cheapest = sorted(there, key=lambda name: (there[name], name))[:25]
    assert len(cheapest) == 25
    return cheapest


@pytest.mark.parametrize("policy", ["cheapest", "balanced"])
@pytest.mark.parametrize("wish", [SPOT, ON_DEMAND], ids=["spot", "on-demand"])
def test_a_claim_bound_to_a_zone_is_sent_to_no_vswitch_of_another(process, wish, policy):
    """Case 48: though it is sold out there, the others are not, and every round is used."""
    vswitches = process.cloud.world.vswitches
    process.cloud.capacity.sell_out(zone=ZONE_G)
    node_class = class_of(process.cloud, vSwitchSelectionPolicy=policy)

    outcome = process.launch_one(claim_of("a", wish, in_zone(ZONE_G)), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert len(process.sent()) > 1
    used = {vswitch for sent in process.sent() for _, vswitch in choices(sent)}
    assert used == {vswitches[ZONE_G]}


def test_the_first_choice_is_the_zone_with_the_lowest_spot_price(process, node_class):
    """Case 49."""
    vswitches = process.cloud.world.vswitches

    quote(process, b=0.10, g=0.08)
    process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)
    quote(process, b=0.08, g=0.10)
    process.launch_one(claim_of("b", SPOT, ONLY_LARGE), node_class)

    first, second = (choices(sent) for sent in process.sent())
    assert first[:2] == [(LARGE, vswitches[ZONE_G]), (LARGE, vswitches[ZONE_B])]
    assert second[:2] == [(LARGE, vswitches[ZONE_B]), (LARGE, vswitches[ZONE_G])]


@pytest.mark.parametrize("action", [GROUP, RUN])
@pytest.mark.parametrize(
    ("strategy", "rates", "first"),
    [
        ("capacity-optimized", {"b": 1.5, "g": 20.0}, ZONE_B),
        ("capacity-optimized", {"b": 3.1, "g": 4.9}, ZONE_G),
        ("capacity-optimized", {"b": 2.9, "g": 3.0}, ZONE_B),
        ("capacity-optimized", {"b": 7.5}, ZONE_B),
        ("capacity-optimized", {"b": 20.0}, ZONE_G),
        ("capacity-optimized", {}, ZONE_G),
        ("lowest-price", {"b": 1.5, "g": 20.0}, ZONE_G),
    ],
    ids=["seldom", "one band", "two bands", "who is known", "as bad", "nobody tells", "by price"],
)
def test_capacity_strategies_prefer_zones_with_few_interruptions(
    process, strategy, rates, first, action
):
    """Zone g costs less, which decides between those that are taken back about equally often."""
    quote(process, b=0.10, g=0.08)
    process.prices.update_advice(
        {LARGE: {f"cn-hangzhou-{z}": SpotAdvice(30.0, rate) for z, rate in rates.items()}}
    )
    tokens = {"metadataOptions": {"httpTokens": "required"}} if action == RUN else {}
    node_class = class_of(process.cloud, spot={"allocationStrategy": strategy}, **tokens)

    process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)

    (sent,) = process.sent(action)
    vswitch = sent["VSwitchId"] if action == RUN else choices(sent)[0][1]
    assert vswitch == process.cloud.world.vswitches[first]


def test_a_sold_out_offering_is_left_out_for_three_minutes(process, node_class):
    """Case 50: not at once, nor just before they are over."""
    full = process.cloud.world.vswitches[ZONE_B]
    quote(process, b=0.08, g=0.10)
    process.cloud.fail_pools(code="OperationDenied.NoStock", zone=ZONE_B, times=1)
    process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)

    process.clock.forward(179)
    process.launch_one(claim_of("b", SPOT, ONLY_LARGE), node_class)
    process.clock.forward(2)
    process.launch_one(claim_of("c", SPOT, ONLY_LARGE), node_class)

    first = [choices(sent)[0][1] for sent in process.sent()]
    assert [vswitch == full for vswitch in first] == [True, False, True]


def test_the_twenty_cheapest_types_are_ordered_by_interruption_rate(process):
    """Types with many interruptions come last, though they cost less; more expensive types are left out."""
    node_class = class_of(process.cloud, spot={"allocationStrategy": "capacity-optimized"})
    process.prices.update_advice(
        {name: {ZONE_B: SpotAdvice(30.0, 1.0)} for name in process.types(node_class)}
    )
    names = twenty_five_cheapest(process, node_class, "spot")
    process.prices.update_advice({name: {ZONE_B: SpotAdvice(30.0, 20.0)} for name in names[:3]})

    process.launch_one(claim_of("a", SPOT, in_zone(ZONE_B), (INSTANCE_TYPE, *names)), node_class)

    (sent,) = process.sent()
    assert [name for name, _ in choices(sent)] == [*names[3:20], *names[:3]]


def test_a_call_has_the_twenty_cheapest_types_in_price_order(process, node_class):
    """Case 52: without bare metal, GPUs and other architectures."""
    cheapest = twenty_five_cheapest(process, node_class, "on-demand")

    process.launch_one(
        claim_of("a", ON_DEMAND, in_zone(ZONE_B), (INSTANCE_TYPE, *reversed(cheapest))), node_class
    )

    (sent,) = process.sent()
    assert [name for name, _ in choices(sent)] == cheapest[:20]
