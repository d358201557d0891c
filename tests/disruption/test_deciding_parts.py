"""Flags and parts of conditions of disruption that decide in rare clusters only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, SPOT
from karpenter_core.api.prices import Price
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.method import DisruptionOptions, MethodPlan
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.return_to_preferred import ReturnToPreferred
from karpenter_core.disruption.shutdown import ShutdownMethod
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.disruption.static_drift import StaticDriftMethod
from karpenter_core.testing.builders import offering, requirement_spec
from tests.disruption.small_clusters import (
    EIGHT,
    GATE,
    SIXTEEN,
    box,
    cluster,
    gone,
    kind,
    multi,
    pool,
    runs,
    single,
)


@pytest.mark.parametrize(
    ("method", "waits"),
    [
        (EmptinessMethod, True),
        (SingleNodeConsolidation, True),
        (MultiNodeConsolidation, True),
        (ReturnToPreferred, True),
        (DriftMethod, False),
        (StaticDriftMethod, False),
        (ShutdownMethod, False),
    ],
)
def test_moves_that_save_money_are_validated_and_not_tried_again_for_the_same_state(method, waits):
    """Drifted nodes, and those of a pool that is shut down, have to go in any case."""
    assert method().is_validated is waits
    assert method().skips_unchanged_state is waits


def test_a_process_without_options_replaces_no_spot_by_spot_and_is_not_paused():
    options = DisruptionOptions()
    assert not options.spot_to_spot
    assert not options.static_capacity
    assert not options.paused


def test_a_method_that_says_nothing_was_neither_held_back_nor_cut_short():
    assert not MethodPlan().constrained
    assert not MethodPlan().is_cut_short


@pytest.mark.parametrize(("spot", "is_replaced"), [(0.1, True), (0.5, False)])
def test_a_spot_node_is_replaced_by_a_spot_node_or_by_none(spot, is_replaced):
    """Even where both are allowed, and a node on demand costs less."""
    either = [offering("zone-a", SPOT, spot), offering("zone-a", ON_DEMAND, 0.2)]
    types = [kind(f"k{number:02}", 4, offerings=either) for number in range(16)]
    dear = kind("dear", 4, offerings=[offering("zone-a", SPOT, 0.4)])
    outcome = single(
        cluster(
            pool(requirements=[requirement_spec(CAPACITY_TYPE, "In", SPOT, ON_DEMAND)]),
            box("web", dear, capacity_type=SPOT),
            runs("a", "web"),
            market=(*types, dear),
        ),
        options=GATE,
    )
    wanted = [
        {item.key: item.values for item in claim.requirements}[CAPACITY_TYPE]
        for command in outcome.commands
        for claim in command.replacements
    ]
    assert wanted == [frozenset({SPOT})] * is_replaced


def test_a_type_with_prices_in_a_currency_without_a_rate_replaces_nothing():
    """The cost of its dearer offering is not known."""
    mixed = kind(
        "mixed",
        2,
        offerings=[
            offering("zone-a", ON_DEMAND, 0.01),
            offering("zone-b", ON_DEMAND, 0.01, currency="XYZ"),
        ],
    )
    whole = replace(mixed, offerings=mixed.offerings[:1])
    for cheap, is_bought in ((whole, True), (mixed, False)):
        objects = (box("web", EIGHT), runs("a", "web"))
        outcome = single(cluster(*objects, market=(cheap, EIGHT)))
        assert bool(outcome.commands) is is_bought


def test_a_replacement_knows_the_list_price_and_its_source():
    (sold,) = kind("two", 2).offerings
    discounted = replace(sold, list_price=Price(0.3, "USD"), price_source="agreement")
    (command,) = single(
        cluster(
            box("web", EIGHT),
            runs("a", "web"),
            market=(kind("two", 2, offerings=[discounted]), EIGHT),
        )
    ).commands
    (claim,) = command.replacements
    assert (claim.cheapest.list_price_per_hour, claim.cheapest.price_source) == (0.3, "agreement")


@pytest.mark.parametrize(("settled", "removed"), [(True, ["a", "b"]), (False, [])])
def test_pods_of_several_nodes_move_to_no_node_that_is_not_settled(settled, removed):
    """It is still inside the time after which its pool consolidates."""
    outcome = multi(
        cluster(
            pool(window="5m"),
            *(box("a"), runs("one", "a", cpu="3"), box("b"), runs("two", "b", cpu="3")),
            box("c", SIXTEEN, settled=settled),
            runs("stays", "c", annotations={"karpenter.sh/do-not-disrupt": "true"}),
        )
    )
    assert gone(outcome) == removed
