"""Nominations are valid while the node stays and the scheduler has time."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.nodeclaim import INITIALIZED, REGISTERED
from karpenter_core.state import provisioning_input
from karpenter_core.state.events import (
    DeletionMarked,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    PodsDecided,
    TimePassed,
)
from karpenter_core.state.placements import (
    is_nomination_valid,
    is_placement_refused,
    nomination_window,
)
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import node, node_and_claim, node_claim, synced_state
from tests.scheduling.handmade_plans import pod as zonal_pod
from tests.scheduling.handmade_plans import spread as zonal_spread

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


def refused(waiting, version: int):
    """Return a pod as the scheduler writes it when the reasons of its refusal have changed."""
    return msgspec.structs.replace(waiting, resource_version=version)


def placed_on(node: str, *objects, waiting=None):
    """Return a state in which a pod was placed on a node after it was seen."""
    waiting = waiting or pod("web")
    builder = synced_state(*objects, waiting)
    builder.apply_event(PodsDecided(placed={waiting.uid: node}, at=EPOCH))
    return builder, waiting


def is_refused(builder, waiting) -> bool:
    snapshot = builder.snapshot()
    return is_placement_refused(snapshot, snapshot.pods[waiting.uid])


def test_a_placement_is_refused_when_the_scheduler_refuses_the_pod_while_the_node_is_open():
    builder, waiting = placed_on("web-1", *node_and_claim("web-1"))
    assert not is_refused(builder, waiting)
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    assert is_refused(builder, waiting)


def test_a_placement_on_a_node_that_is_gone_is_not_refused():
    """It has no place any more."""
    view, claim = node_and_claim("web-1")
    builder, waiting = placed_on("web-1", view, claim)
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    for gone in (view, claim):
        builder.apply_event(ObjectRemoved(gone))
    assert not is_refused(builder, waiting)


def test_a_refusal_before_the_node_is_initialised_says_nothing_of_it():
    builder, waiting = placed_on("web-1", *node_and_claim("web-1", stage=REGISTERED))
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    assert not is_refused(builder, waiting)


def test_our_own_write_to_a_waiting_pod_is_no_refusal():
    builder, waiting = placed_on("web-1", *node_and_claim("web-1"))
    builder.apply_event(ObjectWritten(refused(waiting, 50)))
    assert not is_refused(builder, waiting)


def test_a_write_that_nominates_a_node_is_no_refusal():
    builder, waiting = placed_on("web-1", *node_and_claim("web-1"))
    nominated = msgspec.structs.replace(waiting, nominated_node_name="web-1", resource_version=50)
    builder.apply_event(ObjectObserved(nominated))
    assert not is_refused(builder, waiting)
    builder.apply_event(ObjectObserved(refused(nominated, 51)))
    assert is_refused(builder, waiting)


@pytest.mark.parametrize(("stage", "is_open"), [(REGISTERED, False), (INITIALIZED, True)])
def test_a_refusal_that_takes_the_nomination_back_counts_while_the_node_is_open(stage, is_open):
    """The scheduler often writes both at once, and does not try the pod again before something changes."""
    nominated = msgspec.structs.replace(pod("web"), nominated_node_name="web-1")
    builder, waiting = placed_on("web-1", *node_and_claim("web-1", stage=stage), waiting=nominated)
    withdrawn = msgspec.structs.replace(waiting, nominated_node_name="", resource_version=50)
    builder.apply_event(ObjectObserved(withdrawn))
    assert is_refused(builder, waiting) is is_open


def test_a_nomination_of_the_scheduler_for_another_node_stands_when_the_placement_is_refused():
    """It preempts pods there, for which it may write more reasons meanwhile."""
    nodes = (*node_and_claim("web-1"), *node_and_claim("web-2"))
    elsewhere = msgspec.structs.replace(pod("web"), nominated_node_name="web-2")
    builder, waiting = placed_on("web-1", *nodes, waiting=elsewhere)
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    assert not is_refused(builder, waiting)


def test_a_placement_is_not_refused_while_a_pod_leaves_its_node():
    leaving = msgspec.structs.replace(
        pod("old", node_name="web-1", phase="Running"), deletion_timestamp=EPOCH
    )
    builder, waiting = placed_on("web-1", *node_and_claim("web-1"), leaving)
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    assert not is_refused(builder, waiting)
    builder.apply_event(ObjectRemoved(leaving))
    assert is_refused(builder, waiting)


def test_a_pod_that_is_placed_on_the_same_node_again_is_not_refused_again():
    """The window counts then: passes would follow each write of the scheduler, for nothing."""
    builder, waiting = placed_on("web-1", *node_and_claim("web-1"), *node_and_claim("web-2"))
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    for version in (51, 52):
        builder.apply_event(PodsDecided(placed={waiting.uid: "web-1"}, at=EPOCH))
        builder.apply_event(ObjectObserved(refused(waiting, version)))
        assert not is_refused(builder, waiting)
    builder.apply_event(PodsDecided(placed={waiting.uid: "web-2"}, at=EPOCH))
    builder.apply_event(ObjectObserved(refused(waiting, 53)))
    assert is_refused(builder, waiting)


@pytest.mark.parametrize("nominated", ["", "web-1"])
def test_a_refused_pod_is_planned_again_at_once(nominated):
    waiting = msgspec.structs.replace(pod("web"), nominated_node_name=nominated)
    builder, _ = placed_on("web-1", *node_and_claim("web-1"), waiting=waiting)
    assert planned(builder) == ()
    builder.apply_event(ObjectObserved(refused(waiting, 50)))
    assert planned(builder) == (waiting.uid,)


def planned(builder) -> tuple[str, ...]:
    """Return the pods that a pass would plan."""
    problem = build_provisioning_input(builder.snapshot(), now=EPOCH).problem
    return tuple(each.uid for each in problem.pods)


def in_zone(name: str, zone: str, *pods, terminating=()):
    """Return a ready node, its claim, and pods that are bound to it."""
    bound = [msgspec.structs.replace(each, node_name=name, phase="Running") for each in pods]
    leaving = [
        msgspec.structs.replace(each, node_name=name, phase="Running", deletion_timestamp=EPOCH)
        for each in terminating
    ]
    claim = node_claim(name, stage=INITIALIZED, zone=zone)
    return (claim, node(name, claim=claim), *bound, *leaving)


def zonal_pods(count: int):
    return [zonal_pod(f"web-{number}", topology_spread=zonal_spread()) for number in range(count)]


def input_after(*objects, placed, nominated=False):
    """Return the input of a pass, with pods on their places."""
    if nominated:
        placed = {
            node: [msgspec.structs.replace(each, nominated_node_name=node) for each in pods]
            for node, pods in placed.items()
        }
    builder = synced_state(*objects, *(each for pods in placed.values() for each in pods))
    builder.apply_event(
        PodsDecided(
            placed={each.uid: node for node, pods in placed.items() for each in pods}, at=EPOCH
        )
    )
    return build_provisioning_input(builder.snapshot(), now=EPOCH)


def planned_after(*objects, placed, **options):
    """Return the names of the pods that a pass would plan, with pods on their places."""
    found = input_after(*objects, placed=placed, **options)
    return sorted(each.name for each in found.problem.pods)


@pytest.mark.parametrize("nominated", [False, True])
def test_a_pod_that_its_spread_keeps_from_its_place_is_planned_again_at_once(nominated):
    """The scheduler bound another pod in that zone than planned, and says nothing new of this one."""
    first, second, third, fourth = zonal_pods(4)
    plain = zonal_pod("plain", "db")
    placed = {"a": [third, plain], "b": [fourth]}
    as_planned = (*in_zone("a", "zone-a", first), *in_zone("b", "zone-b", second))
    assert planned_after(*as_planned, placed=placed, nominated=nominated) == []
    otherwise = (*in_zone("a", "zone-a"), *in_zone("b", "zone-b", first, second))
    assert planned_after(*otherwise, placed=placed, nominated=nominated) == [fourth.name]
    kept = input_after(*otherwise, placed=placed, nominated=nominated).placed_pods
    assert {node: sorted(each.name for each in pods) for node, pods in kept.items()} == {
        "a": [plain.name, third.name]
    }


def test_pods_that_wait_for_a_place_may_make_up_for_one_in_the_same_zone():
    pods = zonal_pods(4)
    nodes = (*in_zone("a", "zone-a"), *in_zone("b", "zone-b", *pods[:2]))
    assert planned_after(*nodes, placed={"b": pods[2:3]}) == ["web-2"]
    waiting = zonal_pods(5)[3:]
    assert planned_after(*nodes, *waiting, placed={"b": pods[2:3]}) == ["web-3", "web-4"]


def test_a_pod_that_waits_for_others_to_leave_its_node_keeps_its_place():
    """Those that leave may be those that it avoids."""
    pods = zonal_pods(4)
    leaving = [zonal_pod("leaving", "db")]
    nodes = (*in_zone("a", "zone-a"), *in_zone("b", "zone-b", *pods[:2], terminating=leaving))
    assert planned_after(*nodes, placed={"b": pods[2:3]}) == []


def test_places_stand_while_they_cannot_be_judged(monkeypatch):
    pods = zonal_pods(3)
    nodes = (*in_zone("a", "zone-a"), *in_zone("b", "zone-b", *pods[:2]))
    assert planned_after(*nodes, placed={"b": pods[2:]}) == ["web-2"]
    monkeypatch.setattr(provisioning_input, "pods_without_domain", lambda *_: 1 / 0)
    assert planned_after(*nodes, placed={"b": pods[2:]}) == []
