"""Expendable pods: no node is launched, kept or replaced for them."""

from __future__ import annotations

import pytest
from msgspec import structs

from karpenter_core.api.labels import EXPENDABLE
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import DeletionMarked
from karpenter_core.state.expendable_pods import NO_CUTOFF, expendable_reason
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state

POOL = ready_node_pool(node_pool())


def asked(*objects, cutoff=0, marked=()):
    state = synced_state(POOL, *objects)
    if marked:
        state.apply_event(DeletionMarked(names=marked, cause="test"))
    settings = ProblemSettings(priority_cutoff=cutoff)
    return state.snapshot(), settings


def test_pods_below_the_cutoff_buy_no_node():
    """Others do; the reason names priority, limit and setting."""
    snapshot, settings = asked(pod("low", priority=-1), pod("high", priority=0))
    made = build_provisioning_input(snapshot, now=EPOCH, problem_settings=settings)

    assert [each.name for each in made.problem.pods] == ["high"]
    (ignored,) = made.ignored
    assert (ignored.pod.name, ignored.expendable, ignored.silent) == ("low", True, False)
    assert "its priority -1 is below 0 (--priority-cutoff)" in ignored.reason
    assert len(solve(made.problem).claims) == 1


def test_no_pod_is_expendable_by_default():
    """The lowest priority there is is not below the default."""
    snapshot, _ = asked(pod("low", priority=NO_CUTOFF))
    made = build_provisioning_input(snapshot, now=EPOCH)

    assert [each.name for each in made.problem.pods] == ["low"]


@pytest.mark.parametrize(("value", "expendable"), [("true", True), ("false", False), ("", False)])
def test_an_annotation_makes_a_pod_expendable(value, expendable):
    """Whatever its priority, and without a setting."""
    shape = structs.replace(pod("batch", priority=1000).shape, annotations={EXPENDABLE: value})

    assert bool(expendable_reason(shape, NO_CUTOFF)) is expendable


def test_expendable_pods_of_a_node_that_is_removed_get_no_other_place():
    """Those of higher priority do."""
    pods = [
        pod("low", priority=-1, node_name="old", phase="Running"),
        pod("high", priority=0, node_name="old", phase="Running"),
    ]
    snapshot, settings = asked(*node_and_claim("old"), *pods, marked=("old",))
    made = build_provisioning_input(snapshot, now=EPOCH, problem_settings=settings)

    assert [each.name for each in made.problem.pods] == ["high"]


def test_disruption_ignores_expendable_pods():
    """They need no other place."""
    pods = [
        pod("low", priority=-1, node_name="old", phase="Running"),
        pod("high", priority=0, node_name="old", phase="Running"),
    ]
    snapshot, settings = asked(*node_and_claim("old"), *pods)
    _, movable = build_disruption_problem(snapshot, now=EPOCH, problem_settings=settings)
    (high,) = (each for each in pods if each.name == "high")

    assert movable["old"] == {high.uid}
