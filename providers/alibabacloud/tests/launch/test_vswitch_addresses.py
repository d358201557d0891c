"""vSwitches with too few free addresses are skipped (section 4.2)."""

from __future__ import annotations

from collections import Counter

import pytest

from karpenter_core.errors import ExhaustedScope, InsufficientCapacityError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    SPOT,
    ZONE_B,
    Process,
    claim_of,
    class_of,
    in_zone,
)

FEW = 14
"""One less than a node with 15 pods takes on Terway."""


@pytest.fixture
def short(process, node_class):
    """The process once it has read that zone b's vSwitch has few addresses left."""
    process.cloud.networks.leave_addresses(process.cloud.world.vswitches[ZONE_B], FEW)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    return process


def zones_of(process, node_class, capacity_type="on-demand"):
    offerings = process.types(node_class)[LARGE].offerings
    return {o.zone for o in offerings if o.available and o.capacity_type == capacity_type}


def test_a_claim_without_another_zone_gets_insufficient_capacity(short, node_class):
    """The message names the vSwitches, and no call to ECS is made."""
    outcome = short.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert "addresses" in str(outcome)
    assert ZONE_B in str(outcome)
    assert {(key.instance_type, key.zone) for key in outcome.offerings} == {(LARGE, ZONE_B)}
    assert not short.sent()


@pytest.mark.parametrize("counts", [(3, FEW), (FEW, 3)])
def test_the_message_names_the_free_addresses_of_the_best_vswitch_of_a_zone(process, counts):
    world, networks = process.cloud.world, process.cloud.networks
    other = networks.add_vswitch(
        world.vpc_id, zone=ZONE_B, cidr="10.9.0.0/24", name="other", tags=world.discovery
    ).id
    vswitches = dict(zip((world.vswitches[ZONE_B], other), counts, strict=True))
    for vswitch, count in vswitches.items():
        networks.leave_addresses(vswitch, count)
    status = {"vSwitches": [{"id": vswitch, "zoneID": ZONE_B} for vswitch in vswitches]}
    node_class = class_of(process.cloud, status=status)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert f"{ZONE_B} {FEW}" in str(outcome)


def test_the_zone_is_closed_for_five_minutes(short, node_class):
    """So that nothing is planned there that cannot be launched."""
    everywhere = zones_of(short, node_class)
    assert ZONE_B in everywhere

    short.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert zones_of(short, node_class) == everywhere - {ZONE_B}
    short.clock.forward(5 * 60 - 1)
    assert zones_of(short, node_class) == everywhere - {ZONE_B}
    short.clock.forward(1)
    assert zones_of(short, node_class) == everywhere


def test_a_claim_with_another_zone_launches_there(short, node_class):
    outcome = short.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert outcome.zone != ZONE_B
    assert ZONE_B not in zones_of(short, node_class)


def test_a_node_of_flannel_takes_one_address(process):
    process.cloud.clusters.get(process.cloud.world.cluster).network = "Flannel"
    node_class = class_of(process.cloud)
    process.cloud.networks.leave_addresses(process.cloud.world.vswitches[ZONE_B], FEW)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert outcome.zone == ZONE_B
    assert ZONE_B in zones_of(process, node_class)


def test_one_spare_address_is_enough(process, node_class):
    process.cloud.networks.leave_addresses(process.cloud.world.vswitches[ZONE_B], FEW + 1)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert ZONE_B in zones_of(process, node_class)


def test_a_wave_is_launched_in_all_zones_with_free_addresses(process, node_class):
    """Its calls are made at the same time, and together keep more addresses than there are."""
    vswitches = process.cloud.world.vswitches
    for vswitch in vswitches.values():
        process.cloud.networks.leave_addresses(vswitch, 15 * 100)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    everywhere = zones_of(process, node_class)

    outcomes = process.launch(
        *(claim_of(f"n{number}", ON_DEMAND, ONLY_LARGE) for number in range(240)),
        node_class=node_class,
    )

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert len({outcome.provider_id for outcome in outcomes}) == 240
    launched = Counter(outcome.zone for outcome in outcomes)
    with_room = {zone for zone in everywhere if launched[zone] < 100}
    assert with_room
    assert zones_of(process, node_class) >= with_room


