"""Launches into capacity blocks and reservations that can be taken back, over the simulated AWS.

Acceptance cases 36, 71, 91, 95 to 99 and 132: what is asked for, what is bought, and what becomes of it.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE
from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.provider.contract import DriftFinding, LaunchedInstance, TerminationStatus
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
)
from providers.aws.tests.launch.processes import claim_of, launched_claim, node_class_of

A, B = "us-east-1a", "us-east-1b"
RESERVED = (CAPACITY_TYPE, "reserved")
BLOCK = {"kind": "capacity-block"}
INTERRUPTIBLE = {"interruptible": True}
KINDS = pytest.mark.parametrize(
    ("kind", "target", "market", "type_labels"),
    [
        ({}, "on-demand", None, ("default", "false")),
        (BLOCK, "capacity-block", "capacity-block", ("capacity-block", "false")),
        (
            INTERRUPTIBLE,
            "reserved-capacity",
            "interruptible-capacity-reservation",
            ("default", "true"),
        ),
    ],
)


@pytest.fixture
def reserve(aws, process):
    """Reserve instances; a block ends in a day unless it is said when."""

    def make(instance_type="m5.large", zone=A, total=2, **more):
        if more.get("kind"):
            more.setdefault("ends_at", process.clock.now() + timedelta(days=1))
        return aws.reservations.add(instance_type=instance_type, zone=zone, total=total, **more)

    return make


@pytest.fixture
def class_of(aws, clients, process):
    """A NodeClass whose status has these reservations, as they are found now."""

    def make(*reservations):
        terms = [{"id": each.id} for each in reservations]
        selecting = node_class_of(aws, clients, capacityReservationSelectorTerms=terms)
        found = process.reservations.find(selecting.spec.capacity_reservation_selector_terms)
        status = [
            item.status(process.clock.now()).model_dump(
                mode="json", by_alias=True, exclude_none=True
            )
            for item in found.items
        ]
        return node_class_of(
            aws,
            clients,
            capacityReservationSelectorTerms=terms,
            status={"capacityReservations": status},
        )

    return make


def fleet(aws):
    return aws.calls.of("CreateFleet")[-1].parameters


def choices(aws):
    """Return type and zone of each choice of the last fleet."""
    return [
        (override["InstanceType"], override["AvailabilityZone"])
        for config in fleet(aws)["LaunchTemplateConfigs"]
        for override in config["Overrides"]
    ]


@KINDS
def test_each_kind_of_reservation_provides_its_instance(
    aws, process, reserve, class_of, kind, target, market, type_labels
):
    """Cases 95, 99 and 132."""
    reservation = reserve(**kind)

    outcome = process.launch_one(claim_of("paid", RESERVED), class_of(reservation))

    data = aws.calls.of("CreateLaunchTemplate")[-1].parameters["LaunchTemplateData"]
    assert fleet(aws)["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    assert data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation.id},
    }
    assert data.get("InstanceMarketOptions", {}).get("MarketType") == market
    instance = aws.instance(outcome.provider_id)
    assert (instance.capacity_reservation_id, instance.market) == (reservation.id, market or "")
    assert outcome.capacity_type == "reserved"
    labels = outcome.labels
    assert labels[CAPACITY_RESERVATION_ID] == reservation.id
    assert (
        labels[CAPACITY_RESERVATION_TYPE],
        labels[CAPACITY_RESERVATION_INTERRUPTIBLE],
    ) == type_labels
    assert process.reservation_counts.remaining(reservation.id) == 1


@KINDS
def test_another_process_recognises_a_reserved_instance(
    aws, make_process, process, reserve, class_of, kind, target, market, type_labels
):
    """Nothing about it is kept in the process that launched it."""
    del target, market, type_labels
    node_class = class_of(reserve(**kind))
    claim = claim_of("paid", RESERVED)
    first = process.launch_one(claim, node_class)

    another = make_process()
    (listed,) = another.instances.list().instances
    again = another.launch_one(claim, node_class)

    assert (listed.provider_id, listed.capacity_type) == (first.provider_id, "reserved")
    assert (listed.node_claim, listed.token) == ("paid", "uid-of-paid")
    assert again == first
    assert aws.calls.count("CreateFleet") == 1


@KINDS
def test_an_instance_drifts_when_its_reservation_is_no_longer_selected(
    process, reserve, class_of, kind, target, market, type_labels
):
    """Case 36."""
    del target, market, type_labels
    reservation, other = reserve(**kind), reserve("c5.large")
    node_class = class_of(reservation)
    claim = claim_of("paid", RESERVED)
    mine = launched_claim(claim, process.launch_one(claim, node_class))

    assert process.drift.detect([mine], node_class) == [None]
    assert process.drift.detect([mine], class_of(other)) == [
        DriftFinding(reason="CapacityReservationDrift")
    ]


@KINDS
def test_a_terminated_instance_frees_its_reserved_place(
    process, reserve, class_of, kind, target, market, type_labels
):
    """Case 99, for each kind."""
    del target, market, type_labels
    reservation = reserve(total=1, **kind)
    node_class = class_of(reservation)
    first = process.launch_one(claim_of("first", RESERVED), node_class)
    refused = process.launch_one(claim_of("second", RESERVED), node_class)

    answers = [process.instances.terminate([first.provider_id])[0] for _ in range(2)]
    then = process.launch_one(claim_of("third", RESERVED), node_class)

    assert isinstance(refused, InsufficientCapacityError)
    assert answers == [TerminationStatus.STARTED, TerminationStatus.GONE]
    assert isinstance(then, LaunchedInstance)


@KINDS
def test_capacity_taken_by_others_is_not_requested_again(
    aws, process, reserve, class_of, kind, target, market, type_labels
):
    """Case 91, for each kind."""
    del target, market, type_labels
    reservation = reserve(total=2, **kind)
    node_class = class_of(reservation)
    aws.reservations.get(reservation.id).total = 0

    outcome = process.launch_one(claim_of("late", RESERVED), node_class)
    again = process.launch_one(claim_of("later", RESERVED), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert isinstance(again, InsufficientCapacityError)
    assert process.reservation_counts.remaining(reservation.id) == 0
    assert aws.calls.count("CreateFleet") == 1
    assert not process.unavailable_offerings.view(now=process.clock.now()).offerings


@pytest.mark.parametrize("is_known", [False, True])
def test_a_used_up_reservation_leaves_others_of_its_type_and_zone(
    aws, process, reserve, class_of, is_known
):
    """A claim is for one of them; instances that are paid for must not wait while on-demand is bought."""
    full, ample = reserve(total=1), reserve(total=9)
    node_class = class_of(full, ample)
    aws.reservations.get(full.id).total = 0
    of_full = RESERVED, (CAPACITY_RESERVATION_ID, full.id)
    planned_before = process.request(claim_of("late", *of_full), node_class)
    if is_known:
        process.launch_one(claim_of("first", *of_full), node_class)

    (outcome,) = process.launcher.launch([planned_before])

    assert isinstance(outcome, InsufficientCapacityError)
    assert outcome.offerings == ()
    assert [(each.label, each.value, each.capacity_type) for each in outcome.quota_groups] == [
        (CAPACITY_RESERVATION_ID, full.id, "reserved")
    ]


def test_several_claims_share_a_fleet_into_a_block(aws, process, reserve, class_of):
    block = reserve(total=3, **BLOCK)
    many = [claim_of(f"n{n}", RESERVED) for n in range(4)]

    outcomes = process.launch(*many, node_class=class_of(block))

    assert aws.calls.count("CreateFleet") == 1
    assert sum(isinstance(each, LaunchedInstance) for each in outcomes) == 3
    assert sum(isinstance(each, InsufficientCapacityError) for each in outcomes) == 1


def test_a_block_that_is_about_to_end_takes_nothing_more(aws, process, reserve, class_of):
    """Case 71."""
    block = reserve(**BLOCK, ends_at=process.clock.now() + timedelta(minutes=39))

    outcome = process.launch_one(claim_of("late", RESERVED), class_of(block))

    assert isinstance(outcome, InsufficientCapacityError)
    assert aws.calls.count("CreateFleet") == 0


def test_the_cheaper_of_two_capacity_blocks_is_requested_alone(aws, process, reserve, class_of):
    """Case 98."""
    cheap, dear = reserve("m5.large", **BLOCK), reserve("m5.xlarge", **BLOCK)

    outcome = process.launch_one(claim_of("paid", RESERVED), class_of(cheap, dear))

    assert choices(aws) == [("m5.large", A)]
    assert outcome.labels[CAPACITY_RESERVATION_ID] == cheap.id


def test_the_fuller_reservation_of_a_zone_is_used(aws, process, reserve, class_of):
    """Case 96."""
    scarce, ample = reserve(total=1), reserve(total=9)
    elsewhere = reserve(zone=B, total=3)

    outcome = process.launch_one(claim_of("paid", RESERVED), class_of(scarce, ample, elsewhere))

    assert sorted(choices(aws)) == [("m5.large", A), ("m5.large", B)]
    assert outcome.labels[CAPACITY_RESERVATION_ID] in {ample.id, elsewhere.id}


def test_kinds_are_used_up_in_their_order(process, reserve, class_of):
    """Case 97: at one price the usual kind comes first, and what can be taken back last."""
    reservations = [reserve(total=1, **kind) for kind in (INTERRUPTIBLE, BLOCK, {})]
    node_class = class_of(*reservations)

    bought = [
        process.launch_one(claim_of(f"n{n}", RESERVED), node_class).labels[CAPACITY_RESERVATION_ID]
        for n in range(3)
    ]

    assert bought == [each.id for each in reversed(reservations)]


def test_a_claim_for_any_capacity_type_launches_a_gpu_capacity_block(
    aws, make_process, reserve, class_of
):
    """A block is paid for, so it comes before what has no GPU and would cost something."""
    process = make_process(types=("m5.large", "p5.48xlarge"))
    block = reserve("p5.48xlarge", **BLOCK)
    node_class = class_of(block)
    process.reservations.find(node_class.spec.capacity_reservation_selector_terms)
    claim = claim_of(
        "any", (CAPACITY_TYPE, "reserved", "on-demand"), (INSTANCE_TYPE, "m5.large", "p5.48xlarge")
    )

    outcome = process.launch_one(claim, node_class)

    assert outcome.capacity_type == "reserved"
    assert aws.instance(outcome.provider_id).instance_type == "p5.48xlarge"
