"""Events of virtual machines, read from conditions of Nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.records import NodeConditionView, NodeView
from karpenter_core.provider.contract import InterruptionKind
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_azure.interruption.node_conditions import read_event
from karpenter_provider_azure.interruption.sources import InterruptionSources

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROVIDER_ID = (
    "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
    "/virtualMachines/aks-web-1"
)
SIZE = "Standard_D4s_v5"


class Clock:
    def __init__(self):
        self.time = NOW

    def now(self):
        return self.time

    def monotonic(self):
        return self.time.timestamp()


class Stage:
    def __init__(self):
        self.clock = Clock()
        self.offerings = UnavailableOfferings()
        self.sources = InterruptionSources(self.clock, self.offerings)

    def is_marked(self):
        mark = UnavailableOffering(SIZE, "westus2-1", SPOT)
        return self.offerings.view(now=self.clock.now()).is_unavailable(mark)


@pytest.fixture
def stage():
    return Stage()


def text_of(kind, at):
    return (
        f"{kind} Scheduled: {format_datetime(at, usegmt=True)}. DurationInSeconds: -1. "
        "For more information, see https://aka.ms/aks/scheduledevents. EventId: 5FA9-1"
    )


def condition(message, *, kind="PreemptionScheduled", status="True", since=NOW):
    return NodeConditionView(type=kind, status=status, message=message, last_transition_time=since)


def node(*conditions, capacity_type=SPOT, provider_id=PROVIDER_ID):
    labels = {CAPACITY_TYPE: capacity_type, INSTANCE_TYPE: SIZE, ZONE: "westus2-1"}
    return NodeView(
        uid="u", name="n", labels=labels, provider_id=provider_id, conditions=conditions
    )


def test_an_eviction_ends_the_node_by_its_time(stage):
    """# case 129"""
    at = NOW + timedelta(seconds=30)
    (found,) = stage.sources.read(node(condition(text_of("Preempt", at))))
    assert found.kind is InterruptionKind.SPOT_RECLAIM
    assert (found.deadline, found.announced_at) == (at, NOW)
    assert found.provider_id == PROVIDER_ID
    assert "EventId: 5FA9-1" in found.detail


def test_an_evicted_offering_is_unavailable_for_three_minutes(stage):
    """# case 129"""
    evicted = node(condition(text_of("Preempt", NOW + timedelta(seconds=30))))
    stage.sources.read(evicted)
    assert stage.is_marked()
    stage.clock.time += timedelta(minutes=2, seconds=59)
    stage.sources.read(evicted)  # it does not count anew
    assert stage.is_marked()
    stage.clock.time += timedelta(seconds=1)
    assert not stage.is_marked()


def test_both_conditions_of_one_eviction_are_one_announcement(stage):
    message = text_of("Preempt", NOW + timedelta(seconds=30))
    both = node(condition(message), condition(message, kind="VMEventScheduled"))
    (found,) = stage.sources.read(both)
    (other,) = stage.sources.read(node(condition(message, kind="VMEventScheduled")))
    assert found.id == other.id


@pytest.mark.parametrize("message", ["", "Preempt Started.", "Preempt Scheduled: soon"])
def test_an_eviction_without_a_time_ends_thirty_seconds_after_its_announcement(stage, message):
    (found,) = stage.sources.read(node(condition(message)))
    assert found.deadline == NOW + timedelta(seconds=30)
    (found,) = stage.sources.read(node(condition(message, since=None)))
    assert found.deadline is None


@pytest.mark.parametrize(
    "quiet",
    [
        node(),
        node(condition("", status="False")),
        node(condition("", status="Unknown")),
        node(condition("", kind="VMEventScheduled")),
        node(condition("Kernel has no deadlock", kind="KernelDeadlock")),
        node(condition(text_of("Redeploy", NOW), kind="KernelDeadlock")),
        node(condition(text_of("Preempt", NOW)), capacity_type=ON_DEMAND),
        node(condition(text_of("Preempt", NOW)), provider_id=""),
        node(condition(text_of("Freeze", NOW), kind="VMEventScheduled")),
        node(condition(text_of("Reboot", NOW), kind="VMEventScheduled")),
    ],
)
def test_other_conditions_announce_nothing(stage, quiet):
    assert not stage.sources.read(quiet)
    assert not stage.is_marked()


