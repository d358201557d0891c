"""A refresh of prices between listing and launch changes no fleet's allocation strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.provider.catalogue import Price
from providers.aws.tests.launch.processes import ON_DEMAND, SPOT, claim_of

M5 = (INSTANCE_TYPE, "m5.large")
ZONE_A = (ZONE, "us-east-1a")


@pytest.fixture
def aws(few_types_aws):
    """A cloud whose price lists are short."""
    return few_types_aws


@pytest.fixture
def clients(few_types_clients):
    return few_types_clients


def strategy(aws):
    """Return the allocation strategy of the last fleet."""
    request = aws.calls.of("CreateFleet")[-1].parameters
    options = request.get("SpotOptions") or request.get("OnDemandOptions")
    return options["AllocationStrategy"]


def refresh(process):
    process.prices.refresh(process.clients, now=process.clock.now())


@pytest.mark.parametrize(
    ("capacity_type", "expected"),
    [(SPOT, "price-capacity-optimized"), (ON_DEMAND, "lowest-price")],
    ids=["spot", "on-demand"],
)
def test_types_listed_before_a_price_refresh_are_chosen_by_the_prices_of_ec2(
    aws, process, node_class, capacity_type, expected
):
    """Over several refreshes: the core lists types every few minutes, and a claim keeps its list."""
    refresh(process)
    request = process.request(claim_of("early", capacity_type, M5, ZONE_A), node_class)
    for amount in (0.07, 0.08, 0.09):
        aws.prices.set_spot("m5.large", "us-east-1a", amount)
        aws.prices.set_on_demand("m5.large", 2 * amount)
        refresh(process)

    process.launcher.launch([request])

    assert strategy(aws) == expected


def test_adjusted_prices_still_decide_after_a_refresh(aws, process, node_class):
    request = process.request(claim_of("discounted", ON_DEMAND, M5, ZONE_A), node_class)
    (it,) = request.instance_types
    own = replace(it, offerings=tuple(replace(o, price=Price(0.001)) for o in it.offerings))
    refresh(process)

    process.launcher.launch([replace(request, instance_types=(own,))])

    assert strategy(aws) == "prioritized"


def test_prices_that_move_between_two_reads_are_still_those_of_ec2(aws, process, node_class):
    """All of them at once, on demand and spot; the history of spot has the former ones as well."""
    refresh(process)
    request = process.request(claim_of("early", SPOT, M5, ZONE_A), node_class)
    for _ in range(2):
        aws.prices.move()
        assert process.prices.refresh(process.clients, now=process.clock.now())

    process.launcher.launch([request])

    assert strategy(aws) == "price-capacity-optimized"
    spot, listed = (
        process.prices.spot("m5.large", "us-east-1a"),
        process.prices.on_demand("m5.large"),
    )
    assert spot.amount == pytest.approx(aws.prices.spot("m5.large", "us-east-1a"))
    assert listed.amount == pytest.approx(aws.prices.on_demand("m5.large"))
