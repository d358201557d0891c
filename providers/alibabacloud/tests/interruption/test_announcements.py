"""Tests interruption announcements (cases 85, 94 to 97, PC-060 to PC-063)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.api.records import NodeConditionView
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_provider_alibabacloud.interruption.pending_announcements import PendingAnnouncements
from karpenter_provider_alibabacloud.interruption.system_events import (
    EVENT_TYPES,
    SystemEvent,
    announcement_of,
    is_due,
)
from karpenter_simulated_alibabacloud.events import EventCycle
from providers.alibabacloud.tests.instances.cluster_world import SPOT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def expired(world, provider_id, *, spot=True, status="True"):
    """Return a Node whose node problem detector has seen that it is taken back."""
    said = NodeConditionView(type="InstanceExpired", status=status, last_transition_time=NOON)
    return world.join(provider_id, spot=spot, conditions=(said,))


def kinds(said):
    return [(each.kind, each.provider_id) for each in said]


# -- spot ------------------------------------------------------------------------------------------


def test_a_spot_instance_that_is_taken_back_is_announced_until_it_is_acknowledged(world):
    """Case 94, PC-060 to PC-062."""
    taken, _ = world.launch("web-one", "web-two", **SPOT)
    end = world.cloud.reclaim(taken)

    first = world.poll()
    world.clock.forward(20)
    again = world.poll()

    assert kinds(first) == [(InterruptionKind.SPOT_RECLAIM, taken)]
    assert again == first
    assert end - timedelta(seconds=25) <= first[0].deadline <= end
    world.acknowledge(*first)
    world.acknowledge(*first, Interruption(id="of/nobody", kind=InterruptionKind.REBALANCE))
    assert world.poll() == ()


def test_a_reclaimed_type_is_masked_as_spot_in_its_zone_for_a_quarter_of_an_hour(world):
    """Case 94."""
    (taken,) = world.launch("web-one", **SPOT)
    world.cloud.reclaim(taken)

    world.poll()
    world.clock.forward(60)
    world.poll()  # it is the same reclaim: the mark does not begin anew

    assert world.is_marked("spot", after=timedelta(minutes=13))
    assert not world.is_marked("spot", after=timedelta(minutes=14, seconds=1))
    assert not world.is_marked("on-demand")


def test_one_call_finds_locked_instances_of_any_number(world):
    world.launch(*(f"web-{n}" for n in range(20)), **SPOT)
    world.cloud.calls.clear()

    world.interruption_sources.spot.run()

    assert world.cloud.calls.count("DescribeInstances") == 1


def test_foreign_instances_and_other_locks_announce_nothing(world):
    world.cloud.reclaim(world.cloud.launch_foreign())
    (mine,) = world.launch("mine")
    world.cloud.instance(mine).lock_reasons.append("financial")

    assert world.poll() == ()


def test_a_node_condition_announces_the_same_interruption(world):
    """Case 95."""
    (taken,) = world.launch("web-one", **SPOT)
    node = expired(world, taken)

    (said,) = world.interruption_sources.read(node)

    assert (said.kind, said.provider_id) == (InterruptionKind.SPOT_RECLAIM, taken)
    assert said.deadline == NOON + timedelta(minutes=5)
    assert world.is_marked("spot", after=timedelta(minutes=14))


def test_on_demand_and_healthy_nodes_announce_nothing(world):
    """Case 95."""
    (one,) = world.launch("web-one")

    assert world.interruption_sources.read(expired(world, one, spot=False)) == ()
    assert world.interruption_sources.read(expired(world, one, status="False")) == ()
    assert world.interruption_sources.read(world.join(one, spot=True)) == ()
    assert world.interruption_sources.read(expired(world, "aws:///us-east-1a/i-1")) == ()
    assert not world.is_marked()


def test_both_sources_make_one_announcement(world):
    """Case 96: what the core has handled under an id it does not handle again."""
    (taken,) = world.launch("web-one", **SPOT)
    world.cloud.reclaim(taken)
    node = expired(world, taken)

    (polled,) = world.poll()
    (read,) = world.interruption_sources.read(node)

    assert polled.id == read.id


def test_a_reclaimed_instance_that_stops_is_not_announced_again(world):
    """Case 94: once only."""
    world.cloud.behaviour.terminating_seconds = 600
    (taken,) = world.launch("web-one", **SPOT)
    world.cloud.reclaim(taken)
    world.acknowledge(*world.poll())

    world.clock.forward(301)

    assert world.instances.list().instances[0].terminating
    assert world.poll() == ()


# -- system events ---------------------------------------------------------------------------------


def test_later_maintenance_is_recorded_without_an_announcement(world):
    """Case 97: drift replaces the node."""
    one, _ = world.launch("web-one", "web-two")
    world.cloud.schedule_event(one, "SystemMaintenance.Reboot")

    assert world.poll() == ()
    assert world.interruption_sources.events.scheduled() == {
        one.rpartition(".")[2]: "SystemMaintenance.Reboot"
    }


def test_maintenance_that_is_near_or_under_way_is_announced(world):
    """Case 97."""
    one, two = world.launch("web-one", "web-two")
    soon = world.clock.now() + timedelta(minutes=10)
    near = world.cloud.schedule_event(one, "SystemMaintenance.Redeploy", not_before=soon)
    world.cloud.schedule_event(two, cycle=EventCycle.Executing)

    said = {each.provider_id: each for each in world.poll()}

    assert {each.kind for each in said.values()} == {InterruptionKind.SCHEDULED_MAINTENANCE}
    assert said[one].deadline == soon.replace(microsecond=0)
    assert said[two].deadline is not None
    assert world.interruption_sources.events.scheduled() == {}
    world.cloud.events.finish(near, EventCycle.Canceled)
    assert [each.provider_id for each in world.poll()] == [two]


def test_an_announced_event_that_begins_is_announced_as_more_urgent(world):
    (one,) = world.launch("web-one")
    event = world.cloud.schedule_event(one, not_before=world.clock.now() + timedelta(minutes=10))
    world.acknowledge(*world.poll())
    assert world.poll() == ()

    event.cycle = EventCycle.Executing
    (said,) = world.poll()

    assert said.deadline <= world.clock.now()


def test_events_of_foreign_instances_are_looked_up_once_and_not_announced(world):
    foreign = world.cloud.launch_foreign()
    world.cloud.schedule_event(foreign, cycle=EventCycle.Executing)
    world.interruption_sources.events.run()
    world.cloud.calls.clear()

    world.interruption_sources.events.run()

    assert world.interruption_sources.poll() == ()
    assert world.cloud.calls.count("DescribeInstances") == 0


def test_an_event_of_an_instance_that_was_not_listed_yet_is_announced(world):
    (one,) = world.launch("web-one")
    world.cloud.schedule_event(one, cycle=EventCycle.Executing)

    world.interruption_sources.events.run()

    assert kinds(world.interruption_sources.poll()) == [
        (InterruptionKind.SCHEDULED_MAINTENANCE, one)
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("SystemMaintenance.Reboot", InterruptionKind.SCHEDULED_MAINTENANCE),
        ("SystemFailure.Redeploy", InterruptionKind.INSTANCE_UNHEALTHY),
        ("InstanceFailure.Reboot", InterruptionKind.INSTANCE_UNHEALTHY),
        ("SystemFailure.Delete", InterruptionKind.INSTANCE_TERMINATED),
        ("AccountUnbalanced.Stop", InterruptionKind.INSTANCE_STOPPED),
    ],
)
def test_an_executing_event_is_named_by_its_type(kind, expected):
    assert kind in EVENT_TYPES
    event = SystemEvent(
        id="e-1",
        instance_id="i-1",
        kind=kind,
        cycle="Executing",
        not_before=NOON,
        published_at=None,
    )

    said = announcement_of(event, "cn-hangzhou.i-1", NOON)

    assert (said.kind, said.deadline) == (expected, NOON)


def test_an_event_without_a_date_is_due_once_it_is_executing():
    asked = SystemEvent(
        id="e-1",
        instance_id="i-1",
        kind=EVENT_TYPES[0],
        cycle="Inquiring",
        not_before=None,
        published_at=None,
    )

    assert not is_due(asked, NOON)
    assert is_due(replace(asked, cycle="Executing"), NOON)
    assert is_due(replace(asked, not_before=NOON + timedelta(minutes=15)), NOON)
    assert not is_due(replace(asked, not_before=NOON + timedelta(minutes=16)), NOON)


# -- instances that stop, and all of it ------------------------------------------------------------


def test_a_foreign_stop_is_announced_and_our_termination_is_not(world):
    """Case 85."""
    world.cloud.behaviour.terminating_seconds = 60
    stopped, ended = world.launch("web-one", "web-two")
    world.cloud.stop_instance(stopped)
    world.instances.terminate([ended])

    assert kinds(world.poll()) == [(InterruptionKind.INSTANCE_STOPPED, stopped)]


def test_a_second_stop_after_a_restart_is_announced(world):
    (one,) = world.launch("web-one")
    world.cloud.stop_instance(one)
    world.acknowledge(*world.poll())
    world.cloud.instance(one).stops_at = None
    assert world.poll() == ()

    world.cloud.stop_instance(one)

    assert kinds(world.poll()) == [(InterruptionKind.INSTANCE_STOPPED, one)]


def test_a_failed_poll_keeps_the_last_findings(world):
    (taken,) = world.launch("web-one", **SPOT)
    world.cloud.reclaim(taken)
    said = world.poll()

    with world.cloud.cut_off(), pytest.raises(CloudProviderError):
        world.interruption_sources.spot.run()

    assert world.interruption_sources.poll() == said


def test_a_disabled_poll_makes_no_call_and_no_announcement(world):
    world.restart(interruption=False)
    (taken,) = world.launch("web-one", **SPOT)
    world.cloud.stop_instance(taken)

    assert world.interruption_sources.tasks() == ()
    assert world.poll() == ()
    assert world.interruption_sources.read(expired(world, taken)) == ()


def test_spot_instances_are_polled_at_the_configured_interval(world):
    """Case 94: with the core's five seconds that is 25 at most."""
    assert {t.name: t.period.total_seconds() for t in world.interruption_sources.tasks()} == {
        "spot-reclaims": 20,
        "system-events": 60,
    }


