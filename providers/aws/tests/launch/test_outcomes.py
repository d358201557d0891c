"""Tests outcomes of launches (cases 83, 87 to 95 and 99 to 104)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.errors import (
    AuthError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    OfferingKey,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws.api.nodeclass import CapacityReservationTerm
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    EFA,
    INSTANCE_PROFILE_ANNOTATION,
    INSTANCE_TENANCY,
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_LABELS,
    ZONE_ID,
)
from karpenter_provider_aws.zonal_shift import ShiftedZones
from providers.aws.tests.launch.processes import ON_DEMAND, SPOT, claim_of, node_class_of

M5 = (INSTANCE_TYPE, "m5.large")
ZONE_A = (ZONE, "us-east-1a")
ANY_TYPE = (CAPACITY_TYPE, "spot", "on-demand")


def marks(process):
    return process.unavailable_offerings.view(now=process.clock.now())


def fleet(aws):
    """Return the parameters of the last fleet."""
    return aws.calls.of("CreateFleet")[-1].parameters


def overrides(aws):
    return [o for config in fleet(aws)["LaunchTemplateConfigs"] for o in config["Overrides"]]


def test_after_a_complete_spot_shortage_the_next_attempt_launches_on_demand(
    aws, process, node_class
):
    """Case 83."""
    aws.capacity.sell_out(capacity_type="spot")
    first = process.launch_one(claim_of("first", ANY_TYPE, M5), node_class)

    second = process.launch_one(claim_of("second", ANY_TYPE, M5), node_class)

    assert isinstance(first, InsufficientCapacityError)
    assert {key.capacity_type for key in first.offerings} == {"spot"}
    assert second.capacity_type == "on-demand"


def test_a_stock_out_marks_each_pool(aws, process, node_class):
    """Case 88, and the labels of the metric."""
    aws.capacity.sell_out()

    outcome = process.launch_one(claim_of("none", ON_DEMAND, M5, ZONE_A), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert outcome.offerings == (
        OfferingKey(instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand"),
    )
    assert marks(process).offerings == {UnavailableOffering("m5.large", "us-east-1a", "on-demand")}
    assert process.failures == [
        {
            "zone": "us-east-1a",
            "zone_id": "use1-az1",
            "capacity_type": "on-demand",
            "reason": "LaunchFailed",
        }
    ]


def test_one_refusal_among_stock_outs_is_a_failure(aws, process, node_class):
    """Case 88."""
    aws.fail_pools(code="UnauthorizedOperation", zone="us-east-1b")
    aws.capacity.sell_out()

    outcome = process.launch_one(claim_of("none", ON_DEMAND, M5), node_class)

    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "Unauthorized"
    assert len(marks(process).offerings) == 2


@pytest.mark.parametrize(
    ("code", "scope"),
    [
        ("MaxFleetCountExceeded", ExhaustedScope.REGION),
        ("MaxSpotInstanceCountExceeded", ExhaustedScope.FAMILY_QUOTA),
        ("VcpuLimitExceeded", ExhaustedScope.FAMILY_QUOTA),
        ("UnfulfillableCapacity", ExhaustedScope.OFFERING),
        ("InsufficientFreeAddressesInSubnet", ExhaustedScope.NODE_CLASS),
    ],
)
def test_a_shortage_says_how_far_it_reaches(aws, process, node_class, code, scope):
    """Case 89."""
    aws.fail_pools(code=code)

    outcome = process.launch_one(claim_of("none", SPOT, M5), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert outcome.scope is scope
    assert len(outcome.offerings) == 3


@pytest.mark.parametrize("whole_call", [True, False])
def test_without_a_role_for_spot_there_is_no_spot(aws, process, node_class, whole_call):
    """Case 89."""
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    if whole_call:
        aws.fail("CreateFleet", code=code)
    else:
        aws.fail_pools(code=code)

    outcome = process.launch_one(claim_of("spot", SPOT, M5), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert "ServiceLinkedRoleCreationNotPermitted" in str(outcome), "the core's Event has it"
    assert marks(process).capacity_types == {"spot"}


@pytest.mark.parametrize("whole_call", [True, False])
def test_throttling_says_nothing_about_capacity(aws, clients, process, whole_call):
    """Case 89: neither marks nor counts of reservations change."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=5)
    node_class = reserved_class(aws, clients, process, reservation)
    if whole_call:
        aws.fail("CreateFleet", code="RequestLimitExceeded", status=503, times=None)
    else:
        aws.fail_pools(code="RequestLimitExceeded")

    outcomes = [
        process.launch_one(claim_of("paid", (CAPACITY_TYPE, "reserved")), node_class),
        process.launch_one(claim_of("plain", ON_DEMAND, M5), node_class),
    ]

    assert [type(outcome) for outcome in outcomes] == [ThrottledError] * 2
    assert process.reservation_counts.remaining(reservation.id) == 5
    assert not marks(process).offerings
    assert not marks(process).capacity_types
    assert not marks(process).subnets


