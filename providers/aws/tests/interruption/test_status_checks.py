"""Status checks and scheduled events over real calls (acceptance case 146)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.errors import AuthError
from karpenter_core.provider.contract import InterruptionKind as Kind
from karpenter_provider_aws.interruption.status_checks import UnhealthyCategory, health_findings
from providers.aws.tests.interruption.cloud_world import World

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_a_check_that_fails_for_two_minutes_leaves_no_time(world: World):
    (instance_id,) = world.launch()
    world.aws.impair(instance_id, "system")
    world.clock.forward(110)  # the second itself is tested without a cloud, below
    assert world.poll() == ()

    world.clock.forward(11)
    (said,) = world.poll()

    assert (said.kind, said.provider_id) == (Kind.INSTANCE_UNHEALTHY, instance_id)
    assert said.deadline is not None
    assert said.deadline <= world.clock.now()
    assert world.unhealthy == ["SystemStatus"]


def test_a_scheduled_event_counts_at_once_and_has_no_deadline(world: World):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-retirement")

    (said,) = world.poll()

    assert (said.kind, said.provider_id, said.deadline) == (
        Kind.SCHEDULED_MAINTENANCE,
        instance_id,
        None,
    )
    assert "instance-retirement" in said.detail
    assert world.unhealthy == ["EventStatus"]


def test_both_at_once_are_two_announcements(world: World):
    """Whichever is handled first, the core adds the earlier end."""
    (instance_id,) = world.launch()
    world.aws.impair(instance_id, "instance")
    world.aws.schedule_event(instance_id, "system-reboot")
    world.clock.forward(121)

    said = world.poll()

    assert {one.kind for one in said} == {Kind.INSTANCE_UNHEALTHY, Kind.SCHEDULED_MAINTENANCE}
    assert [one.deadline is None for one in said if one.kind is Kind.INSTANCE_UNHEALTHY] == [False]


def test_an_announcement_is_repeated_unchanged_until_acknowledged(world: World):
    (instance_id,) = world.launch()
    world.aws.impair(instance_id)
    world.clock.forward(121)
    first = world.poll()
    world.clock.forward(60)
    second = world.poll()
    world.acknowledge(*second)
    world.clock.forward(60)

    assert first == second
    assert world.poll() == ()
    assert world.unhealthy == ["InstanceStatus"]


def test_a_failure_after_a_recovery_is_announced_again(world: World):
    (instance_id,) = world.launch()
    world.aws.impair(instance_id)
    world.clock.forward(121)
    first = world.poll()
    world.acknowledge(*first)
    world.aws.recover(instance_id)
    assert world.poll() == ()

    world.aws.impair(instance_id)
    world.clock.forward(121)
    second = world.poll()

    assert [one.provider_id for one in second] == [instance_id]
    assert first[0].id != second[0].id
    assert world.unhealthy == ["InstanceStatus", "InstanceStatus"]


def test_instances_of_others_and_checks_of_volumes_do_not_count(world: World):
    (instance_id,) = world.launch()
    foreign = world.aws.launch_foreign()
    world.aws.impair(instance_id, "ebs")
    world.aws.impair(foreign, "system")
    world.aws.schedule_event(foreign, "instance-stop")
    world.clock.forward(1000)

    assert world.poll() == ()
    assert world.unhealthy == []


def test_without_instances_status_is_not_polled(world: World):
    """Three calls a minute would be a third of all calls of an idle hour."""
    world.poll()
    assert world.aws.calls.count("DescribeInstanceStatus") == 0

    (instance_id,) = world.launch()
    world.poll()
    assert world.aws.calls.count("DescribeInstanceStatus") == 3

    world.claims.clear()
    world.join(instance_id)
    world.poll()
    assert world.aws.calls.count("DescribeInstanceStatus") == 6


def test_the_last_instance_takes_its_announcement_with_it(world: World):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    assert world.poll()
    world.claims.clear()

    assert world.poll() == ()


def test_without_permission_status_is_polled_every_half_hour(world: World):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    with world.aws.deny("DescribeInstanceStatus"):
        for _ in range(29):
            assert world.poll() == ()
            world.clock.forward(60)
        assert world.aws.calls.count("DescribeInstanceStatus") == 1

    world.clock.forward(60)
    assert [one.provider_id for one in world.poll()] == [instance_id]


@pytest.mark.parametrize("code", ["ExpiredToken", "AuthFailure", "InvalidClientTokenId"])
def test_refused_credentials_do_not_turn_the_health_of_instances_off(world: World, code):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    with (
        world.aws.fail("DescribeInstanceStatus", code=code, times=None),
        pytest.raises(AuthError, match=code),
    ):
        world.interruption_sources.status.run()

    world.clock.forward(60)
    assert [one.provider_id for one in world.poll()] == [instance_id]


def test_a_failure_is_raised_and_keeps_announcements(world: World):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    first = world.poll()
    with (
        world.aws.fail("DescribeInstanceStatus", code="InvalidParameterValue", times=None),
        pytest.raises(Exception, match="InvalidParameterValue"),
    ):
        world.interruption_sources.status.run()

    assert world.interruption_sources.standing() == first


def test_a_queue_that_fails_holds_up_no_status_check(world: World):
    (instance_id,) = world.launch()
    world.aws.schedule_event(instance_id, "instance-stop")
    world.interruption_sources.status.run()

    with world.aws.deny("GetQueueUrl"):
        said = world.interruption_sources.poll()

    assert [one.provider_id for one in said] == [instance_id]


@pytest.mark.parametrize("prefix", ["[Completed] ", "[Canceled] "])
def test_events_that_are_over_do_not_count(prefix):
    """EC2 shows them for another week."""
    event = {"Code": "system-reboot", "Description": f"{prefix}The instance is rebooted"}

    assert list(health_findings({"InstanceId": "i-1", "Events": [event]})) == []


def test_a_check_without_a_beginning_counts_from_when_it_was_first_seen(world: World, monkeypatch):
    (instance_id,) = world.launch()
    failed = {"Name": "reachability", "Status": "failed"}
    status = {
        "InstanceId": instance_id.rpartition("/")[2],
        "SystemStatus": {"Status": "impaired", "Details": [failed]},
    }
    monkeypatch.setattr(type(world.interruption_sources.status), "_describe", lambda _: [status])

    seen = []
    for _ in range(4):
        seen.append(len(world.poll()))
        world.clock.forward(60)

    assert seen == [0, 0, 1, 1]


def test_passing_and_insufficient_checks_are_no_impairment():
    details = [
        {"Name": "reachability", "Status": "passed"},
        {"Name": "reachability", "Status": "insufficient-data", "ImpairedSince": NOON},
    ]

    assert list(health_findings({"InstanceId": "i-1", "SystemStatus": {"Details": details}})) == []


def test_an_impairment_has_its_start_time():
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": NOON}

    (one,) = health_findings({"InstanceId": "i-1", "InstanceStatus": {"Details": [failed]}})

    assert (one.category, one.since) == (UnhealthyCategory.INSTANCE, NOON)
    assert not one.counts(NOON + timedelta(seconds=119))
    assert one.counts(NOON + timedelta(seconds=120))
