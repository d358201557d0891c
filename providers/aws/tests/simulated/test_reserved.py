"""Capacity reservations, capacity blocks and placement groups of the simulated AWS."""

from __future__ import annotations

from datetime import timedelta

A, B = "us-east-1a", "us-east-1b"


def _available(clients, reservation_id):
    answer = clients.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    return answer["CapacityReservations"][0]["AvailableInstanceCount"]


def _only(reservation_id):
    return {
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation_id},
        }
    }


def test_a_reserved_launch_uses_the_reservation_up(aws, clients, launch):
    reservation = aws.reservations.add(instance_type="m5.large", zone=A, total=2)
    launch.template("reserved", **_only(reservation.id))

    fleet = launch.fleet("m5.large", zones=[A], template="reserved", count=3)
    instance = launch.described(fleet.ids[0])[0]

    assert len(fleet.ids) == 2
    assert fleet.errors == [("m5.large", A, "ReservationCapacityExceeded")]
    assert _available(clients, reservation.id) == 0
    assert instance["CapacityReservationId"] == reservation.id
    assert (
        instance["CapacityReservationSpecification"]["CapacityReservationPreference"]
        == "capacity-reservations-only"
    )


def test_a_reservation_is_free_again_when_its_instance_ends(aws, clients, launch):
    reservation = aws.reservations.add(instance_type="m5.large", zone=A, total=1)
    launch.template("reserved", **_only(reservation.id))
    fleet = launch.fleet("m5.large", zones=[A], template="reserved")
    clients.ec2.terminate_instances(InstanceIds=fleet.ids)

    assert _available(clients, reservation.id) == 1


def test_a_reservation_serves_its_type_and_zone_alone(aws, launch):
    reservation = aws.reservations.add(instance_type="m5.large", zone=A, total=1)
    launch.template("reserved", **_only(reservation.id))

    fleet = launch.fleet("m5.large", "m5.xlarge", zones=[B], template="reserved")

    assert fleet.ids == []
    assert {code for _, _, code in fleet.errors} == {"ReservationCapacityExceeded"}


def test_an_open_reservation_is_used_unasked_unless_the_template_forbids_it(aws, clients, launch):
    reservation = aws.reservations.add(instance_type="m5.large", zone=A, total=5, match="open")
    launch.template(
        "none", CapacityReservationSpecification={"CapacityReservationPreference": "none"}
    )
    launch.fleet("m5.large", zones=[A], template="none")
    untouched = _available(clients, reservation.id)
    launch.fleet("m5.large", zones=[A])

    assert (untouched, _available(clients, reservation.id)) == (5, 4)


def test_a_capacity_block_is_launched_with_its_own_market_type(aws, launch):
    block = aws.reservations.add(
        instance_type="p5.48xlarge",
        zone=A,
        total=1,
        kind="capacity-block",
        ends_at=aws.account.clock() + timedelta(hours=2),
    )
    launch.template(
        "block", InstanceMarketOptions={"MarketType": "capacity-block"}, **_only(block.id)
    )
    on_demand = launch.fleet("p5.48xlarge", zones=[A], template="block")
    bought = launch.fleet("p5.48xlarge", zones=[A], template="block", target="capacity-block")

    assert on_demand.ids == []
    assert launch.described(*bought.ids)[0]["InstanceLifecycle"] == "capacity-block"


def test_an_interruptible_reservation_is_launched_as_reserved_capacity(aws, launch):
    reservation = aws.reservations.add(
        instance_type="m5.large", zone=A, total=1, interruptible=True
    )
    launch.template(
        "interruptible",
        InstanceMarketOptions={"MarketType": "interruptible-capacity-reservation"},
        **_only(reservation.id),
    )
    fleet = launch.fleet(
        "m5.large",
        zones=[A],
        template="interruptible",
        target="reserved-capacity",
        ReservedCapacityOptions={"ReservationTypes": ["interruptible-capacity-reservation"]},
    )

    instance = launch.described(*fleet.ids)[0]
    assert instance["InstanceLifecycle"] == "interruptible-capacity-reservation"
    assert instance["CapacityReservationId"] == reservation.id


def test_reservations_are_selected_by_tag_owner_and_criteria_and_expire(aws, clients):
    aws.reservations.add(instance_type="m5.large", zone=A, total=1, tags={"a": "b"})
    aws.reservations.add(
        instance_type="m5.large",
        zone=A,
        total=1,
        match="open",
        owner="210987654321",
        ends_at=aws.account.clock() + timedelta(minutes=1),
    )

    def found(name, value):
        answer = clients.ec2.describe_capacity_reservations(
            Filters=[{"Name": name, "Values": [value]}]
        )
        return len(answer["CapacityReservations"])

    before = found("state", "active")
    aws.time.advance(61)

    assert found("tag:a", "b") == 1
    assert found("owner-id", "210987654321") == 1
    assert found("instance-match-criteria", "open") == 1
    assert (before, found("state", "active"), found("state", "expired")) == (2, 1, 1)


def test_reservations_are_made_changed_and_cancelled_by_calls(clients):
    made = clients.ec2.create_capacity_reservation(
        InstanceType="m5.large",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone=A,
        InstanceCount=2,
        InstanceMatchCriteria="targeted",
    )["CapacityReservation"]["CapacityReservationId"]
    clients.ec2.modify_capacity_reservation(CapacityReservationId=made, InstanceCount=5)
    after = _available(clients, made)
    clients.ec2.cancel_capacity_reservation(CapacityReservationId=made)
    state = clients.ec2.describe_capacity_reservations(CapacityReservationIds=[made])

    assert after == 5
    assert state["CapacityReservations"][0]["State"] == "cancelled"


def test_a_spread_group_takes_seven_instances_in_a_zone(launch, clients):
    group = clients.ec2.create_placement_group(GroupName="apart", Strategy="spread")
    launch.template("apart", Placement={"GroupId": group["PlacementGroup"]["GroupId"]})
    fleet = launch.fleet("m5.large", zones=[A], template="apart", count=9)

    assert len(fleet.ids) == 7
    assert (
        "limit of instances in this spread placement group"
        in (fleet.answer["Errors"][0]["ErrorMessage"])
    )


def test_partitions_are_filled_evenly_or_as_requested(aws, launch):
    group = aws.placement_groups.add("parts", strategy="partition", partitions=3)
    launch.template("any", Placement={"GroupId": group.id})
    launch.template("third", Placement={"GroupId": group.id, "PartitionNumber": 3})

    placed = launch.fleet("m5.large", template="any", count=4).ids
    asked = launch.fleet("m5.large", template="third").ids

    numbers = [each["Placement"]["PartitionNumber"] for each in launch.described(*placed)]
    assert numbers == [1, 2, 3, 1]
    assert launch.described(*asked)[0]["Placement"]["PartitionNumber"] == 3