def test_a_full_subnet_closes_its_zone_when_it_is_the_only_one(aws, process, node_class):
    """Case 90."""
    aws.fail_pools(code="InsufficientFreeAddressesInSubnet")

    outcome = process.launch_one(claim_of("full", ON_DEMAND, M5, ZONE_A), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert marks(process).subnets == {node_class.status.subnets[0].id}
    again = process.launch_one(claim_of("again", ON_DEMAND, M5, ZONE_A), node_class)
    assert isinstance(again, InsufficientCapacityError)
    assert aws.calls.count("CreateFleet") == 1


def test_a_full_subnet_masks_nothing_for_other_node_classes(aws, process, node_class):
    """Neither where EC2 says so nor where it is known already: the other may have another subnet."""
    wish = (ON_DEMAND, M5, ZONE_A)
    planned_before = process.request(claim_of("again", *wish), node_class)
    aws.fail_pools(code="InsufficientFreeAddressesInSubnet")

    refused = process.launch_one(claim_of("full", *wish), node_class)
    (again,) = process.launcher.launch([planned_before])

    assert aws.calls.count("CreateFleet") == 1
    key = OfferingKey(instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand")
    for outcome in (refused, again):
        assert isinstance(outcome, InsufficientCapacityError)
        assert outcome.scope is ExhaustedScope.NODE_CLASS
        assert outcome.offerings == (key,)


def test_a_full_subnet_is_not_reported_with_a_stock_out(aws, process, node_class):
    """A stock-out is one for all; the subnet is marked, and the next launch skips it."""
    wish = (ON_DEMAND, M5, (ZONE, "us-east-1a", "us-east-1b"))
    planned_before = process.request(claim_of("again", *wish), node_class)
    aws.fail_pools(code="InsufficientFreeAddressesInSubnet", zone="us-east-1a")
    aws.capacity.sell_out()

    refused = process.launch_one(claim_of("none", *wish), node_class)
    (again,) = process.launcher.launch([planned_before])

    key = OfferingKey(instance_type="m5.large", zone="us-east-1b", capacity_type="on-demand")
    for outcome in (refused, again):
        assert isinstance(outcome, InsufficientCapacityError)
        assert outcome.scope is ExhaustedScope.OFFERING
        assert outcome.offerings == (key,)
    assert marks(process).subnets == {aws.world.subnets["us-east-1a"]}


def test_a_full_subnet_is_replaced_by_its_sibling(aws, clients, process):
    """Case 90."""
    sibling = clients.ec2.create_subnet(
        VpcId=aws.world.vpc_id, CidrBlock="10.0.240.0/24", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]
    first = aws.world.subnets["us-east-1a"]
    found = [{"id": i, "zone": "us-east-1a", "zoneID": "use1-az1"} for i in (first, sibling)]
    aws.fail_pools(code="InsufficientFreeAddressesInSubnet", times=1)

    outcome = process.launch_one(
        claim_of("full", ON_DEMAND, M5), node_class_of(aws, clients, subnets=found)
    )

    assert isinstance(outcome, LaunchedInstance)
    assert marks(process).subnets == {first}
    assert overrides(aws)[0]["SubnetId"] == sibling


def test_a_subnet_without_a_free_prefix_is_replaced_by_its_sibling(aws, clients, process):
    """Free addresses are of no use to `ipPrefixCount` when none are sixteen in a row."""
    sibling = clients.ec2.create_subnet(
        VpcId=aws.world.vpc_id, CidrBlock="10.0.240.0/24", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]
    first = aws.world.subnets["us-east-1a"]
    found = [{"id": i, "zone": "us-east-1a", "zoneID": "use1-az1"} for i in (first, sibling)]
    aws.fail_pools(code="InsufficientCidrBlocks", times=1)

    outcome = process.launch_one(
        claim_of("prefix", ON_DEMAND, M5), node_class_of(aws, clients, subnets=found)
    )

    assert isinstance(outcome, LaunchedInstance)
    assert marks(process).subnets == {first}
    assert overrides(aws)[0]["SubnetId"] == sibling


def test_a_template_that_is_gone_is_made_again(aws, process, node_class):
    """Case 92."""
    aws.fail("CreateFleet", code="InvalidLaunchTemplateName.NotFoundException", times=1)
    outcome = process.launch_one(claim_of("once", ON_DEMAND, M5), node_class)
    aws.fail("CreateFleet", code="InvalidLaunchTemplateName.NotFoundException", times=2)
    failed = process.launch_one(claim_of("twice", ON_DEMAND, M5), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert isinstance(failed, LaunchFailedError)
    assert failed.reason == "LaunchTemplateNotFound"


def test_a_template_that_a_fleet_reports_missing_is_looked_for_again(aws, process, node_class):
    """A fleet that EC2 accepts reports a missing template among the errors of its targets."""
    wish = (ON_DEMAND, M5, ZONE_A)
    process.launch_one(claim_of("before", *wish), node_class)
    aws.fail_pools(code="InvalidLaunchTemplateName.NotFoundException", times=1)
    aws.calls.clear()

    outcome = process.launch_one(claim_of("after", *wish), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert aws.calls.count("DescribeLaunchTemplates") == 1
    tokens = [call.parameters["ClientToken"] for call in aws.calls.of("CreateFleet")]
    assert len(tokens) == len(set(tokens)) == 2


def test_a_template_that_fleets_go_on_reporting_missing_is_a_failure(aws, process, node_class):
    aws.fail_pools(code="InvalidLaunchTemplateId.NotFound")

    failed = process.launch_one(claim_of("never", ON_DEMAND, M5, ZONE_A), node_class)

    assert isinstance(failed, LaunchFailedError)
    assert failed.reason == "LaunchTemplateNotFound"
    assert aws.calls.count("CreateFleet") == 2


@pytest.mark.parametrize(
    ("capacity_type", "annotations", "options", "strategy"),
    [
        (ON_DEMAND, {}, "OnDemandOptions", "lowest-price"),
        (SPOT, {}, "SpotOptions", "price-capacity-optimized"),
        (
            ON_DEMAND,
            {"karpenter.sh/price-overlay-applied": "true"},
            "OnDemandOptions",
            "prioritized",
        ),
        (
            SPOT,
            {"karpenter.sh/price-overlay-applied": "true"},
            "SpotOptions",
            "capacity-optimized-prioritized",
        ),
    ],
)
def test_a_fleet_request_has_its_override_strategy_and_tags(
    aws, process, node_class, capacity_type, annotations, options, strategy
):
    """Cases 93 and 119."""
    claim = claim_of("asked", capacity_type, M5, ZONE_A, annotations=annotations)

    outcome = process.launch_one(claim, node_class)

    (override,) = overrides(aws)
    it = process.types(node_class)["m5.large"]
    prices = {(o.zone, o.capacity_type): o.price.amount for o in it.offerings}
    assert override == {
        "InstanceType": "m5.large",
        "SubnetId": aws.world.subnets["us-east-1a"],
        "ImageId": outcome.image_id,
        "AvailabilityZone": "us-east-1a",
        "Priority": prices["us-east-1a", capacity_type[1]],
    }
    assert fleet(aws)[options]["AllocationStrategy"] == strategy
    assert [spec["ResourceType"] for spec in fleet(aws)["TagSpecifications"]] == [
        "instance",
        "volume",
        "fleet",
    ]


def test_the_context_is_passed_unless_variety_is_ignored(aws, clients, process, node_class):
    """Case 94."""
    with_context = node_class_of(aws, clients, context="word")
    relaxed = {"karpenter.sh/nodeclaim-min-values-relaxed": "true"}

    process.launch_one(claim_of("a", ON_DEMAND, M5), with_context)
    assert fleet(aws)["Context"] == "word"
    process.launch_one(claim_of("b", ON_DEMAND, M5, annotations=relaxed), with_context)
    assert "Context" not in fleet(aws)
    process.launch_one(claim_of("c", ON_DEMAND, M5), node_class)
    assert "Context" not in fleet(aws)


@pytest.mark.parametrize(
    ("condition", "error", "reason"),
    [
        ({"status": "False", "reason": "SubnetsNotFound"}, NodeClassNotReadyError, ""),
        ({"status": "Unknown"}, LaunchFailedError, "NodeClassReadinessUnknown"),
        ({"observedGeneration": 7}, NodeClassNotReadyError, ""),
    ],
)
def test_nothing_is_launched_from_a_node_class_that_is_not_ready(
    aws, clients, process, condition, error, reason
):
    """Case 100."""
    outcome = process.launch_one(
        claim_of("early", ON_DEMAND), node_class_of(aws, clients, condition=condition)
    )

    assert isinstance(outcome, error)
    assert getattr(outcome, "reason", "") == reason
    assert aws.calls.count("CreateFleet") == 0


def test_nothing_is_launched_from_a_node_class_that_is_being_deleted(aws, process, node_class):
    """Case 100: no offering is taken for sold out."""
    deleted = node_class.metadata.model_copy(update={"deletion_timestamp": process.clock.now()})

    outcome = process.launch_one(
        claim_of("late", ON_DEMAND, M5), node_class.model_copy(update={"metadata": deleted})
    )

    assert isinstance(outcome, NodeClassNotReadyError)
    assert "deleted" in str(outcome)
    assert aws.calls.count("CreateFleet") == 0
    assert not marks(process).offerings


def test_nothing_is_launched_with_tags_that_are_ours(aws, clients, process):
    """Case 100."""
    tagged = node_class_of(aws, clients, tags={"kubernetes.io/cluster/other": "owned"})

    outcome = process.launch_one(claim_of("tagged", ON_DEMAND), tagged)

    assert isinstance(outcome, NodeClassNotReadyError)
    assert "kubernetes.io/cluster/other" in str(outcome)


def test_refused_credentials_name_the_action(aws, process, node_class):
    with aws.deny("CreateFleet"):
        outcome = process.launch_one(claim_of("denied", ON_DEMAND), node_class)

    assert isinstance(outcome, AuthError)
    assert outcome.action == "ec2:CreateFleet"


def test_a_launched_instance_has_its_labels_and_capacity(aws, process, node_class):
    """Cases 43 and 101."""
    outcome = process.launch_one(claim_of("told", ON_DEMAND, M5, ZONE_A), node_class)

    (instance,) = aws.instances.all
    assert outcome.provider_id == f"aws:///us-east-1a/{instance.id}"
    assert outcome.image_id == instance.image_id
    assert outcome.annotations == {INSTANCE_PROFILE_ANNOTATION: "nodes"}
    assert outcome.labels[ZONE_ID] == "use1-az1"
    assert outcome.labels[INSTANCE_TENANCY] == "default"
    assert outcome.labels["karpenter.k8s.aws/instance-family"] == "m5"
    assert CAPACITY_RESERVATION_ID not in outcome.labels
    assert all(outcome.capacity.values())
    assert outcome.allocatable["memory"] < outcome.capacity["memory"]


def test_unreserved_instances_have_no_reservation_labels(aws, clients, process):
    """Case 43: although the type can be had from one."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=5)
    node_class = reserved_class(aws, clients, process, reservation)

    outcome = process.launch_one(claim_of("plain", ON_DEMAND, M5, ZONE_A), node_class)

    known = process.types(node_class)["m5.large"].requirements
    assert all(known.single_value(key) for key in RESERVATION_LABELS)
    assert not RESERVATION_LABELS & outcome.labels.keys()
    assert outcome.capacity_type == "on-demand"


def test_dedicated_tenancy_is_set_in_the_launch_template(aws, process, node_class):
    """Case 87."""
    claim = claim_of("dedicated", ON_DEMAND, M5, (INSTANCE_TENANCY, "dedicated"))

    outcome = process.launch_one(claim, node_class)

    (call,) = aws.calls.of("CreateLaunchTemplate")
    assert call.parameters["LaunchTemplateData"]["Placement"]["Tenancy"] == "dedicated"
    assert outcome.labels[INSTANCE_TENANCY] == "dedicated"


def test_efas_are_reported_only_where_requested(make_process, node_class, aws):
    """Case 102."""
    process = make_process(types=("c5n.18xlarge",))

    without = process.launch_one(claim_of("without", ON_DEMAND), node_class)
    wanted = {"cpu": "1", EFA: "1"}
    with_efa = process.launch_one(claim_of("with", ON_DEMAND, requests=wanted), node_class)

    assert EFA not in without.capacity
    assert with_efa.capacity[EFA] == 1
    assert [i.kind for i in aws.instances.all[-1].interfaces] == ["efa"]


@pytest.mark.parametrize(("efa_only", "reported"), [(1, 1), (0, None)])
def test_efas_of_the_node_class_are_always_reported(aws, clients, make_process, efa_only, reported):
    """Case 102."""
    process = make_process(types=("c5n.18xlarge",))
    kinds = ["interface", "efa-only"][: 1 + efa_only]
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": device, "interfaceType": kind}
        for device, kind in enumerate(kinds)
    ]
    node_class = node_class_of(aws, clients, networkInterfaces=interfaces)

    outcome = process.launch_one(claim_of("plain", ON_DEMAND), node_class)

    assert outcome.capacity.get(EFA) == reported
    assert [i.kind for i in aws.instances.all[-1].interfaces] == kinds


def test_a_full_spread_group_is_full_for_all_types_in_its_zone(aws, clients, process):
    """Case 103."""
    group = aws.placement_groups.add("apart", strategy="spread")
    grouped = node_class_of(aws, clients, placementGroupSelector={"name": "apart"})
    many = [
        claim_of(f"n{n}", ON_DEMAND, ZONE_A, (INSTANCE_TYPE, "m5.large", "c5.large"))
        for n in range(8)
    ]

    outcomes = process.launch(*many, node_class=grouped)

    assert sum(isinstance(o, LaunchedInstance) for o in outcomes) == 7
    assert {(m.instance_type, m.zone, m.placement_group) for m in marks(process).offerings} == {
        (name, "us-east-1a", group.id) for name in ("m5.large", "c5.large")
    }


def test_the_lowest_partition_is_set_in_the_launch_template(aws, clients, process):
    """Case 104."""
    aws.placement_groups.add("racks", strategy="partition", partitions=4)
    grouped = node_class_of(aws, clients, placementGroupSelector={"name": "racks"})
    claim = claim_of("racked", ON_DEMAND, M5, (PLACEMENT_GROUP_PARTITION, "3", "1"))

    outcome = process.launch_one(claim, grouped)

    (call,) = aws.calls.of("CreateLaunchTemplate")
    assert call.parameters["LaunchTemplateData"]["Placement"]["PartitionNumber"] == 1
    assert outcome.labels[PLACEMENT_GROUP_PARTITION] == "1"


def reserved_class(aws, clients, process, reservation):
    """Return a NodeClass with a resolved reservation."""
    term = CapacityReservationTerm(id=reservation.id)
    (found,) = process.reservations.find([term]).items
    status = found.status(process.clock.now()).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return node_class_of(aws, clients, status={"capacityReservations": [status]})


@pytest.mark.parametrize(
    ("kind", "interruptible", "target", "options"),
    [
        (
            "default",
            False,
            "on-demand",
            {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}},
        ),
        ("capacity-block", False, "capacity-block", {}),
        (
            "default",
            True,
            "reserved-capacity",
            {
                "ReservedCapacityOptions": {
                    "ReservationTypes": ["interruptible-capacity-reservation"]
                }
            },
        ),
    ],
)
def test_each_kind_of_reservation_has_its_launch_parameters(
    aws, clients, process, kind, interruptible, target, options
):
    """Case 95."""
    reservation = aws.reservations.add(
        instance_type="m5.large",
        zone="us-east-1a",
        total=5,
        kind=kind,
        interruptible=interruptible,
        ends_at=process.clock.now() + timedelta(days=1),
    )
    node_class = reserved_class(aws, clients, process, reservation)

    outcome = process.launch_one(claim_of("paid", (CAPACITY_TYPE, "reserved")), node_class)

    assert outcome.capacity_type == "reserved"
    assert outcome.labels[CAPACITY_RESERVATION_ID] == reservation.id
    asked = fleet(aws)
    assert asked["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    said = ("OnDemandOptions", "SpotOptions", "ReservedCapacityOptions")
    assert {name: asked[name] for name in said if name in asked} == options
    assert aws.instance(outcome.provider_id).capacity_reservation_id == reservation.id


def test_a_reserved_launch_counts_and_a_terminated_one_counts_back(aws, clients, process):
    """Cases 95 and 99."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=5)
    node_class = reserved_class(aws, clients, process, reservation)

    outcome = process.launch_one(claim_of("paid", (CAPACITY_TYPE, "reserved")), node_class)

    assert outcome.capacity_type == "reserved"
    assert outcome.labels[CAPACITY_RESERVATION_ID] == reservation.id
    assert fleet(aws)["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"
    assert process.reservation_counts.remaining(reservation.id) == 4
    for _ in range(2):
        process.instances.terminate([outcome.provider_id])
    assert process.reservation_counts.remaining(reservation.id) == 5


def test_a_used_up_reservation_is_counted_as_empty(aws, clients, process):
    """Case 91."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=2)
    node_class = reserved_class(aws, clients, process, reservation)
    many = [claim_of(f"n{n}", (CAPACITY_TYPE, "reserved")) for n in range(3)]

    outcomes = process.launch(*many, node_class=node_class)

    assert sum(isinstance(o, LaunchedInstance) for o in outcomes) == 2
    assert sum(isinstance(o, InsufficientCapacityError) for o in outcomes) == 1
    assert process.reservation_counts.remaining(reservation.id) == 0
    assert not marks(process).offerings


def test_nothing_is_launched_into_a_zone_that_is_shifted_away_from(process, node_class):
    """Case 151."""
    request = process.request(claim_of("shifted", ON_DEMAND, M5, ZONE_A), node_class)
    process.shifted = ShiftedZones(ids=frozenset({"use1-az1"}), names=frozenset({"us-east-1a"}))

    (outcome,) = process.launcher.launch([request])

    assert isinstance(outcome, InsufficientCapacityError)


@pytest.mark.parametrize("zones", [("us-east-1a",), ("us-east-1a", "us-east-1b")])
def test_prices_that_are_not_ec2s_decide_by_priority(aws, process, node_class, zones):
    """A single one among the offerings is enough."""
    from dataclasses import replace

    from karpenter_core.provider.catalogue import Price

    request = process.request(claim_of("priced", ON_DEMAND, M5, (ZONE, *zones)), node_class)
    (it,) = request.instance_types
    own = replace(
        it,
        offerings=tuple(
            replace(o, price=Price(0.001)) if o.zone == "us-east-1a" else o for o in it.offerings
        ),
    )

    process.launcher.launch([replace(request, instance_types=(own,))])

    assert fleet(aws)["OnDemandOptions"]["AllocationStrategy"] == "prioritized"


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("UnauthorizedOperation", "You are not authorized to perform this.", "Unauthorized"),
        (
            "UnauthorizedOperation",
            "It is refused with an explicit deny in a service control policy.",
            "Unauthorized",
        ),
        ("AuthFailure", "Not authorized for images: [ami-0abc]", "AMIAuthorizationFailure"),
        ("ExpiredToken", "The token has expired.", "Unauthorized"),
    ],
)
def test_a_launch_that_is_not_permitted_has_the_reason_of_its_refusal(
    aws, process, node_class, code, message, reason
):
    encoded = " Encoded authorization failure message: c2VjcmV0"
    aws.fail("CreateFleet", code=code, message=message + encoded, status=403)

    outcome = process.launch_one(claim_of("denied", ON_DEMAND, M5), node_class)

    assert isinstance(outcome, AuthError)
    assert (outcome.action, outcome.reason) == ("ec2:CreateFleet", reason)
    assert message in str(outcome)
    assert "c2VjcmV0" not in str(outcome)
