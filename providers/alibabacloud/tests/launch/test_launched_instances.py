"""Tests the outcome that the core gets for a launched instance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    RESERVED,
    SPOT,
    ZONE,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.testing.builders import instance_type, offering
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_alibabacloud.labels import CAPACITY_RESERVATION_ID, ZONE_ID
from karpenter_provider_alibabacloud.launch.launched_instances import (
    LaunchDetails,
    launched_instance,
)

POOL = "crp-block"
FACTS = LaunchDetails(
    region="cn-hangzhou",
    instance_id="i-1",
    zone="zone-a",
    capacity_type=ON_DEMAND,
    image_id="m-1",
)


def sold(zone, capacity_type, memory, *, reservation=""):
    """An offering that is recognised by its override of a node's memory."""
    made = offering(zone, capacity_type)
    labels = {CAPACITY_RESERVATION_ID: reservation} if reservation else {}
    requirements = made.requirements.merge(Requirements.from_labels(labels))
    return replace(made, requirements=requirements, capacity_override={"memory": memory})


TYPE = instance_type(
    "large",
    resources={"example.com/none": "0"},
    overhead={"memory": "1"},
    labels={"example.com/family": "g", CAPACITY_RESERVATION_ID: "crp-any"},
    offerings=[
        sold("zone-b", ON_DEMAND, 101),
        sold("zone-a", SPOT, 201),
        sold("zone-a", RESERVED, 301, reservation="crp-other"),
        sold("zone-a", RESERVED, 401, reservation=POOL),
        sold("zone-a", ON_DEMAND, 501),
    ],
)


def launched(**changes):
    return launched_instance(replace(FACTS, **changes), TYPE, node_claim("web"))


@pytest.mark.parametrize(
    ("changes", "memory"),
    [
        ({}, 501),
        ({"capacity_type": SPOT}, 201),
        ({"zone": "zone-b"}, 101),
        ({"capacity_type": RESERVED, "reservation_id": POOL}, 401),
        ({"capacity_type": RESERVED, "reservation_id": "crp-other"}, 301),
    ],
)
def test_capacity_is_that_of_the_offering_it_was_launched_as(changes, memory):
    found = launched(**changes)
    assert found.capacity["memory"] == memory
    assert found.allocatable["memory"] == memory - 1


def test_capacity_is_that_of_the_type_where_the_offering_is_gone():
    found = launched(zone="zone-c")
    assert found.capacity["memory"] == TYPE.capacity["memory"]
    assert found.allocatable["memory"] == TYPE.capacity["memory"] - 1


def test_absent_facts_are_left_out():
    found = launched()
    for amounts in (found.capacity, found.allocatable):
        assert "example.com/none" not in amounts
        assert {"cpu", "memory", "pods"} <= set(amounts)


def test_labels_hold_type_zone_capacity_type_and_pool():
    found = launched()
    assert found.provider_id == "cn-hangzhou.i-1"
    assert (found.instance_type, found.zone, found.capacity_type) == ("large", "zone-a", ON_DEMAND)
    assert found.image_id == "m-1"
    expected = {
        INSTANCE_TYPE: "large",
        ZONE: "zone-a",
        ZONE_ID: "zone-a",
        CAPACITY_TYPE: ON_DEMAND,
        NODE_POOL: "default",
        "example.com/family": "g",
    }
    assert {key: found.labels.get(key) for key in expected} == expected
    assert list(found.labels) == sorted(found.labels)
    assert all(found.labels.values())


def test_the_reservation_is_a_label_of_reserved_instances_only():
    assert (
        launched(capacity_type=RESERVED, reservation_id=POOL).labels[CAPACITY_RESERVATION_ID]
        == POOL
    )
    assert CAPACITY_RESERVATION_ID not in launched(reservation_id=POOL).labels
    assert CAPACITY_RESERVATION_ID not in launched(capacity_type=RESERVED).labels
