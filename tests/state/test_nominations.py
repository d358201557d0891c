"""Nominations are valid while the node stays and the scheduler has time."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.state.events import (
    DeletionMarked,
    ObjectObserved,
    ObjectRemoved,
    PodsDecided,
    TimePassed,
)
from karpenter_core.state.placements import is_nomination_valid, nomination_window
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import node_and_claim, synced_state

NOMINATED = msgspec.structs.replace(pod("web"), nominated_node_name="web-1")


def test_a_nomination_of_the_scheduler_is_valid_while_the_node_exists():
    builder = synced_state(*node_and_claim("web-1"), NOMINATED)
    assert is_nomination_valid(builder.snapshot(), NOMINATED, now=EPOCH)


@pytest.mark.parametrize(("minutes", "is_valid"), [(10, True), (11, False)])
@pytest.mark.parametrize("planned_elsewhere", [False, True])
def test_a_nomination_that_the_scheduler_does_not_act_on_is_void(
    planned_elsewhere, minutes, is_valid
):
    """It leaves those of pods that preempt none, and may be down: the pod would wait for ever."""
    builder = synced_state(*node_and_claim("web-1"), *node_and_claim("web-2"), NOMINATED)
    if planned_elsewhere:
        builder.apply_event(PodsDecided(placed={NOMINATED.uid: "web-2"}, at=EPOCH))
    now = EPOCH + timedelta(minutes=minutes)
    assert is_nomination_valid(builder.snapshot(), NOMINATED, now=now) is is_valid


def test_a_nomination_is_valid_while_pods_leave_its_node_and_for_a_while_after_that():
    leaving = pod("old", node_name="web-1", phase="Running")
    leaving = msgspec.structs.replace(leaving, deletion_timestamp=EPOCH)
    builder = synced_state(*node_and_claim("web-1"), NOMINATED, leaving)
    hour = EPOCH + timedelta(hours=1)
    assert is_nomination_valid(builder.snapshot(), NOMINATED, now=hour)
    builder.apply_event(TimePassed(hour))
    builder.apply_event(ObjectRemoved(leaving))
    for minutes, is_valid in ((10, True), (11, False)):
        now = hour + timedelta(minutes=minutes)
        assert is_nomination_valid(builder.snapshot(), NOMINATED, now=now) is is_valid


def test_a_nomination_lasts_from_the_first_change_that_shows_it():
    """Other changes of the pod do not renew it; a nomination that was taken back and is made again does."""
    builder = synced_state(*node_and_claim("web-1"), NOMINATED)

    def is_valid_after(minutes):
        now = EPOCH + timedelta(minutes=minutes)
        return is_nomination_valid(builder.snapshot(), NOMINATED, now=now)

    def observe(minutes, **changes):
        builder.apply_event(TimePassed(EPOCH + timedelta(minutes=minutes)))
        builder.apply_event(
            ObjectObserved(
                msgspec.structs.replace(NOMINATED, resource_version=minutes + 1, **changes)
            )
        )

    observe(6, tried=True)
    assert not is_valid_after(11)
    observe(12, nominated_node_name="")
    observe(13)
    assert is_valid_after(23)
    assert not is_valid_after(24)


def test_a_nomination_ends_with_the_decision_to_delete_its_node():
    builder = synced_state(*node_and_claim("web-1"), NOMINATED)
    builder.apply_event(DeletionMarked(names=("web-1",), cause="empty/1"))
    assert not is_nomination_valid(builder.snapshot(), NOMINATED, now=EPOCH)


def test_a_nomination_of_a_node_that_is_gone_is_void():
    builder = synced_state(NOMINATED)
    assert not is_nomination_valid(builder.snapshot(), NOMINATED, now=EPOCH)


@pytest.mark.parametrize(("batch_maximum", "window"), [(1, 10), (5, 10), (6, 12), (30, 60)])
def test_the_window_is_two_batches_and_at_least_ten_seconds(batch_maximum, window):
    result = nomination_window(timedelta(seconds=batch_maximum))
    assert result == timedelta(seconds=window)


@pytest.mark.parametrize(
    ("seconds", "terminating", "is_valid"),
    [(0, False, True), (19, False, True), (20, False, False), (20, True, True)],
)
def test_a_nomination_for_a_node_launched_for_the_pod_lasts_a_window(
    seconds, terminating, is_valid
):
    """The scheduler had its time; while pods end there it still waits for their room."""
    on_node = [pod("old", node_name="web-1", phase="Running")]
    if terminating:
        on_node = [msgspec.structs.replace(on_node[0], deletion_timestamp=EPOCH)]
    builder = synced_state(*node_and_claim("web-1"), NOMINATED, *on_node)
    builder.apply_event(PodsDecided(placed={NOMINATED.uid: "web-1"}, at=EPOCH))
    now = EPOCH + timedelta(seconds=seconds)
    assert is_nomination_valid(builder.snapshot(), NOMINATED, now=now) is is_valid
