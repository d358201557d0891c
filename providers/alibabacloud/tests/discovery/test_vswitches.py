"""vSwitches over the simulated cloud (acceptance cases 18 and 24; section 4)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClassStatus, VSwitch, VSwitchTerm
from karpenter_provider_alibabacloud.discovery.cluster import Cni
from karpenter_provider_alibabacloud.discovery.vswitches import (
    DescribedVSwitch,
    _read,
    least_addresses,
    order_vswitches,
    vswitch_queries,
)
from providers.alibabacloud.tests.discovery.worlds import Readers, node_class_of


@pytest.fixture
def readers(cloud, clients):
    return Readers(cloud, clients)


def terms(*given):
    return [VSwitchTerm.model_validate(term) for term in given]


def found(id_, free):
    return DescribedVSwitch(id=id_, zone="z", vpc_id="vpc", free_addresses=free)


def test_most_free_addresses_come_first_and_ids_break_ties():
    """Case 18; one that two terms find is there once."""
    listed = [found("vsw-c", 100), found("vsw-a", 250), found("vsw-b", 100), found("vsw-c", 100)]

    assert [vswitch.id for vswitch in order_vswitches(listed)] == ["vsw-a", "vsw-b", "vsw-c"]


def test_many_vswitches_are_read_in_the_fewest_calls(cloud, readers):
    """Case 24: 120 of them in three pages; and once a minute only."""
    for number in range(120):
        cloud.networks.add_vswitch(
            cloud.world.vpc_id,
            zone=cloud.world.zones[number % 3],
            cidr=f"10.100.{number}.0/24",
            tags={"team": "web"},
        )
    wanted = terms({"tags": {"team": "web"}})

    assert len(readers.vswitches.find(wanted).items) == 120
    pages = [call.parameters for call in cloud.calls.of("DescribeVSwitches")]
    assert [(str(page["PageNumber"]), str(page["PageSize"])) for page in pages] == [
        ("1", "50"),
        ("2", "50"),
        ("3", "50"),
    ]
    readers.clock.forward(seconds=59)
    readers.vswitches.find(wanted)
    assert cloud.calls.count("DescribeVSwitches") == 3
    readers.clock.forward(seconds=1)
    readers.vswitches.find(wanted)
    assert cloud.calls.count("DescribeVSwitches") == 6


def test_a_vswitch_is_found_at_once_after_none_was(cloud, readers):
    wanted = terms({"tags": {"team": "web"}})
    assert readers.vswitches.find(wanted).items == ()
    new = cloud.networks.add_vswitch(
        cloud.world.vpc_id, zone=cloud.world.zones[0], cidr="10.100.0.0/24", tags={"team": "web"}
    )
    assert [vswitch.id for vswitch in readers.vswitches.find(wanted).items] == [new.id]


def test_terms_are_alternatives_and_fields_of_a_term_are_combined(cloud, readers):
    zone = cloud.world.zones[0]
    ids = cloud.world.vswitches
    discovery = dict(cloud.world.discovery)

    def listed(*given):
        return {vswitch.id for vswitch in readers.vswitches.find(terms(*given)).items}

    assert listed({"tags": discovery}) == set(ids.values())
    assert listed({"tags": dict.fromkeys(discovery, "*"), "zoneId": zone}) == {ids[zone]}
    assert listed({"tags": {**discovery, "team": "web"}}) == set()
    assert listed({"name": f"{cloud.world.cluster}-{zone}"}) == {ids[zone]}
    other = ids[cloud.world.zones[1]]
    assert listed({"id": ids[zone]}, {"id": other}) == {ids[zone], other}


def test_terms_that_find_nothing_are_named(cloud, readers):
    id_ = cloud.world.vswitches[cloud.world.zones[0]]

    answer = readers.vswitches.find(
        terms({"id": id_}, {"id": "vsw-none"}, {"tags": {"team": "web", "app": "*"}})
    )

    assert answer.absent == (
        'spec.vSwitchSelectorTerms[1] id "vsw-none"',
        "spec.vSwitchSelectorTerms[2] tags {app: *, team: web}",
    )


def test_a_vswitch_that_is_being_made_is_not_used(cloud, readers):
    zone = cloud.world.zones[0]
    cloud.networks.vswitch(cloud.world.vswitches[zone]).status = "Pending"

    answer = readers.vswitches.find(terms({"tags": dict(cloud.world.discovery)}))

    assert zone not in {vswitch.zone for vswitch in answer.items}


def test_the_value_of_a_tag_that_may_be_any_is_not_sent():
    (query,) = vswitch_queries(terms({"tags": {"b": "*", "a": "1"}}))

    assert query.to_api() == {"Tag": [{"Key": "a", "Value": "1"}, {"Key": "b"}]}


def test_a_refusal_is_an_error_that_names_the_action(cloud, readers):
    cloud.deny("DescribeVSwitches")

    with pytest.raises(AuthError) as caught:
        readers.vswitches.find(terms({"id": "vsw-1"}))

    assert caught.value.action == "vpc:DescribeVSwitches"


def test_a_launch_gets_the_vswitch_of_each_zone_with_enough_addresses(cloud, readers):
    """Section 4.2: each has addresses for one instance, and unused ones are given back."""
    zone = cloud.world.zones[0]
    small = cloud.world.vswitches[zone]
    large = cloud.networks.add_vswitch(
        cloud.world.vpc_id, zone=zone, cidr="10.200.0.0/26", tags=cloud.world.discovery
    ).id
    cloud.networks.leave_addresses(small, 10)
    node_class = node_class_of(cloud)
    listed = readers.vswitches.find(node_class.spec.v_switch_selector_terms).items
    status = ECSNodeClassStatus(
        v_switches=tuple(VSwitch(id=v.id, zone_id=v.zone) for v in listed if v.zone == zone)
    )
    node_class = node_class.model_copy(update={"status": status})

    def hold(instances=1):
        return readers.vswitches.zonal_vswitches(
            node_class, addresses_each={zone: 15}, instances=instances
        )

    first = hold(instances=3)
    assert first.subnets[zone].id == large
    assert readers.vswitches.expected_addresses(large) == 60 - 45
    second = hold()
    assert second.subnets[zone].id == large
    assert readers.vswitches.expected_addresses(large) == 0

    readers.vswitches.note_launched(first, {large: 1})
    readers.vswitches.restore(second)
    assert readers.vswitches.expected_addresses(large) == 60 - 15
    readers.vswitches.note_launched(hold(instances=3), {large: 3})
    assert hold().subnets == {}
    readers.vswitches.note_exhausted(large)
    assert hold().subnets == {}


def test_a_launch_does_not_wait_for_addresses_that_other_launches_reserve(cloud, readers):
    """Each keeps addresses in all zones until it is known in which it was launched."""
    node_class = node_class_of(cloud)
    listed = readers.vswitches.find(node_class.spec.v_switch_selector_terms).items
    status = ECSNodeClassStatus(v_switches=tuple(VSwitch(id=v.id, zone_id=v.zone) for v in listed))
    node_class = node_class.model_copy(update={"status": status})
    each = dict.fromkeys(cloud.world.zones, 15)

    def hold(instances):
        return readers.vswitches.zonal_vswitches(
            node_class, addresses_each=each, instances=instances
        )

    first = hold(instances=1000)
    assert set(hold(instances=1).subnets) == set(cloud.world.zones)
    assert not any(readers.vswitches.is_short(vswitch.id, 15) for vswitch in listed)

    zone = cloud.world.zones[0]
    readers.vswitches.note_launched(first, {cloud.world.vswitches[zone]: 1000})
    assert set(hold(instances=1).subnets) == set(cloud.world.zones[1:])
    assert readers.vswitches.is_short(cloud.world.vswitches[zone], 15)


def test_with_terway_each_pod_takes_an_address(catalogue_types):
    """Otherwise a node takes one."""
    assert least_addresses(catalogue_types, "spot", Cni.TERWAY_ENIIP) == {"a": 15, "b": 48}
    assert least_addresses(catalogue_types, "on-demand", Cni.TERWAY_ENIIP) == {"a": 48}
    assert least_addresses(catalogue_types, "spot", Cni.FLANNEL) == {"a": 1, "b": 1}


class Offered:
    """As much of an instance type as counts here."""

    def __init__(self, pods, *offerings):
        self.capacity = {"pods": pods}
        self.offerings = [Offering(*offering) for offering in offerings]


class Offering:
    def __init__(self, zone, capacity_type, available=True):
        self.zone, self.capacity_type, self.available = zone, capacity_type, available


@pytest.fixture
def catalogue_types():
    return [
        Offered(15, ("a", "spot"), ("b", "spot", False)),
        Offered(48, ("a", "spot"), ("a", "on-demand"), ("b", "spot")),
    ]


@pytest.mark.parametrize(("told", "free"), [({}, 0), ({"AvailableIpAddressCount": 7}, 7)])
def test_a_vswitch_that_does_not_tell_its_free_addresses_has_none(told, free):
    assert (
        _read({"VSwitchId": "vsw-1", "ZoneId": "a", "VpcId": "vpc-1", **told}).free_addresses
        == free
    )
