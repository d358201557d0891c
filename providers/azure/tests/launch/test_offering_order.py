"""A claim is launched from the cheapest offering; equal zones get equally many claims."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.contract import LaunchRequest
from karpenter_provider_azure.launch.claim_launches import OfferingOrder
from providers.azure.tests.launch.launch_world import (
    claim,
    family_sizes,
    instance_type,
    node_class,
    vm_size,
)

ZONES = ("westus2-1", "westus2-2", "westus2-3", "0")
OFFERED = [(zone, capacity_type) for zone in ZONES for capacity_type in (ON_DEMAND, SPOT)]


def order(*types, requirements=(), draw=random.random):
    request = LaunchRequest(
        node_claim=claim(requirements=requirements),
        node_class=node_class(),
        instance_types=tuple(types),
    )
    return [
        (it.name, offering.zone, offering.capacity_type)
        for it, offering in OfferingOrder(draw).offerings(request)
    ]


def d2(prices=None):
    return instance_type(*family_sizes(2), prices=prices)


def equal_prices(**dearer):
    return {each: dearer.get(each[1], 1.0) for each in OFFERED}


def test_at_equal_prices_spot_comes_before_on_demand_and_a_zone_before_none():
    ranked = [(zone == "0", ct) for _, zone, ct in order(d2(equal_prices()))]  # case 47
    assert ranked == [(False, SPOT)] * 3 + [(True, SPOT)] + [(False, ON_DEMAND)] * 3 + [
        (True, ON_DEMAND)
    ]


def test_the_price_decides_first():
    prices = equal_prices() | {("0", ON_DEMAND): 0.5}
    assert order(d2(prices))[0][1:] == ("0", ON_DEMAND)


def test_equal_zones_are_chosen_equally_often():
    it = d2()
    chosen = Counter(order(it)[0][1] for _ in range(300))
    assert set(chosen) == set(ZONES[:3])
    assert all(60 <= count <= 140 for count in chosen.values())  # case 48


def test_a_wave_is_ranked_once_and_each_claim_has_its_own_zone():
    made, types = OfferingOrder(random.random), (d2(),)
    requests = [
        LaunchRequest(node_claim=claim(f"web-{n}"), node_class=node_class(), instance_types=types)
        for n in range(60)
    ]
    firsts = [next(made.offerings(request))[1] for request in requests]
    assert {offering.zone for offering in firsts} == set(ZONES[:3])
    assert len({id(offering) for offering in firsts}) == 3


def test_other_types_and_other_requirements_are_ranked_anew():
    made, zone = (
        OfferingOrder(random.random),
        RequirementSpec(key=ZONE, operator="In", values=("0",)),
    )
    for _ in range(20):
        for prices, requirements, first in [
            (equal_prices(), (), SPOT),
            (equal_prices(**{SPOT: 2.0}), (), ON_DEMAND),
            (equal_prices(), (zone,), SPOT),
        ]:
            request = LaunchRequest(
                node_claim=claim(requirements=requirements),
                node_class=node_class(),
                instance_types=(d2(prices),),
            )
            offering = next(made.offerings(request))[1]
            assert offering.capacity_type == first
            assert (offering.zone == "0") is bool(requirements)


def test_equal_sizes_are_taken_by_name():
    names = ["Standard_F2s_v2", "Standard_D2as_v5"]
    types = [instance_type(vm_size(name, cpus=2, family=name), equal_prices()) for name in names]
    for _ in range(20):
        assert order(*types)[0][0] == "Standard_D2as_v5"  # case 49


def test_a_size_without_a_price_comes_last():
    unknown = dict.fromkeys(OFFERED, 999.0)
    dear = instance_type(*family_sizes(2), prices=unknown)
    cheap = instance_type(*family_sizes(96))
    assert order(dear, cheap)[0][0] == cheap.name  # case 50
    assert order(dear)[0][0] == dear.name


def test_a_claim_gets_only_an_offering_that_its_requirements_allow():
    zone = RequirementSpec(key=ZONE, operator="In", values=("0",))
    capacity_type = RequirementSpec(key=CAPACITY_TYPE, operator="In", values=(ON_DEMAND,))
    assert [each[1:] for each in order(d2(), requirements=(zone, capacity_type))] == [
        ("0", ON_DEMAND)
    ]


@pytest.mark.parametrize("scope", ["zonal", "regional"])
def test_a_claim_may_ask_for_a_placement_scope(scope):
    wanted = RequirementSpec(
        key="karpenter.azure.com/placement-scope", operator="In", values=(scope,)
    )
    zones = {each[1] for each in order(d2(), requirements=(wanted,))}
    assert zones == ({"0"} if scope == "regional" else set(ZONES[:3]))


PRICES = st.fixed_dictionaries({each: st.sampled_from([1.0, 2.0, 3.0]) for each in OFFERED})


@given(PRICES, PRICES, st.randoms(use_true_random=False))
def test_the_first_offering_is_the_cheapest_in_any_order_of_types(some, others, chance):
    small, large = family_sizes(2, 4)
    types = [instance_type(small, some), instance_type(large, others)]
    ordered = order(*types, draw=lambda: 0.0)
    prices = [(some if name == small.name else others)[zone, ct] for name, zone, ct in ordered]
    assert prices == sorted(prices)
    assert ordered == order(*reversed(types), draw=lambda: 0.0)
    assert sorted(order(*types, draw=chance.random)) == sorted(ordered)
