"""Tests offerings (cases 60, 61, 70, 71, 74, 80 and 81)."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.provider.catalogue import InstanceType, Price
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws import labels
from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
from karpenter_provider_aws.type_compatibility import incompatibility
from providers.aws.tests.catalogue.recorded_region import (
    NOW,
    ZONES,
    World,
    bought,
    info,
    node_class,
    region,
)

PRIMARY = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
SPREAD = DescribedPlacementGroup(
    id="pg-1", name="apart", strategy="spread", partitions=0, spread_level=""
)
RACKS = DescribedPlacementGroup(
    id="pg-2", name="racks", strategy="partition", partitions=2, spread_level=""
)


def interface(card: int, device: int, kind: str = "interface") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def reservation(**fields: Any) -> dict[str, Any]:
    return {
        "id": "cr-1",
        "availabilityZone": "us-east-1a",
        "instanceType": "m5.large",
        "instanceMatchCriteria": "open",
        "ownerID": "123456789012",
        **fields,
    }


def reserved(it: InstanceType) -> Any:
    return [offering for offering in it.offerings if offering.capacity_type == "reserved"]


@pytest.mark.parametrize(
    ("name", "spec", "family", "group"),
    [
        ("a1.large", {}, "AL2023", None),
        ("c4.large", {"connectionTracking": {"udpTimeout": 30}}, "AL2023", None),
        ("m5.metal", {"connectionTracking": {"udpTimeout": 30}}, "AL2023", None),
        ("m5.large", {"cpuOptions": {"nestedVirtualization": "enabled"}}, "AL2023", None),
        ("t3.large", {"enclaveOptions": {"enabled": True}}, "AL2023", None),
        ("t2.nano", {"networkInterfaces": [PRIMARY]}, "AL2023", None),
        ("m5.large", {"networkInterfaces": [PRIMARY, interface(1, 0)]}, "AL2023", None),
        ("m5.large", {"networkInterfaces": [PRIMARY, interface(0, 3)]}, "AL2023", None),
        ("m5.large", {"networkInterfaces": [PRIMARY, interface(0, 1, "efa-only")]}, "AL2", None),
        (
            "p6-b300.48xlarge",
            {"networkInterfaces": [PRIMARY, interface(0, 1, "efa-only")]},
            "AL2023",
            None,
        ),
        ("m5.large", {"networkInterfaces": [PRIMARY], "ipPrefixCount": 10}, "AL2", None),
        (
            "t3.large",
            {},
            "AL2",
            DescribedPlacementGroup(
                id="pg-3", name="near", strategy="cluster", partitions=0, spread_level=""
            ),
        ),
    ],
)
def test_types_that_do_not_go_with_a_node_class_are_listed_as_unavailable(
    name: str, spec: dict[str, Any], family: str, group: DescribedPlacementGroup | None
):
    """Cases 60 and 61."""
    found = World(name).list(node_class(spec, family=family), group=group)[name]

    assert found.offerings
    assert not any(offering.available for offering in found.offerings)


@pytest.mark.parametrize(
    ("name", "spec", "family"),
    [
        ("a1.large", {}, "Bottlerocket"),
        ("c5.large", {"connectionTracking": {"udpTimeout": 30}}, "AL2023"),
        ("m5.large", {"cpuOptions": {"nestedVirtualization": "disabled"}}, "AL2023"),
        ("m5.large", {"cpuOptions": {}}, "AL2023"),
        ("t3.large", {"enclaveOptions": {"enabled": False}}, "AL2023"),
        ("m5.xlarge", {"enclaveOptions": {"enabled": True}}, "AL2023"),
        ("m5.large", {"cpuOptions": {"threadsPerCore": 1}}, "AL2023"),
        ("m5.large", {"networkInterfaces": [PRIMARY, interface(0, 2)]}, "AL2"),
        ("m5.large", {"networkInterfaces": [PRIMARY], "ipPrefixCount": 9}, "AL2"),
        (
            "p4d.24xlarge",
            {"networkInterfaces": [PRIMARY, *(interface(c, 1, "efa-only") for c in range(4))]},
            "AL2",
        ),
    ],
)
def test_types_that_go_with_a_node_class_are_available(
    name: str, spec: dict[str, Any], family: str
):
    """Cases 60 and 61."""
    assert incompatibility(info(name), node_class(spec, family=family), None) == ""


def test_nested_virtualization_leaves_the_types_that_have_it():
    """Case 61."""
    of = node_class({"cpuOptions": {"nestedVirtualization": "enabled"}})
    left = [name for name, it in region().types.items() if not incompatibility(it, of, None)]

    assert len(left) == 166
    assert not any(region().types[name].bare_metal for name in left)


def test_there_is_one_offering_for_each_zone_and_capacity_type():
    """Case 70."""
    found = World("m5.large").list()["m5.large"]

    assert list(bought(found)) == [
        (zone, capacity_type) for zone in ZONES for capacity_type in ("on-demand", "spot")
    ]
    assert len(found.offerings) == 8


def test_offerings_are_in_zones_with_the_type_and_a_subnet():
    """Rule PC-022, for every type of the region."""
    for found in World().list(node_class(zones=["us-east-1a", "us-east-1e"])).values():
        for offering in found.offerings:
            assert found.requirements.get(ZONE).has(offering.zone)
            assert found.requirements.get(CAPACITY_TYPE).has(offering.capacity_type)
            assert offering.zone in region().zones[found.name]


def test_a_reserved_offering_is_priced_near_zero():
    """Case 71."""
    world = World("m5.large")
    world.prices.update_on_demand({"m5.large": 1.0}, now=NOW)
    world.reserved_left["cr-1"] = 3
    (offering,) = reserved(world.list(node_class(capacityReservations=[reservation()]))["m5.large"])

    assert offering.price == Price(1e-7)
    assert (offering.available, offering.reservation_capacity) == (True, 3)
    assert offering.zone == "us-east-1a"
    assert offering.requirements.single_value(labels.CAPACITY_RESERVATION_ID) == "cr-1"
    assert offering.requirements.single_value(labels.CAPACITY_RESERVATION_TYPE) == "default"
    assert offering.requirements.single_value(labels.CAPACITY_RESERVATION_INTERRUPTIBLE) == "false"


@pytest.mark.parametrize(
    ("left", "fields", "shifted"),
    [
        (0, {}, frozenset()),
        (3, {"state": "expiring"}, frozenset()),
        (3, {}, frozenset({"use1-az-a"})),
    ],
)
def test_a_reservation_that_cannot_be_used_is_unavailable(
    left: int, fields: dict[str, Any], shifted: frozenset[str]
):
    """Case 71."""
    world = World("m5.large")
    world.reserved_left["cr-1"] = left
    of = node_class(capacityReservations=[reservation(**fields)])
    (offering,) = reserved(world.list(of, shifted_zones=shifted)["m5.large"])

    assert (offering.available, offering.reservation_capacity) == (False, left)


def test_remaining_reserved_capacity_is_read_for_each_list():
    world = World("m5.large", "m5.xlarge")
    of = node_class(capacityReservations=[reservation()])
    world.reserved_left["cr-1"] = 5
    before = world.list(of)
    world.reserved_left["cr-1"] = 4
    now = world.list(of)

    assert reserved(now["m5.large"])[0].reservation_capacity == 4
    assert now["m5.xlarge"] is before["m5.xlarge"]


def test_a_reservation_in_a_zone_without_a_subnet_is_no_offering():
    of = node_class(
        capacityReservations=[reservation(availabilityZone="us-east-1f")], zones=["us-east-1a"]
    )

    assert reserved(World("m5.large").list(of)["m5.large"]) == []


def test_only_zones_with_a_spot_price_have_spot_offerings_once_prices_were_read():
    """Case 74."""
    world = World("m5.large")
    before = bought(world.list()["m5.large"])
    world.prices.update_spot({("m5.large", "us-east-1a"): 0.03}, now=NOW)
    after = bought(world.list()["m5.large"])

    assert before["us-east-1b", "spot"].price == before["us-east-1b", "on-demand"].price
    assert all(offering.available for offering in before.values())
    assert after["us-east-1a", "spot"].price == Price(0.03)
    assert after["us-east-1a", "spot"].available
    assert not after["us-east-1b", "spot"].available
    assert after["us-east-1b", "spot"].price == after["us-east-1b", "on-demand"].price
    assert after["us-east-1b", "on-demand"].available


def test_a_type_without_any_price_is_unavailable():
    """Case 82, without an overlay."""
    world = World("m5.large")
    world.region.types["x9.large"] = info("m5.large").__class__(
        name="x9.large", architectures=("x86_64",), vcpus=2, memory_mib=8192,
        usage_classes=("on-demand", "spot"),
    )  # fmt: skip
    world.region.zones["x9.large"] = ("us-east-1a",)
    found = world.list()["x9.large"]

    assert len(found.offerings) == 2
    assert not any(offering.available for offering in found.offerings)


def test_a_shortage_closes_one_offering_and_all_types_stay():
    """Case 80."""
    world = World("m5.large", "m5.xlarge")
    before = world.list()
    world.unavailable_offerings.mark(UnavailableOffering("m5.large", "us-east-1a", "spot"), now=NOW)
    after = world.list()

    assert list(after) == ["m5.large", "m5.xlarge"]
    assert [key for key, o in bought(after["m5.large"]).items() if not o.available] == [
        ("us-east-1a", "spot")
    ]
    assert after["m5.xlarge"] is before["m5.xlarge"]


def test_a_zone_is_closed_when_its_last_subnet_is():
    world = World("m5.large")
    world.unavailable_offerings.mark_subnet("subnet-a1", now=NOW)
    found = bought(world.list()["m5.large"])

    assert not found["us-east-1a", "on-demand"].available
    assert found["us-east-1b", "on-demand"].available


def test_a_shortage_in_a_placement_group_is_seen_by_its_launches_only():
    """Case 81."""
    world = World("m5.large")
    world.unavailable_offerings.mark(
        UnavailableOffering("m5.large", "us-east-1a", "spot", placement_group="pg-1"), now=NOW
    )

    inside = bought(world.list(group=SPREAD)["m5.large"])
    outside = bought(world.list()["m5.large"])

    assert not inside["us-east-1a", "spot"].available
    assert inside["us-east-1a", "on-demand"].available
    assert outside["us-east-1a", "spot"].available


def test_each_partition_is_offered_on_its_own():
    world = World("m5.large")
    world.unavailable_offerings.mark(
        UnavailableOffering(
            "m5.large", "us-east-1a", "spot", placement_group="pg-2", partition="2"
        ),
        now=NOW,
    )
    found = world.list(node_class(zones=["us-east-1a"]), group=RACKS)["m5.large"]

    assert {
        (
            offering.capacity_type,
            offering.requirements.single_value(labels.PLACEMENT_GROUP_PARTITION),
            offering.available,
        )
        for offering in found.offerings
    } == {
        ("on-demand", "1", True),
        ("on-demand", "2", True),
        ("spot", "1", True),
        ("spot", "2", False),
    }


def test_nothing_is_launched_into_a_zone_that_traffic_is_shifted_away_from():
    found = bought(World("m5.large").list(shifted_zones=frozenset({"use1-az-b"}))["m5.large"])

    assert {zone for (zone, _), offering in found.items() if not offering.available} == {
        "us-east-1b"
    }


def test_offerings_outside_of_reservations_have_none_of_their_labels():
    found = World("m5.large").list()["m5.large"]

    for offering in found.offerings:
        for key in labels.RESERVATION_LABELS:
            assert offering.requirements.get(key).operator == "DoesNotExist"
        assert offering.requirements.single_value(labels.ZONE_ID).startswith("use1-az-")
