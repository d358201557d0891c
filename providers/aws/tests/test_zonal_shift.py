"""Zonal shifts of the cluster (acceptance case 151)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_aws.zonal_shift import NO_SHIFTS, ShiftedZones, ZonalShiftReader, shifts_of
from providers.aws.tests.interruption.cloud_world import CloudClock

ZONE, ZONE_ID = "us-east-1a", "use1-az1"


@pytest.fixture
def arn(aws):
    found = aws.clusters.arn(aws.world.cluster)
    aws.zonal_shifts.register(found)
    return found


@pytest.fixture
def zone_id(aws, clients):
    """Account and region decide which id a zone has."""
    (subnet,) = clients.ec2.describe_subnets(SubnetIds=[aws.world.subnets[ZONE]])["Subnets"]
    return subnet["AvailabilityZoneId"]


def shifts(aws, clients, *, enabled=True):
    return ZonalShiftReader(clients, CloudClock(aws), cluster=aws.world.cluster, enabled=enabled)


def shift(aws, arn, zone_id, *, minutes=60, applied=True):
    ends = aws.account.clock() + timedelta(minutes=minutes)
    aws.zonal_shifts.shift(arn, zone_id, expires_at=ends, applied=applied)


def test_a_shifted_zone_is_recognised_by_id_and_by_name(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)
    assert part.zones() == NO_SHIFTS

    part.run()

    zones = part.zones()
    assert zones == ShiftedZones(frozenset({zone_id}), frozenset({ZONE}))
    assert zones.has(ZONE)
    assert zones.has(zone_id=zone_id)
    assert not zones.has("us-east-1b")
    assert not zones.has("", zone_id="")


def test_in_a_shifted_zone_changes_are_refused(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)
    part.run()

    refusal = part.zones().refuse("termination", what="i-1", zone=ZONE)

    assert isinstance(refusal, CloudProviderError)
    assert str(refusal) == f"termination of i-1 waits: traffic is shifted away from {ZONE}"
    assert part.zones().refuse("termination", what="i-1", zone="us-east-1b") is None


def test_a_shift_ends_at_its_expiry_without_a_poll(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id, minutes=10)
    part.run()

    aws.time.advance(601)

    assert not part.zones().has(ZONE)


def test_a_shift_that_is_not_applied_is_none(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id, applied=False)

    part.run()

    assert not part.zones().has(ZONE)


def test_a_cancelled_zonal_shift_ends_while_another_continues(aws, clients, arn, zone_id):
    other = next(
        subnet["AvailabilityZoneId"]
        for subnet in clients.ec2.describe_subnets()["Subnets"]
        if subnet["AvailabilityZone"] == "us-east-1b"
    )
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)
    shift(aws, arn, other)
    part.run()
    assert part.zones().names == {ZONE, "us-east-1b"}

    aws.zonal_shifts.cancel(arn, zone_id)
    part.run()

    assert part.zones().names == {"us-east-1b"}


def test_shifts_are_kept_while_aws_does_not_answer(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)
    part.run()

    with aws.deny("GetManagedResource"), pytest.raises(AuthError):
        part.run()

    assert part.zones().has(ZONE)


def test_the_begin_and_the_end_of_a_shift_are_logged_once(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)

    with capture_logs() as logs:
        part.run()
        part.run()
        aws.zonal_shifts.cancel(arn, zone_id)
        part.run()
        part.run()

    assert [(entry["log_level"], entry["zone_id"]) for entry in logs] == [
        ("warning", zone_id),
        ("info", zone_id),
    ]


def test_a_cluster_that_is_not_registered_is_named(aws, clients):
    aws.zonal_shifts.clear()
    with pytest.raises(CloudProviderError, match=r"enable-zonal-shift: .* is not registered"):
        shifts(aws, clients).run()


def test_a_poll_takes_one_call_once_cluster_and_zones_are_cached(aws, clients, arn, zone_id):
    part = shifts(aws, clients)
    shift(aws, arn, zone_id)
    part.run()
    aws.calls.clear()

    part.run()

    assert [call.action for call in aws.calls.all] == ["GetManagedResource"]


def test_every_replica_polls_zonal_shift_each_half_minute_when_enabled(aws, clients):
    (task,) = shifts(aws, clients).tasks()

    assert (task.period, task.leader_only) == (timedelta(seconds=30), False)
    assert shifts(aws, clients, enabled=False).tasks() == ()


def test_shifts_that_aws_began_itself_count_until_it_ends_them():
    (found,) = shifts_of(
        {
            "zonalShifts": [],
            "autoshifts": [
                {
                    "appliedStatus": "APPLIED",
                    "awayFrom": ZONE_ID,
                    "startTime": datetime(2026, 6, 1, tzinfo=UTC),
                }
            ],
        }
    )

    assert (found.zone_id, found.ends_at, found.is_applied) == (ZONE_ID, None, True)