@pytest.mark.parametrize("kind", ["Redeploy", "Terminate", "redeploy"])
def test_an_event_that_ends_an_on_demand_node_is_announced(stage, kind):
    at = NOW + timedelta(minutes=10)
    announced = node(condition(text_of(kind, at), kind="VMEventScheduled"), capacity_type=ON_DEMAND)
    (found,) = stage.sources.read(announced)
    assert found.kind is InterruptionKind.SCHEDULED_MAINTENANCE
    assert found.deadline == at
    assert not stage.sources.is_event_ahead(announced)
    assert not stage.is_marked()


def test_an_event_of_next_week_is_drift_until_it_is_due(stage):
    at = NOW + timedelta(days=7)
    announced = node(condition(text_of("Redeploy", at), kind="VMEventScheduled"))
    assert not stage.sources.read(announced)
    assert stage.sources.is_event_ahead(announced)
    stage.clock.time = at - timedelta(minutes=15)
    assert stage.sources.read(announced)
    assert not stage.sources.is_event_ahead(announced)


def test_a_preemption_precedes_a_later_event(stage):
    eviction = condition(text_of("Preempt", NOW + timedelta(seconds=30)))
    later = condition(text_of("Redeploy", NOW + timedelta(days=1)), kind="VMEventScheduled")
    for conditions in ((eviction, later), (later, eviction)):
        (found,) = stage.sources.read(node(*conditions))
        assert found.kind is InterruptionKind.SPOT_RECLAIM


def test_an_event_that_ends_the_node_before_its_eviction_counts(stage):
    eviction = condition(text_of("Preempt", NOW + timedelta(seconds=30)))
    earlier = condition(text_of("Redeploy", NOW + timedelta(seconds=10)), kind="VMEventScheduled")
    (found,) = stage.sources.read(node(eviction, earlier))
    assert found.deadline == NOW + timedelta(seconds=10)


def test_an_eviction_without_any_time_precedes_an_event_without_one():
    eviction = condition("Preempt Scheduled: soon", since=None)
    event = condition("Redeploy Scheduled: soon", kind="VMEventScheduled")
    for conditions in ((eviction, event), (event, eviction)):
        assert read_event(node(*conditions)).kind == "Preempt"


def test_an_event_without_a_time_comes_after_an_eviction_with_one():
    eviction = condition(text_of("Preempt", NOW + timedelta(days=1)))
    event = condition("Redeploy Scheduled: soon", kind="VMEventScheduled")
    assert read_event(node(event, eviction)).kind == "Preempt"
    assert read_event(node(event)).not_before is None  # the notice of evictions is not its own


def test_a_dated_event_precedes_an_eviction_without_any_time():
    at = NOW + timedelta(minutes=10)
    eviction = condition("Preempt Scheduled: soon", since=None)
    event = condition(text_of("Redeploy", at), kind="VMEventScheduled")
    assert read_event(node(eviction, event)).not_before == at


def test_a_time_in_a_zone_without_a_known_offset_is_utc():
    text = text_of("Preempt", NOW).replace("GMT", "XYZ")
    assert read_event(node(condition(text))).not_before == NOW


@given(st.text(max_size=80), st.sampled_from(["PreemptionScheduled", "VMEventScheduled"]))
def test_no_message_breaks_the_reader(message, kind):
    read_event(node(condition(message, kind=kind)))
    read_event(node(condition(f"Preempt Scheduled: {message}", kind=kind)))


@given(st.integers(0, 10**9).map(lambda seconds: NOW + timedelta(seconds=seconds)))
def test_every_time_is_read_as_it_is_written(at):
    event = read_event(node(condition(text_of("Preempt", at))))
    assert event.not_before == at
