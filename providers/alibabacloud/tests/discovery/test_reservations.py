"""Capacity reservations of a NodeClass over the simulated cloud (section 15)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_provider_alibabacloud.api.nodeclass import CapacityReservationTerm
from karpenter_provider_alibabacloud.discovery.reservations import read_reservations
from providers.alibabacloud.tests.discovery.worlds import Readers

ASKED = "DescribeCapacityReservations"


@pytest.fixture
def readers(cloud, clients):
    return Readers(cloud, clients)


def terms(*given):
    return [CapacityReservationTerm.model_validate(term) for term in given]


def reserve(cloud, name, total=2, **more):
    return cloud.reservations.add(
        name, instance_type="ecs.g7.large", zone=cloud.world.zones[0], total=total, **more
    ).id


def test_reservations_are_selected_by_id_name_and_tags(cloud, readers):
    batch = reserve(cloud, "batch", tags={"team": "web"})
    other = reserve(cloud, "other", criteria="Open", tags={"team": "web"})

    def listed(*given):
        return {each.id for each in readers.reservations.find(terms(*given)).items}

    assert listed({"id": batch}) == {batch}
    assert listed({"name": "other"}) == {other}
    assert listed({"tags": {"team": "web"}}) == {batch, other}
    assert listed({"tags": {"team": "web"}, "name": "batch"}) == {batch}
    assert listed({"id": batch}, {"id": other}) == {batch, other}
    assert listed() == set()


def test_remaining_capacity_of_reservations_is_read_once_a_minute(cloud, readers):
    made = reserve(cloud, "batch", total=5)
    wanted = terms({"id": made})

    (found,) = readers.reservations.find(wanted).items
    readers.reservations.find(wanted)

    assert (found.instance_type, found.match_criteria, found.end_time) == (
        "ecs.g7.large",
        "Target",
        None,
    )
    assert readers.reservations.reservation_counts.remaining(made) == 5
    assert cloud.calls.count(ASKED) == 1
    readers.clock.forward(minutes=1)
    readers.reservations.find(wanted)
    assert cloud.calls.count(ASKED) == 2


def test_terms_that_find_nothing_are_named(cloud, readers):
    reserve(cloud, "batch")

    answer = readers.reservations.find(terms({"id": "crp-none"}, {"name": "none"}))

    assert answer.absent == (
        'spec.capacityReservationSelectorTerms[0] id "crp-none"',
        'spec.capacityReservationSelectorTerms[1] name "none"',
    )


def test_unusable_reservations_are_left_out():
    one = {"InstanceType": "ecs.g7.large", "zoneId": "z", "TotalAmount": 5, "UsedAmount": 2}
    whole = {
        "PrivatePoolOptionsId": "crp-1",
        "PrivatePoolOptionsMatchCriteria": "Open",
        "Status": "Active",
        "EndTimeType": "Limited",
        "EndTime": "2026-03-01T12:00Z",
        "AllocatedResources": {"AllocatedResource": [one]},
    }

    (found,) = read_reservations([whole])
    assert found.available_instances == 3
    assert found.end_time == datetime(2026, 3, 1, 12, tzinfo=UTC)
    for odd in (
        {"Status": "Preparing"},
        {"PrivatePoolOptionsMatchCriteria": "Share"},
        {"AllocatedResources": {"AllocatedResource": []}},
        {"AllocatedResources": {"AllocatedResource": [one, one]}},
        {"AllocatedResources": None},
    ):
        assert read_reservations([whole | odd]) == ()


@pytest.mark.parametrize(
    ("amounts", "available"),
    [
        ({"AvailableAmount": 1, "TotalAmount": 5, "UsedAmount": 2}, 1),
        ({"AvailableAmount": 0, "TotalAmount": 5, "UsedAmount": 2}, 0),
        ({"TotalAmount": 5, "UsedAmount": 2}, 3),
        ({"TotalAmount": 5}, 5),
        ({"TotalAmount": 2, "UsedAmount": 5}, 0),
        ({}, 0),
    ],
)
def test_the_count_that_ecs_gives_goes_before_what_follows_from_others(amounts, available):
    reservation = {
        "PrivatePoolOptionsId": "crp-1",
        "PrivatePoolOptionsMatchCriteria": "Open",
        "Status": "Active",
        "AllocatedResources": {"AllocatedResource": [{"InstanceType": "ecs.g7.large", **amounts}]},
    }

    (found,) = read_reservations([reservation])

    assert found.available_instances == available


def test_an_expired_reservation_is_dropped_before_ecs_drops_it(cloud, readers):
    end = readers.clock.now() + timedelta(seconds=30)
    cloud.time.advance((readers.clock.now() - cloud.time()).total_seconds())
    reserve(cloud, "batch", ends_at=end)
    wanted = terms({"name": "batch"})

    assert len(readers.reservations.find(wanted).items) == 1
    readers.clock.forward(seconds=30)
    assert readers.reservations.find(wanted).items == ()
