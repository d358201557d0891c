"""Notes that are printed with a plan."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.cli.plan_notes import plan_notes
from karpenter_core.lifecycle.nodepool.launches_held_back import with_launches_held_back
from karpenter_core.state.launch_pauses import LaunchPause
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import synced_state


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
