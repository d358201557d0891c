"""Foreseeing that the scheduler will refuse pods as it has refused their equals."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.records import VolumeView
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state import provisioning_input
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, PodsDecided
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.state.untried_pods import MANY_UNTRIED, list_foreseen_pods
from karpenter_core.testing.builders import EPOCH, node_pool, pod, pod_shape
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state

POOL = ready_node_pool(node_pool("default"))
SHAPE = pod_shape(cpu="1")


def refused(name, shape=SHAPE):
    return pod(name, shape=shape)


def untried(name, shape=SHAPE, **changes):
    return msgspec.structs.replace(pod(name, shape=shape, unschedulable=False), **changes)


def foreseen(*objects):
    found = list_foreseen_pods(synced_state(POOL, *objects).snapshot())
    return sorted(each.name for each in found.values())


def planned(builder):
    found = build_provisioning_input(builder.snapshot(), now=EPOCH)
    return sorted(each.name for each in found.problem.pods)


def test_only_equals_of_a_refused_pod_are_foreseen():
    others = untried("other", pod_shape(cpu="2"))
    assert foreseen(refused("a"), untried("b"), untried("c"), others) == ["b", "c"]
    assert foreseen(untried("b"), untried("c")) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"tried": True},
        {"node_name": "web"},
        {"deletion_timestamp": EPOCH},
        {"phase": "Failed"},
        {"nominated_node_name": "web"},
    ],
)
def test_pods_that_await_no_scheduler_are_not_foreseen(changes):
    assert foreseen(refused("a"), untried("b", **changes)) == []


@pytest.mark.parametrize(
    "shape",
    [
        pod_shape(owner_kind="DaemonSet"),
        msgspec.structs.replace(SHAPE, scheduling_gates=("wait",)),
        msgspec.structs.replace(SHAPE, volumes=(VolumeView(name="v", ephemeral=True),)),
        msgspec.structs.replace(SHAPE, resource_claims=("gpu",)),
    ],
)
def test_shapes_whose_pods_may_differ_or_do_not_wait_are_not_foreseen(shape):
    assert foreseen(refused("a", shape), untried("b", shape)) == []


def test_a_pass_plans_for_foreseen_pods_together_with_the_refused_ones():
    builder = synced_state(POOL, refused("a"), untried("b"), untried("c", pod_shape(cpu="2")))
    assert planned(builder) == ["a", "b"]


def test_a_placed_pod_keeps_its_place_when_its_equal_has_found_a_node():
    """Else the next pass would give the room on the starting node to another pod."""
    waiting = untried("b")
    claim, node = node_and_claim("web")
    builder = synced_state(POOL, claim, node, refused("a"), waiting)
    builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
    builder.apply_event(ObjectRemoved(refused("a")))
    found = build_provisioning_input(builder.snapshot(), now=EPOCH)
    assert [each.name for each in found.placed_pods["web"]] == ["b"]
    assert not found.problem.pods


@pytest.mark.parametrize("nominated", ["", "web"])
@pytest.mark.parametrize(("minutes", "is_kept"), [(1, True), (10, True), (11, False)])
def test_a_placed_pod_keeps_its_place_while_the_scheduler_has_not_tried_it(
    minutes, is_kept, nominated
):
    """A scheduler that is thousands of pods behind needs longer than a window to come to it."""
    waiting = untried("b", nominated_node_name=nominated)
    claim, node = node_and_claim("web")
    builder = synced_state(POOL, claim, node, refused("a"), waiting)
    builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
    now = EPOCH + timedelta(minutes=minutes)
    found = build_provisioning_input(builder.snapshot(), now=now)
    kept = [each.name for pods in found.placed_pods.values() for each in pods]
    assert (kept == ["b"]) is is_kept
    assert ("b" in {each.name for each in found.problem.pods}) is not is_kept


def test_the_window_counts_from_the_launch_once_the_scheduler_has_tried_the_pod():
    """It has looked at the node, or at others, and has bound the pod to none."""
    waiting = untried("b")
    builder = synced_state(POOL, *node_and_claim("web"), refused("a"), waiting)
    builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
    builder.apply_event(ObjectObserved(refused("b")))
    found = build_provisioning_input(builder.snapshot(), now=EPOCH + timedelta(minutes=1))
    assert sorted(each.name for each in found.problem.pods) == ["a", "b"]


def test_a_nominated_pod_keeps_its_room_before_the_scheduler_has_tried_it():
    """It is on its node for passes and for disruption, as a refused pod with a nomination is."""
    claim, node = node_and_claim("web")
    waiting = untried("b", nominated_node_name=node.name)
    builder = synced_state(POOL, claim, node, waiting)
    found = build_provisioning_input(builder.snapshot(), now=EPOCH)
    assert [each.name for each in found.placed_pods["web"]] == ["b"]
    assert not found.problem.pods


def test_room_on_existing_nodes_comes_before_new_nodes():
    claim, node = node_and_claim("web")
    builder = synced_state(POOL, claim, node, refused("a"), untried("b"))
    problem = build_provisioning_input(builder.snapshot(), now=EPOCH).problem
    plan = solve(problem, SolveOptions())
    assert not plan.claims
    assert [each.name for each in plan.existing["web"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, MANY_UNTRIED),
        ({"priority": -1}, MANY_UNTRIED),
        ({"priority": 1}, 0),  # it may preempt others
        ({"scheduler_name": "other"}, 0),  # nothing is known of that one
    ],
)
def test_all_untried_pods_are_foreseen_while_their_scheduler_is_behind(changes, count):
    shape = msgspec.structs.replace(pod_shape(cpu="2"), **changes)
    waiting = [untried(f"b-{number}", shape) for number in range(MANY_UNTRIED)]
    assert len(foreseen(refused("a"), *waiting)) == count
    assert foreseen(refused("a"), *waiting[1:]) == []
    assert foreseen(*waiting) == []


@pytest.mark.parametrize(("priority", "is_foreseen"), [(5, True), (6, False)])
def test_the_highest_priority_that_was_refused_decides_about_untried_pods(priority, is_foreseen):
    """Whichever pod was refused first: a pod of a higher one may preempt others."""
    low, high, asked = (
        msgspec.structs.replace(pod_shape(cpu="2"), priority=each) for each in (-1, 5, priority)
    )
    waiting = [untried(f"b-{number}", asked) for number in range(MANY_UNTRIED)]
    for shapes in ((low, high), (high, low)):
        found = foreseen(*map(refused, "ab", shapes), *waiting)
        assert bool(found) is is_foreseen


STATES = st.sampled_from(["refused", "untried", "bound", "gone"])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), STATES), max_size=30))
def test_refused_shapes_are_those_of_the_pending_pods(history):
    """Whatever happens to pods in whatever order, the index counts what a full look would."""
    shapes = (SHAPE, pod_shape(cpu="2"))
    builder = synced_state(POOL)
    for number, which, state in history:
        changed = refused(f"p-{number}", shapes[which])
        if state == "untried":
            changed = untried(f"p-{number}", shapes[which])
        elif state == "bound":
            changed = msgspec.structs.replace(changed, node_name="web")
        event = ObjectRemoved(changed) if state == "gone" else ObjectObserved(changed)
        builder.apply_event(event)
    snapshot = builder.snapshot()
    counted = {}
    for each in snapshot.pending_pods.values():
        counted[each.shape] = counted.get(each.shape, 0) + 1
    assert dict(snapshot.refused_shapes) == counted
    assert set(snapshot.untried_pods) == {
        uid for uid, each in snapshot.pods.items() if each.is_untried
    }


@pytest.mark.parametrize(
    ("refused_pods", "untried_pods", "expected"), [(4, 0, False), (3, 1, False), (3, 2, True)]
)
def test_a_problem_says_when_too_many_pods_wait_to_be_nominated(
    monkeypatch, refused_pods, untried_pods, expected
):
    """Those that have a planned node already wait as well."""
    monkeypatch.setattr(provisioning_input, "MOST_NOMINATED_PODS", 4)
    builder = synced_state(
        POOL,
        *node_and_claim("web"),
        *(refused(f"refused-{n}") for n in range(refused_pods)),
        *(untried(f"untried-{n}") for n in range(untried_pods)),
    )
    placed = {refused("refused-0").uid: "web"}
    builder.apply_event(PodsDecided(placed=placed, at=EPOCH))
    found = build_provisioning_input(builder.snapshot(), now=EPOCH)
    assert found.problem.is_unnominated is expected