def test_the_earliest_end_of_an_instance_is_announced():
    """One queue for all sources (case 96)."""

    def said(source, minutes):
        deadline = None if minutes is None else NOON + timedelta(minutes=minutes)
        kind = InterruptionKind.SCHEDULED_MAINTENANCE
        return {"i-1": Interruption(id=f"{source}/i-1", kind=kind, deadline=deadline)}

    queue = PendingAnnouncements()
    queue.replace("a", said("a", None))
    queue.replace("b", said("b", 10))
    queue.replace("c", said("c", 15))

    assert [each.id for each in queue.waiting()] == ["b/i-1"]
    queue.acknowledge(["b/i-1"])
    assert queue.waiting() == ()
    queue.replace("c", {})
    queue.replace("d", said("d", 5))
    assert [each.id for each in queue.waiting()] == ["d/i-1"]
    queue.acknowledge(["d/i-1"])
    for source in "abd":
        queue.replace(source, {})
    queue.replace("a", said("a", None))
    assert [each.id for each in queue.waiting()] == ["a/i-1"]


def test_events_of_recently_listed_instances_need_no_lookup(world):
    (ours,) = world.launch("web-one")
    world.cloud.schedule_event(ours, cycle=EventCycle.Executing)
    world.instances.list()
    world.cloud.calls.clear()

    world.interruption_sources.events.run()

    assert len(world.interruption_sources.poll()) == 1
    assert world.cloud.calls.count("DescribeInstances") == 0
