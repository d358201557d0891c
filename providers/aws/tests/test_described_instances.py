"""EC2's description of an instance is read as the instance is bought."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_provider_aws.described_instances import InstanceReader, read_instance

OPEN = {"CapacityReservationId": "cr-1"}
TARGETED = {
    **OPEN,
    "CapacityReservationSpecification": {
        "CapacityReservationPreference": "capacity-reservations-only"
    },
}
BLOCK = {**OPEN, "InstanceLifecycle": "capacity-block"}


@pytest.mark.parametrize(
    ("described", "capacity_type"),
    [
        ({}, ON_DEMAND),
        ({"InstanceLifecycle": "spot"}, SPOT),
        ({"SpotInstanceRequestId": "sir-1"}, SPOT),
        ({"InstanceLifecycle": "spot", **OPEN}, SPOT),
        (OPEN, ON_DEMAND),
        (TARGETED, RESERVED),
        (BLOCK, RESERVED),
    ],
)
def test_the_capacity_type_is_that_of_the_instance(described, capacity_type):
    """An on-demand instance may happen to run in a reservation that is open to all."""
    instance = read_instance(described)

    assert instance.capacity_type == capacity_type
    assert instance.reservation_id == ("cr-1" if capacity_type == RESERVED else "")


@pytest.mark.parametrize("described", [TARGETED, BLOCK])
def test_without_the_gate_no_instance_is_reserved(described):
    instance = read_instance(described, uses_reservations=False)

    assert (instance.capacity_type, instance.reservation_id) == (ON_DEMAND, "")


@pytest.mark.parametrize("left_out", ["InstanceId", "Placement"])
def test_an_instance_without_id_or_zone_is_no_answer(left_out):
    """Its provider ID would be none: the instance could not be ended, nor its NodeClaim."""
    item = {"InstanceId": "i-1", "Placement": {"AvailabilityZone": "us-east-1a"}, "State": {}}
    page = {"Reservations": [{"Instances": [{**item, left_out: item[left_out].__class__()}]}]}
    ec2 = SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=lambda **_: [page]))
    reader = InstanceReader(SimpleNamespace(ec2=ec2), cluster="test")
    with pytest.raises(CloudProviderError, match="an instance without id or zone"):
        reader.of_cluster()
    with pytest.raises(CloudProviderError, match="an instance without id or zone"):
        reader.of_claims(["uid-1"])