def test_a_full_vswitch_of_one_node_class_leaves_the_zone_open_for_another(short):
    """The other has a vSwitch of its own there."""
    world, networks = short.cloud.world, short.cloud.networks
    other = networks.add_vswitch(world.vpc_id, zone=ZONE_B, cidr="10.9.0.0/24", name="other").id
    full_class = class_of(
        short.cloud, status={"vSwitches": [{"id": world.vswitches[ZONE_B], "zoneID": ZONE_B}]}
    )
    roomy_class = class_of(
        short.cloud, status={"vSwitches": [{"id": other, "zoneID": ZONE_B}]}, generation=2
    )

    wish = (ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B))
    planned_before = short.requests(claim_of("c", *wish), node_class=full_class)
    refused = short.launch_one(claim_of("a", *wish), full_class)

    (again,) = short.launcher.launch(planned_before)
    for each in (refused, again):
        assert isinstance(each, InsufficientCapacityError)
        assert each.scope is ExhaustedScope.NODE_CLASS, "the core masks nothing for the other"
    assert ZONE_B not in zones_of(short, full_class)
    assert ZONE_B in zones_of(short, roomy_class)
    outcome = short.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), roomy_class)
    assert isinstance(outcome, LaunchedInstance)
    assert short.launched(outcome).vswitch_id == other


def test_a_vswitch_that_ecs_calls_full_is_a_shortage_of_its_node_class(process, node_class):
    with process.cloud.fail(
        GROUP, code="InvalidVSwitchId.IpNotEnough", message="full", status=403, times=None
    ):
        outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert outcome.scope is ExhaustedScope.NODE_CLASS


def test_a_vswitch_too_full_for_one_type_is_open_for_a_type_with_fewer_pods(short, node_class):
    """On Terway a type takes as many addresses as it has pods."""
    short.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert not short.unavailable_offerings.view(now=short.clock.now()).subnets


def closed(process):
    """Return what is marked, as types and zones, and as vSwitches."""
    shortages = process.unavailable_offerings.view(now=process.clock.now())
    return {(mark.instance_type, mark.zone) for mark in shortages.offerings}, set(shortages.subnets)


