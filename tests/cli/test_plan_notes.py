"""Notes that are printed with a plan."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.cli.plan_notes import plan_notes, prediction_notes
from karpenter_core.lifecycle.nodepool.launches_held_back import with_launches_held_back
from karpenter_core.state.launch_pauses import LaunchPause
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state
from tests.state.test_request_predictions import autoscaler, pod


def test_a_pool_that_is_held_back_is_named():
    """A plan knows only objects; the controller would launch nothing."""
    pause = LaunchPause(2, EPOCH + timedelta(minutes=1), timedelta(minutes=1))
    held = with_launches_held_back(node_pool("web"), pause, now=EPOCH)

    (remark,) = plan_notes(synced_state(held, node_pool("data")).snapshot())

    assert remark.startswith('nodepool "web" is held back: ')
    assert "2026-01-01T00:01:00Z" in remark


def test_a_pool_that_works_again_is_not():
    """The condition goes with the pause."""
    pause = LaunchPause(2, EPOCH + timedelta(minutes=1), timedelta(minutes=1))
    held = with_launches_held_back(node_pool("web"), pause, now=EPOCH)

    works = with_launches_held_back(held, None, now=EPOCH)

    assert plan_notes(synced_state(works).snapshot()) == ()
    assert with_launches_held_back(works, LaunchPause(1, EPOCH), now=EPOCH) is works


def test_pods_that_ask_for_more_when_they_move_are_counted():
    """A pod without a node asks for what it was created with, and is none of them."""
    objects = (
        ready_node_pool(node_pool("default")),
        *node_and_claim("node-1"),
        pod("web-5d-a", node="node-1", cpu="1"),
        pod("web-5d-b", node="node-1", cpu="1"),
        pod("web-5d-c", cpu="1"),
    )

    assert prediction_notes(synced_state(*objects).snapshot(), EPOCH) == ()
    assert prediction_notes(synced_state(*objects, autoscaler()).snapshot(), EPOCH) == (
        "2 pods on nodes: VerticalPodAutoscalers change the requests when they move, by cpu 4",
    )
