"""Limits of cost and of spot shares count nodes by what they are bought as."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, PRICE_PER_HOUR
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.state.events import DeletionMarked, RegistrationSettled
from karpenter_core.state.launch_limits import LaunchLimit, LaunchLimits, refused_pools
from karpenter_core.state.node_pool_usage import (
    OTHER_NODES,
    SPOT_NODES,
    capacity_type_count,
    node_price_amount,
    unpriced_node,
)
from karpenter_core.testing.builders import EPOCH, catalogue, instance_type, node_pool, offering
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state

POOL = ready_node_pool(node_pool())


def unpriced(*objects, marked=()):
    types = catalogue(instance_type("known", zones=("zone-a",)))
    builder = synced_state(POOL, *objects, catalogues={"default": types})
    if marked:
        builder.apply_event(DeletionMarked(names=tuple(marked), cause="empty/1"))
    return unpriced_node(builder.snapshot(), "default", {"USD": 1.0})


def test_a_node_of_a_type_that_the_catalogue_lists_has_a_price():
    assert unpriced(*node_and_claim("a", instance_type="known")) == ""


@pytest.mark.parametrize("marked", [(), ("a",)])
def test_a_node_of_another_type_is_named_unless_it_goes(marked):
    """One that goes cannot cost more for long."""
    objects = (
        *node_and_claim("a", instance_type="gone"),
        *node_and_claim("b", instance_type="known"),
    )
    assert unpriced(*objects, marked=marked) == ("" if marked else "a")


@pytest.mark.parametrize(
    ("capacity_type", "reserved_price", "amount"),
    [
        ("reserved", None, 2_000_000),
        ("reserved", 0.5, 500_000),
        ("spot", 0.5, LARGEST_AMOUNT),
    ],
)
def test_a_reserved_node_without_its_reservation_counts_as_on_demand(
    capacity_type, reserved_price, amount
):
    """Its instance goes on as on-demand; what became of another one is not known."""
    reserved = [] if reserved_price is None else [offering("zone-a", "reserved", reserved_price)]
    sold = instance_type(
        "known", offerings=[*reserved, offering(price=2.0), offering("zone-b", price=9.0)]
    )
    objects = node_and_claim("a", instance_type="known", capacity_type=capacity_type)
    snapshot = synced_state(POOL, *objects, catalogues={"default": catalogue(sold)}).snapshot()

    assert node_price_amount(snapshot, snapshot.state_nodes[0], {"USD": 1.0}) == amount


@pytest.mark.parametrize("rates", [{}, {"EUR": 1.1}])
def test_a_pool_with_a_price_limit_launches_nothing_beside_a_node_in_an_unknown_currency(rates):
    """Nor while a pause holds it: the first cause is told, as it does not end with time."""
    limited = ready_node_pool(node_pool(limits={PRICE_PER_HOUR: "9"}))
    sold = instance_type("known", offerings=[offering(price=1.0, currency="EUR")])
    builder = synced_state(
        limited,
        *node_and_claim("a", instance_type="known"),
        catalogues={"default": catalogue(sold)},
    )
    found = [
        refused_pools(
            builder.snapshot(), now=EPOCH, launch_limits=LaunchLimits(exchange_rates=rates)
        )
    ]
    for _ in range(2):
        builder.apply_event(RegistrationSettled(pool_uid=limited.uid, succeeded=False))
    found.append(
        refused_pools(
            builder.snapshot(), now=EPOCH, launch_limits=LaunchLimits(exchange_rates=rates)
        )
    )

    limits = [refused["default"].limit for refused in found if refused]
    if "EUR" in rates:
        assert limits == [LaunchLimit.REGISTRATION_FAILURES]
    else:
        assert limits == [LaunchLimit.UNKNOWN_PRICE] * 2


def test_nodes_of_other_pools_do_not_count():
    assert unpriced(*node_and_claim("a", instance_type="gone", pool="other")) == ""


@pytest.mark.parametrize(
    ("label", "asked", "counted"),
    [
        ("spot", "", SPOT_NODES),
        ("on-demand", "spot", OTHER_NODES),
        ("", "spot", SPOT_NODES),
        ("", "on-demand", OTHER_NODES),
    ],
)
def test_a_node_counts_as_what_it_is_bought_as_or_else_as_what_its_claim_asks_for(
    label, asked, counted
):
    claim = SimpleNamespace(
        spec=SimpleNamespace(
            requirements=[RequirementSpec(key=CAPACITY_TYPE, operator="In", values=(asked,))]
        )
    )
    labels = {CAPACITY_TYPE: label} if label else {}
    assert capacity_type_count(SimpleNamespace(labels=labels, claim=claim)) == counted
    assert capacity_type_count(SimpleNamespace(labels={}, claim=None)) == OTHER_NODES