@pytest.mark.parametrize("api", ["", RUN], ids=["group", "run"])
def test_a_refusal_that_names_a_vswitch_marks_that_vswitch_full(
    cloud, clients, tmp_path, node_class, api
):
    """The other zones are tried at once; another launch finds them open, and nothing else marked."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    vswitches = cloud.world.vswitches
    process.set_spot(LARGE, ZONE_B, 0.001)  # asked for first
    full = vswitches[ZONE_B]

    def asks_there(parameters):
        return full in str(parameters)

    with cloud.fail(
        api or GROUP,
        code="InvalidVSwitchId.IpNotEnough",
        message=f"The vSwitch {full} has not enough free addresses.",
        times=None,
        where=asks_there,
    ):
        first = process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)
        calls = len(process.sent(api or GROUP))
        second = process.launch_one(claim_of("b", SPOT, ONLY_LARGE), node_class)

    asked = process.sent(api or GROUP)
    assert [asks_there(sent) for sent in asked] == [True, *[False] * (len(asked) - 1)]
    assert len(asked) == calls + 1
    assert {first.zone, second.zone}.isdisjoint({ZONE_B})
    assert closed(process) == (set(), {full})
    assert process.vswitches.expected_addresses(full) == 0
    process.clock.forward(5 * 60)
    assert closed(process) == (set(), set())


def test_a_refusal_without_a_vswitch_marks_all_requested_vswitches_full(process, node_class):
    vswitches = set(process.cloud.world.vswitches.values())
    with process.cloud.fail(
        GROUP, code="InvalidVSwitchId.IpNotEnough", message="full", status=403, times=None
    ):
        process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert closed(process) == (set(), vswitches)


def test_a_full_vswitch_and_a_stock_out_are_marked_separately(process, node_class):
    """Only the sold-out offering is reported to the core: the full vSwitch is of this NodeClass."""
    cloud = process.cloud
    cloud.capacity.sell_out()
    cloud.fail_pools(code="InvalidVSwitchId.IpNotEnough", zone=ZONE_B)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    sold_out = {(LARGE, zone) for zone in cloud.world.vswitches if zone != ZONE_B}
    assert closed(process) == (sold_out, {cloud.world.vswitches[ZONE_B]})
    assert outcome.scope is ExhaustedScope.OFFERING
    assert {(key.instance_type, key.zone) for key in outcome.offerings} == sold_out


@pytest.mark.parametrize("word", ["InvalidVSwitchId.IpNotEnough", "QuotaExceeded.PrivateIpAddress"])
@pytest.mark.parametrize("api", ["", RUN], ids=["group", "run"])
def test_every_code_for_a_full_vswitch_moves_the_launch_to_another_zone(
    cloud, clients, tmp_path, node_class, api, word
):
    """Also when its addresses were counted again meanwhile: pods and other clusters take some."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    cloud.capacity.no_addresses_code = word
    full = cloud.world.vswitches[ZONE_B]
    process.set_spot(LARGE, ZONE_B, 0.001)
    cloud.prices.set_spot(LARGE, ZONE_B, 0.001)
    cloud.networks.leave_addresses(full, 0)

    first = process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)
    cloud.networks.leave_addresses(full, 1000)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    second = process.launch_one(claim_of("b", SPOT, ONLY_LARGE), node_class)

    assert {first.zone, second.zone}.isdisjoint({ZONE_B})
    assert closed(process) == (set(), {full})
    process.clock.forward(5 * 60)
    assert process.launch_one(claim_of("c", SPOT, ONLY_LARGE), node_class).zone == ZONE_B


def test_a_full_vswitch_is_skipped_for_another_of_its_zone(process):
    """Though it was counted as the one with most free addresses."""
    world, networks = process.cloud.world, process.cloud.networks
    full = world.vswitches[ZONE_B]
    other = networks.add_vswitch(
        world.vpc_id, zone=ZONE_B, cidr="10.9.0.0/24", name="other", tags=world.discovery
    ).id
    node_class = class_of(
        process.cloud,
        status={"vSwitches": [{"id": full, "zoneID": ZONE_B}, {"id": other, "zoneID": ZONE_B}]},
    )
    process.cloud.fail_pools(code="InvalidVSwitchId.IpNotEnough", times=1)
    wish = (ON_DEMAND, ONLY_LARGE)

    process.launch_one(claim_of("a", *wish), node_class)
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    process.vswitches.find(())
    second = process.launch_one(claim_of("b", *wish), node_class)

    assert process.vswitches.expected_addresses(full) > process.vswitches.expected_addresses(other)
    assert process.launched(second).vswitch_id == other


@pytest.mark.parametrize("code", ["InvalidImageId.NotFound", "Throttling.User", "Forbidden.RAM"])
def test_a_launch_that_is_refused_gives_its_addresses_back(process, node_class, code):
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    vswitches = process.cloud.world.vswitches.values()
    before = {each: process.vswitches.expected_addresses(each) for each in vswitches}

    with process.cloud.fail(GROUP, code=code, status=403, times=None):
        process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert {each: process.vswitches.expected_addresses(each) for each in vswitches} == before


def test_a_launch_with_nothing_left_to_try_gives_its_addresses_back(process, node_class):
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    vswitches = process.cloud.world.vswitches.values()
    before = {each: process.vswitches.expected_addresses(each) for each in vswitches}
    process.cloud.fail_pools(code="SomethingNew")

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchFailedError)
    assert len(process.sent()) == 1, "each target was tried, and none is closed"
    assert {each: process.vswitches.expected_addresses(each) for each in vswitches} == before
