"""Tests outcomes of refused and partial launches (cases 50, 61 to 68)."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_provider_alibabacloud.discovery.call_errors import refusal_behind
from karpenter_provider_alibabacloud.launch.answers import (
    LaunchAnswer,
    TargetFailure,
    read_group_answer,
    shortages_of,
    unserved_outcome,
)
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    SPOT,
    XLARGE,
    ZONE_B,
    ZONE_G,
    ZONE_H,
    Process,
    claim_of,
    class_of,
    in_zone,
)


def marked(process):
    """Return the offerings marked sold out, as type, zone and capacity type."""
    offerings = process.unavailable_offerings.view(now=process.clock.now()).offerings
    return {mark[:3] for mark in offerings if not mark.subnet}


def many(number, *wish):
    return [claim_of(f"n{each}", *wish) for each in range(number)]


@pytest.mark.parametrize("bought", [False, True])
def test_an_unexplained_short_launch_is_explained_by_its_requests(bought):
    answers = [
        LaunchAnswer(reference="R-1", instances=(object(),) if bought else ()),
        LaunchAnswer(reference="R-2"),
    ]

    error = unserved_outcome(answers, ())

    assert isinstance(error, InsufficientCapacityError) is not bought
    assert str(error).endswith("gives no reason (request R-1, R-2)")


def test_a_sold_out_offering_is_not_requested_for_three_minutes(process, node_class):
    """Case 50: 0.08 in b, 0.10 in g."""
    process.set_spot(LARGE, ZONE_B, 0.08)
    process.cloud.prices.set_spot(LARGE, ZONE_B, 0.08)
    process.cloud.capacity.sell_out(zone=ZONE_B)
    first = process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)
    process.cloud.capacity.clear()

    second = process.launch_one(claim_of("b", SPOT, ONLY_LARGE), node_class)
    process.clock.forward(181)
    third = process.launch_one(claim_of("c", SPOT, ONLY_LARGE), node_class)

    assert (first.zone, second.zone, third.zone) == (ZONE_G, ZONE_G, ZONE_B)


def test_an_instance_counts_wherever_it_is_in_the_answer(process, node_class):
    """Case 62: the first result is a refusal, and marks its pair."""
    process.cloud.fail_pools(code="NoInstanceStock", zone=ZONE_B)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert outcome.zone != ZONE_B
    assert marked(process) == {(LARGE, ZONE_B, "on-demand")}
    assert len(process.sent()) == 1


def test_a_full_stock_out_marks_every_requested_offering(process, node_class):
    """Case 63."""
    process.cloud.capacity.sell_out(instance_type=LARGE)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    tried = {(LARGE, zone, "on-demand") for zone in (ZONE_B, ZONE_G, ZONE_H)}
    assert marked(process) == tried
    assert set(outcome.offerings) == {
        OfferingKey(instance_type=name, zone=zone, capacity_type=capacity_type)
        for name, zone, capacity_type in tried
    }
    assert outcome.scope is ExhaustedScope.OFFERING
    assert "request " in str(outcome)
    assert not process.cloud.held().all


def test_more_choices_than_a_call_takes_are_tried_in_further_calls(process, node_class):
    """Twenty are sold out, the twenty-first is there."""
    process.cloud.capacity.sell_out(capacity_type="on-demand")
    process.cloud.capacity.stock(
        InstancePool(capacity_type="on-demand", instance_type="ecs.g7.large", zone=ZONE_G), 1
    )

    outcome = process.launch_one(claim_of("a", ON_DEMAND), node_class)

    assert (outcome.instance_type, outcome.zone) == ("ecs.g7.large", ZONE_G)
    configs = [sent["LaunchTemplateConfig"] for sent in process.sent()]
    targets = [(c["InstanceType"], c["VSwitchId"]) for of in configs for c in of]
    assert len(targets) == len(set(targets))


def test_a_full_vswitch_is_replaced_by_another_one(process):
    """Case 64: it is left alone for five minutes."""
    world, networks = process.cloud.world, process.cloud.networks
    full = world.vswitches[ZONE_B]
    other = networks.add_vswitch(world.vpc_id, zone=ZONE_B, cidr="10.9.0.0/24", name="other").id
    node_class = class_of(
        process.cloud,
        status={"vSwitches": [{"id": full, "zoneID": ZONE_B}, {"id": other, "zoneID": ZONE_B}]},
    )
    process.cloud.fail_pools(code="InvalidVSwitchId.IpNotEnough", times=1)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)
    process.clock.forward(299)
    again = process.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class)
    process.clock.forward(2)
    later = process.launch_one(claim_of("c", ON_DEMAND, ONLY_LARGE), node_class)

    used = [process.launched(each).vswitch_id for each in (outcome, again, later)]
    assert used == [other, other, full]
    assert not marked(process)


def test_addresses_that_a_launch_did_not_take_are_given_back(process):
    """One node was launched, in one zone; what was kept in the others is free again."""
    node_class = class_of(process.cloud)
    vswitches = process.cloud.world.vswitches
    process.vswitches.find(node_class.spec.v_switch_selector_terms)
    before = {zone: process.vswitches.expected_addresses(it) for zone, it in vswitches.items()}

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    after = {zone: process.vswitches.expected_addresses(it) for zone, it in vswitches.items()}
    taken = {zone: before[zone] - after[zone] for zone in vswitches}
    assert taken == {zone: 15 if zone == outcome.zone else 0 for zone in vswitches}


def test_the_quota_of_a_type_ends_launches_of_that_type_for_ten_minutes(process, node_class):
    """Case 65: in all zones; spot goes on, and so do other types on demand."""
    process.cloud.capacity.limit_type(LARGE, 0)
    refused = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)
    process.clock.forward(599)
    calls = len(process.sent())

    second = process.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class)
    spot = process.launch_one(claim_of("c", SPOT, ONLY_LARGE), node_class)
    other = process.launch_one(claim_of("e", ON_DEMAND, (INSTANCE_TYPE, XLARGE)), node_class)

    assert refused.scope is ExhaustedScope.FAMILY_QUOTA
    assert {(key.instance_type, key.capacity_type) for key in refused.offerings} == {
        (LARGE, "on-demand")
    }
    assert refused.quota_groups == (
        QuotaGroup(
            label="node.kubernetes.io/instance-type", value=LARGE, capacity_type="on-demand"
        ),
    )
    assert isinstance(second, InsufficientCapacityError)
    assert spot.capacity_type == "spot"
    assert other.instance_type == XLARGE
    assert len(process.sent()) == calls + 2

    process.cloud.capacity.clear()
    process.clock.forward(2)
    third = process.launch_one(claim_of("d", ON_DEMAND, ONLY_LARGE), node_class)
    assert isinstance(third, LaunchedInstance)


@pytest.mark.parametrize("api", [GROUP, RUN])
def test_a_claim_launches_another_type_when_one_has_no_quota(
    cloud, clients, tmp_path, node_class, api
):
    """Instances launched by the same answer count as launched."""
    process = Process(cloud, clients, tmp_path, launch_api=api)
    cloud.capacity.limit_type(LARGE, 2)
    claims = many(5, ON_DEMAND, (INSTANCE_TYPE, LARGE, XLARGE))

    outcomes = process.launch(*claims, node_class=node_class)

    types = sorted(outcome.instance_type for outcome in outcomes)
    assert types == [LARGE, LARGE, XLARGE, XLARGE, XLARGE]
    assert {name for name, _, _ in marked(process)} <= {LARGE}
    marks = process.unavailable_offerings.view(now=process.clock.now())
    assert {shortage.group for shortage in marks.shortages} == {LARGE}


def test_a_zonal_vcpu_quota_masks_types_of_at_least_that_size_in_the_zone(process, node_class):
    """Smaller types may still fit, and other zones are open."""
    wish = (ON_DEMAND, in_zone(ZONE_B))
    process.cloud.capacity.limit_vcpus(3, zone=ZONE_B)
    large = process.launch_one(
        claim_of("a", *wish, (INSTANCE_TYPE, XLARGE, "ecs.g7.2xlarge")), node_class
    )
    calls = len(process.sent())
    again = process.launch_one(claim_of("b", *wish, (INSTANCE_TYPE, "ecs.g7.2xlarge")), node_class)
    small = process.launch_one(claim_of("c", *wish, ONLY_LARGE), node_class)
    elsewhere = process.launch_one(
        claim_of("d", ON_DEMAND, (INSTANCE_TYPE, "ecs.g7.2xlarge")), node_class
    )

    assert isinstance(large, InsufficientCapacityError)
    assert large.quota_groups == (
        QuotaGroup(least_cpu_milli=4000, zone=ZONE_B, capacity_type="on-demand"),
    )
    assert isinstance(again, InsufficientCapacityError)
    assert small.zone == ZONE_B
    assert elsewhere.zone != ZONE_B
    assert len(process.sent()) == calls + 2


def test_a_vcpu_quota_error_of_another_zone_masks_the_requested_types_of_its_zone():
    def target(name, zone, cpu):
        kind = SimpleNamespace(name=name, capacity={"cpu": cpu}, offerings=())
        return SimpleNamespace(instance_type=kind, zone=zone)

    failure = TargetFailure(
        code="QuotaExceed.ElasticQuota",
        message=f"no more vCPUs for {LARGE} in {ZONE_B}",
        targets=(
            target(LARGE, ZONE_G, 2000),
            target(XLARGE, ZONE_B, 4000),
            target("ecs.g7.2xlarge", ZONE_B, 8000),
        ),
        status=403,
    )

    quotas = shortages_of([failure], capacity_type="on-demand", categories=()).quotas

    assert quotas == (Shortage(capacity_type="on-demand", zone=ZONE_B, least_cpu_milli=4000),)


def test_the_quota_of_a_kind_of_disk_closes_that_kind_in_its_zone(
    cloud, clients, tmp_path, node_class
):
    process = Process(cloud, clients, tmp_path, launch_api=RUN)
    cloud.fail(RUN, code="QuotaExceed.DiskCapacity", message="no more of cloud_essd", status=403)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert not marked(process)


def test_another_quota_fails_the_launch_and_marks_nothing(process, node_class):
    with process.cloud.fail(GROUP, code="QuotaExceed.Tags", message="20 tags", status=403):
        outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "QuotaExceeded"
    assert process.unavailable_offerings.view(now=process.clock.now()).is_empty


def test_throttling_is_waited_for_and_marks_nothing(process, node_class):
    """Case 66: twice, then it works."""
    process.cloud.fail(GROUP, code="Throttling.User", times=2)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert process.cloud.calls.count(GROUP) == 3
    assert not marked(process)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("Throttling", 400, ThrottledError),
        ("Forbidden.RAM", 403, AuthError),
        ("InvalidImageId.NotFound", 404, LaunchFailedError),
        ("InvalidAccountStatus.NotEnoughBalance", 400, LaunchFailedError),
    ],
)
def test_a_refusal_has_the_error_of_its_kind(process, node_class, code, status, kind):
    """And nothing is taken for sold out."""
    process.cloud.fail(GROUP, code=code, status=status, times=None)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert type(outcome) is kind
    assert code in str(outcome)
    assert refusal_behind(outcome).code == code, "the NodeClass is judged by it"
    assert process.unavailable_offerings.view(now=process.clock.now()).is_empty
    assert process.vswitches.expected_addresses(process.cloud.world.vswitches[ZONE_B]) == 0


def test_an_unknown_refusal_is_tried_in_one_other_place(cloud, clients, tmp_path, node_class):
    """With a code that no table has; a second one ends it."""
    process = Process(cloud, clients, tmp_path, launch_api=RUN)
    cloud.fail(RUN, code="SomethingNew", times=1)
    first = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)
    cloud.fail(RUN, code="SomethingNew", times=None)
    calls = cloud.calls.count(RUN)
    second = process.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(first, LaunchedInstance)
    assert isinstance(second, LaunchFailedError)
    assert cloud.calls.count(RUN) == calls + 2


def test_an_unknown_refusal_beside_shortages_is_tried_in_one_other_place(process, node_class):
    """Of a call for twenty targets; shortages alone end no launch so early."""
    process.cloud.capacity.sell_out(capacity_type="on-demand")
    process.launch_one(claim_of("a", ON_DEMAND), node_class)
    by_shortages_alone = len(process.sent())
    process.unavailable_offerings.flush()
    process.cloud.fail_pools(code="SomethingNew", zone=ZONE_B)

    process.launch_one(claim_of("b", ON_DEMAND), node_class)

    assert len(process.sent()) - by_shortages_alone == 2
    assert by_shortages_alone > 2


def test_a_hundred_equal_claims_are_two_calls(process, node_class):
    """Case 67: each has an instance of its own by its tags."""
    claims = many(100, ON_DEMAND, ONLY_LARGE)

    outcomes = process.launch(*claims, node_class=node_class)

    assert len({outcome.provider_id for outcome in outcomes}) == 100
    assert len(process.sent()) == 2
    listed = {each.provider_id: each for each in process.instances.list().instances}
    for claim, outcome in zip(claims, outcomes, strict=True):
        found = listed[outcome.provider_id]
        assert (found.node_claim, found.token) == (claim.name, claim.uid)


def test_partial_stock_is_launched(process, node_class):
    """Case 68: sixty of a hundred; forty get insufficient capacity."""
    process.cloud.capacity.sell_out(capacity_type="on-demand")
    pool = InstancePool(capacity_type="on-demand", instance_type=LARGE, zone=ZONE_B)
    process.cloud.capacity.stock(pool, 60)
    claims = many(100, ON_DEMAND, ONLY_LARGE)

    outcomes = process.launch(*claims, node_class=node_class)

    launched = [each for each in outcomes if isinstance(each, LaunchedInstance)]
    short = [each for each in outcomes if isinstance(each, InsufficientCapacityError)]
    assert (len(launched), len(short)) == (60, 40)
    assert len({each.provider_id for each in launched}) == 60
    assert len(process.cloud.held().instances) == 60
    listed = {each.token: each.provider_id for each in process.instances.list().instances}
    for claim, outcome in zip(claims, outcomes, strict=True):
        assert listed.get(claim.uid) == getattr(outcome, "provider_id", None)


def test_a_repeated_stock_out_is_masked_for_longer(process, node_class):
    """Until an instance comes of it."""
    wish = (ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B))
    process.cloud.capacity.sell_out()
    process.launch_one(claim_of("a", *wish), node_class)
    process.clock.forward(181)
    process.launch_one(claim_of("b", *wish), node_class)
    process.clock.forward(181)
    assert marked(process)

    process.cloud.capacity.clear()
    process.clock.forward(180)
    assert isinstance(process.launch_one(claim_of("c", *wish), node_class), LaunchedInstance)
    process.cloud.capacity.sell_out()
    process.launch_one(claim_of("d", *wish), node_class)
    process.clock.forward(181)
    assert not marked(process)


def test_private_pools_are_launched_into_and_counted(process):
    """The remaining capacity goes down; without any the claim gets that error."""
    pool = process.cloud.reservations.add(
        "batch", instance_type=LARGE, zone=ZONE_G, total=1, criteria="Target"
    )
    process.reservations.reservation_counts.record({pool.id: 1})
    status = {
        "capacityReservations": [
            {"id": pool.id, "zoneID": ZONE_G, "instanceType": LARGE, "matchCriteria": "Target"}
        ]
    }
    node_class = class_of(process.cloud, status=status)
    wish = ("karpenter.sh/capacity-type", "reserved")

    outcome = process.launch_one(claim_of("a", wish), node_class)
    second = process.launch_one(claim_of("b", wish), node_class)

    assert (outcome.capacity_type, outcome.zone) == ("reserved", ZONE_G)
    assert outcome.labels["karpenter.k8s.alibabacloud/capacity-reservation-id"] == pool.id
    assert process.launched(outcome).reservation_id == pool.id
    assert json.loads(process.sent()[0]["ResourcePoolOptions"]) == {
        "Strategy": "PrivatePoolOnly",
        "PrivatePoolIds": [pool.id],
    }
    assert isinstance(second, InsufficientCapacityError)
    assert len(process.sent()) == 1


def test_a_private_pool_that_is_used_up_is_counted_as_empty(process):
    """Another cluster may use it too."""
    pool = process.cloud.reservations.add(
        "batch", instance_type=LARGE, zone=ZONE_G, total=0, criteria="Target"
    )
    process.reservations.reservation_counts.record({pool.id: 1})
    status = {
        "capacityReservations": [
            {"id": pool.id, "zoneID": ZONE_G, "instanceType": LARGE, "matchCriteria": "Target"}
        ]
    }

    outcome = process.launch_one(
        claim_of("a", ("karpenter.sh/capacity-type", "reserved")),
        class_of(process.cloud, status=status),
    )

    assert isinstance(outcome, InsufficientCapacityError)
    assert process.reservations.reservation_counts.remaining(pool.id) == 0
    assert not marked(process)


def test_an_unrequested_instance_is_no_outcome():
    """It is found by its tags, once it is understood; until then the claim has failed."""
    row = {"InstanceType": "ecs.x", "ZoneId": "z", "InstanceIds": {"InstanceId": ["i-1"]}}

    with pytest.raises(CloudProviderError, match=r"i-1 is of the type ecs\.x in z"):
        read_group_answer({"LaunchResults": {"LaunchResult": [row]}}, ())


def test_a_claim_without_a_compatible_offering_launches_nothing(process, node_class):
    """It is a lack of capacity, of nothing in particular."""
    nothing = (INSTANCE_TYPE, "ecs.nothing.large")

    outcome = process.launch_one(claim_of("a", ON_DEMAND, nothing), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert not process.sent()


def test_a_spot_price_that_has_moved_over_the_limit_closes_its_zone_for_spot_alone(
    cloud, clients, tmp_path
):
    """It was below the limit when it was read; the claim gets an instance of another zone."""
    process = Process(cloud, clients, tmp_path, launch_api=RUN)
    node_class = class_of(process.cloud, spot={"priceLimit": 0.15})
    for zone, read, now in ((ZONE_B, 0.08, 0.2), (ZONE_G, 0.1, 0.1)):
        process.set_spot(LARGE, zone, read)
        process.cloud.prices.set_spot(LARGE, zone, now)

    outcome = process.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)
    on_demand = process.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class)

    assert (outcome.zone, outcome.capacity_type) == (ZONE_G, "spot")
    assert marked(process) == {(LARGE, ZONE_B, "spot")}
    assert on_demand.capacity_type == "on-demand"


@pytest.mark.parametrize(
    "code", ["ImageNotSupportInstanceType", "InvalidInstanceType.ValueNotSupported", "Zone.NotOpen"]
)
def test_a_type_that_cannot_be_had_in_some_zones_is_launched_where_it_can(
    cloud, clients, tmp_path, node_class, code
):
    """However often one is refused; what was refused is not asked for again."""
    process = Process(cloud, clients, tmp_path, launch_api=RUN)
    cloud.fail(RUN, code=code, status=403, times=2)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert len(marked(process)) == 2


def test_an_account_without_spot_gets_on_demand_after_all(process, node_class):
    """Spot is refused in each zone, so the next claim finds on-demand alone."""
    with process.cloud.fail_pools(code="InvalidAccount.NotSupportSpot"):
        first = process.launch_one(claim_of("a", ONLY_LARGE), node_class)
    second = process.launch_one(claim_of("b", ONLY_LARGE), node_class)

    assert isinstance(first, InsufficientCapacityError)
    assert {capacity_type for _, _, capacity_type in marked(process)} == {"spot"}
    assert second.capacity_type == "on-demand"
