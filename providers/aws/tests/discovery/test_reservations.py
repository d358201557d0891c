"""Capacity reservations and their remaining capacity (acceptance case 143, first half)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from botocore.stub import Stubber

from karpenter_core.errors import AuthError
from karpenter_provider_aws.api.nodeclass import CapacityReservationTerm
from karpenter_provider_aws.discovery.queries import DescribeFilter
from karpenter_provider_aws.discovery.reservations import (
    ReservationReader,
    current_reservations,
    is_expiring,
    read_reservation,
    reservation_queries,
)
from providers.aws.tests.discovery.moto_world import NOON

ACTIVE = DescribeFilter("state", ("active",))
ACTIVE_ONLY = [{"Name": "state", "Values": ["active"]}]


@pytest.fixture
def reservations(clients, clock):
    return ReservationReader(clients, clock)


@pytest.fixture
def stub(clients):
    with Stubber(clients.ec2) as stub:
        yield stub


def item(reservation_id="cr-1", left=5, **fields):
    return {
        "CapacityReservationId": reservation_id,
        "AvailabilityZone": "us-east-1a",
        "InstanceType": "m5.large",
        "InstanceMatchCriteria": "targeted",
        "OwnerId": "123456789012",
        "AvailableInstanceCount": left,
        **fields,
    }


def by_id(stub, reservation_id, *items):
    stub.add_response(
        "describe_capacity_reservations",
        {"CapacityReservations": list(items)},
        {"Filters": ACTIVE_ONLY, "CapacityReservationIds": [reservation_id]},
    )


def test_each_term_is_a_query_and_an_id_is_its_own():
    """An owner alone asks for nothing."""
    terms = [
        CapacityReservationTerm(id="cr-1"),
        CapacityReservationTerm(
            owner_id="123456789012", tags={"a": "*"}, instance_match_criteria="open"
        ),
        CapacityReservationTerm(owner_id="123456789012"),
        CapacityReservationTerm(instance_match_criteria="targeted"),
    ]

    queries = reservation_queries(terms)

    assert [query.term.pattern for query in queries] == ["cr-1", "", ""]
    assert [query.filters for query in queries] == [
        (ACTIVE,),
        (
            ACTIVE,
            DescribeFilter("owner-id", ("123456789012",)),
            DescribeFilter("tag-key", ("a",)),
            DescribeFilter("instance-match-criteria", ("open",)),
        ),
        (ACTIVE, DescribeFilter("instance-match-criteria", ("targeted",))),
    ]


def test_all_pages_are_read_unless_one_id_is_requested(reservations, stub):
    """A query by id takes no page size; the result is sorted by id, each once."""
    paged = {
        "Filters": [*ACTIVE_ONLY, {"Name": "tag:a", "Values": ["1"]}],
        "MaxResults": 1000,
    }
    by_id(stub, "cr-2", item("cr-2"))
    stub.add_response(
        "describe_capacity_reservations",
        {"CapacityReservations": [item("cr-3"), item("cr-2")], "NextToken": "more"},
        paged,
    )
    stub.add_response(
        "describe_capacity_reservations",
        {"CapacityReservations": [item("cr-1", left=7)]},
        {**paged, "NextToken": "more"},
    )

    found = reservations.find(
        [CapacityReservationTerm(id="cr-2"), CapacityReservationTerm(tags={"a": "1"})]
    )

    assert [each.id for each in found.items] == ["cr-1", "cr-2", "cr-3"]
    assert reservations.reservation_counts.remaining("cr-1") == 7
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "code", ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"]
)
def test_a_reservation_that_is_not_there_is_named_and_no_error(reservations, stub, code):
    """By the term that names it."""
    stub.add_client_error("describe_capacity_reservations", code, http_status_code=400)
    found = reservations.find([CapacityReservationTerm(id="cr-9")])

    assert found.items == ()
    assert found.absent == ('spec.capacityReservationSelectorTerms[0].id "cr-9"',)


def test_a_missing_permission_is_an_error(reservations, stub):
    """Naming the call."""
    stub.add_client_error(
        "describe_capacity_reservations", "UnauthorizedOperation", http_status_code=403
    )
    with pytest.raises(AuthError, match="ec2:DescribeCapacityReservations"):
        reservations.find([CapacityReservationTerm(id="cr-9")])


@pytest.mark.parametrize(
    "odd", [{"InstanceMatchCriteria": "mine"}, {"ReservationType": "something-new"}]
)
def test_unusable_reservations_alone_are_left_out(reservations, stub, odd):
    """The others still go in."""
    asked = {
        "Filters": [*ACTIVE_ONLY, {"Name": "tag:a", "Values": ["1"]}],
        "MaxResults": 1000,
    }
    stub.add_response(
        "describe_capacity_reservations",
        {"CapacityReservations": [item("cr-1", **odd), item("cr-2")]},
        asked,
    )

    found = reservations.find([CapacityReservationTerm(tags={"a": "1"})])

    assert [each.id for each in found.items] == ["cr-2"]


def test_the_status_has_the_fields_of_the_api():
    """Absent means: of the ordinary kind, not interruptible, without end."""
    plain = read_reservation(item("cr-1")).status(NOON)
    block = read_reservation(
        item(
            "cr-2",
            ReservationType="capacity-block",
            EndDate=NOON + timedelta(hours=2),
            Interruptible=True,
        )
    ).status(NOON)

    assert plain.model_dump(mode="json", exclude_none=True) == {
        "id": "cr-1",
        "availabilityZone": "us-east-1a",
        "instanceType": "m5.large",
        "instanceMatchCriteria": "targeted",
        "ownerID": "123456789012",
        "reservationType": "default",
        "state": "active",
    }
    assert (block.reservation_type, block.interruptible, block.state, block.end_time) == (
        "capacity-block",
        True,
        "active",
        NOON + timedelta(hours=2),
    )


@pytest.mark.parametrize(
    ("kind", "minutes_left", "expiring"),
    [
        ("capacity-block", 41, False),
        ("capacity-block", 40, True),
        ("capacity-block", -1, True),
        ("default", 10, False),
    ],
)
def test_a_block_expires_forty_minutes_before_its_end(kind, minutes_left, expiring):
    """Case 143; a reservation of the ordinary kind never does."""
    assert is_expiring(kind, NOON + timedelta(minutes=minutes_left), NOON) is expiring


def test_nothing_without_end_expires():
    """There is nothing to compare."""
    assert not is_expiring("capacity-block", None, NOON)


def test_an_expired_reservation_is_dropped_though_read_as_active(reservations, stub, clock):
    """Case 143; an answer is kept for a minute."""
    by_id(stub, "cr-1", item("cr-1", EndDate=NOON + timedelta(seconds=30)))
    terms = [CapacityReservationTerm(id="cr-1")]
    assert len(reservations.find(terms).items) == 1
    clock.forward(seconds=30)
    assert reservations.find(terms).items == ()


def test_a_reservation_has_ended_once_its_end_has_passed(reservations, stub, clock):
    """Until the end moves; one that was never found, or has no end, has not ended."""
    terms = [CapacityReservationTerm(id="cr-1"), CapacityReservationTerm(id="cr-2")]
    by_id(stub, "cr-1", item("cr-1", EndDate=NOON + timedelta(minutes=2)))
    by_id(stub, "cr-2", item("cr-2"))
    reservations.find(terms)
    assert not reservations.has_ended("cr-1")

    clock.forward(minutes=10)
    assert [reservations.has_ended(f"cr-{number}") for number in (1, 2, 3)] == [True, False, False]

    by_id(stub, "cr-1", item("cr-1", EndDate=NOON + timedelta(hours=2)))
    by_id(stub, "cr-2", item("cr-2"))
    reservations.find(terms)
    assert not reservations.has_ended("cr-1")


def test_each_reservation_is_there_once():
    """Whichever terms found it."""
    twice = [read_reservation(item("cr-2")), read_reservation(item("cr-1"))] * 2
    assert [each.id for each in current_reservations(twice, now=NOON)] == ["cr-1", "cr-2"]
