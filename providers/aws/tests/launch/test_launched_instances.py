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
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    EFA,
    INSTANCE_PROFILE_ANNOTATION,
    INSTANCE_TENANCY,
    PLACEMENT_GROUP_PARTITION,
    ZONE_ID,
)
from karpenter_provider_aws.launch.launched_instances import LaunchDetails, launched_instance

BLOCK = "cr-block"
FACTS = LaunchDetails(
    instance_id="i-1",
    zone="zone-a",
    subnet_id="subnet-1",
    capacity_type=ON_DEMAND,
    image_id="ami-1",
    tenancy="default",
)


def sold(zone, capacity_type, memory, *, reservation=""):
    """An offering that is recognised by its override of a node's memory."""
    made = offering(zone, capacity_type)
    labels = {CAPACITY_RESERVATION_ID: reservation} if reservation else {}
    requirements = made.requirements.merge(Requirements.from_labels(labels))
    return replace(made, requirements=requirements, capacity_override={"memory": memory})


TYPE = instance_type(
    "large",
    resources={EFA: "1", "example.com/none": "0"},
    overhead={"memory": "1"},
    labels={"example.com/family": "m", CAPACITY_RESERVATION_TYPE: "default"},
    offerings=[
        sold("zone-b", ON_DEMAND, 101),
        sold("zone-a", SPOT, 201),
        sold("zone-a", RESERVED, 301, reservation="cr-other"),
        sold("zone-a", RESERVED, 401, reservation=BLOCK),
        sold("zone-a", ON_DEMAND, 501),
    ],
)


def node_class(*, profile="", **spec):
    subnets = [
        {"id": "subnet-1", "zone": "zone-a", "zoneID": "az1"},
        {"id": "subnet-2", "zone": "zone-b", "zoneID": "az2"},
    ]
    reservation = {
        "id": BLOCK,
        "instanceType": "large",
        "availabilityZone": "zone-a",
        "instanceMatchCriteria": "targeted",
        "ownerID": "1",
        "reservationType": "capacity-block",
        "state": "active",
        "interruptible": True,
    }
    return EC2NodeClass.model_validate(
        {
            "metadata": {"name": "default"},
            "spec": {
                "role": "nodes",
                "subnetSelectorTerms": [{"id": "subnet-1"}],
                "securityGroupSelectorTerms": [{"id": "sg-1"}],
                "amiSelectorTerms": [{"alias": "al2023@latest"}],
                **spec,
            },
            "status": {
                "subnets": subnets,
                "capacityReservations": [reservation],
                **({"instanceProfile": profile} if profile else {}),
            },
        }
    )


def launched(*, of=None, claim=None, **changes):
    return launched_instance(
        replace(FACTS, **changes), TYPE, claim or node_claim("web"), of or node_class()
    )


@pytest.mark.parametrize(
    ("changes", "memory"),
    [
        ({}, 501),
        ({"capacity_type": SPOT}, 201),
        ({"zone": "zone-b", "subnet_id": "subnet-2"}, 101),
        ({"capacity_type": RESERVED, "reservation_id": BLOCK}, 401),
        ({"capacity_type": RESERVED, "reservation_id": "cr-other"}, 301),
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


def test_fabric_adapters_exist_if_requested_or_configured():
    asking = node_claim("web")
    requests = {**asking.spec.resources.requests, EFA: "1"}
    resources = asking.spec.resources.model_copy(update={"requests": requests})
    spec = asking.spec.model_copy(update={"resources": resources})
    asking = asking.model_copy(update={"spec": spec})
    configured = node_class(
        networkInterfaces=[{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa"}]
    )
    for found, has in (
        (launched(), False),
        (launched(claim=asking), True),
        (launched(of=configured), True),
    ):
        assert (EFA in found.capacity, EFA in found.allocatable) == (has, has)


def test_labels_hold_type_zone_capacity_type_and_pool():
    found = launched()
    assert found.provider_id == "aws:///zone-a/i-1"
    assert (found.instance_type, found.zone, found.capacity_type) == ("large", "zone-a", ON_DEMAND)
    assert found.image_id == "ami-1"
    expected = {
        INSTANCE_TYPE: "large",
        ZONE: "zone-a",
        ZONE_ID: "az1",
        CAPACITY_TYPE: ON_DEMAND,
        INSTANCE_TENANCY: "default",
        NODE_POOL: "default",
        "example.com/family": "m",
    }
    assert {key: found.labels.get(key) for key in expected} == expected
    assert list(found.labels) == sorted(found.labels)
    assert all(found.labels.values())
    assert PLACEMENT_GROUP_PARTITION not in found.labels
    assert CAPACITY_RESERVATION_TYPE not in found.labels


def test_the_zone_id_is_that_of_the_subnet_or_else_of_the_zone():
    assert launched(subnet_id="subnet-2").labels[ZONE_ID] == "az2"
    assert launched(subnet_id="subnet-gone").labels[ZONE_ID] == "az1"
    assert ZONE_ID not in launched(subnet_id="subnet-gone", zone="zone-c").labels


def test_a_partition_is_a_label_where_there_is_one():
    assert launched(partition=3).labels[PLACEMENT_GROUP_PARTITION] == "3"


def test_labels_of_a_reservation_come_from_the_node_class():
    found = launched(capacity_type=RESERVED, reservation_id=BLOCK).labels
    assert (
        found[CAPACITY_RESERVATION_ID],
        found[CAPACITY_RESERVATION_TYPE],
        found[CAPACITY_RESERVATION_INTERRUPTIBLE],
    ) == (BLOCK, "capacity-block", "true")


def test_a_reservation_outside_the_node_class_has_its_id_only():
    found = launched(capacity_type=RESERVED, reservation_id="cr-gone").labels
    assert found[CAPACITY_RESERVATION_ID] == "cr-gone"
    assert CAPACITY_RESERVATION_TYPE not in found
    assert CAPACITY_RESERVATION_INTERRUPTIBLE not in found
    assert CAPACITY_RESERVATION_ID not in launched(reservation_id=BLOCK).labels


def test_the_profile_is_recorded_when_present():
    assert launched().annotations == {}
    of = node_class(profile="nodes")
    assert launched(of=of).annotations == {INSTANCE_PROFILE_ANNOTATION: "nodes"}
