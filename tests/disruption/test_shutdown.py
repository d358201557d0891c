"""Shutdown hours: nodes of the NodePool are removed within budgets and protections."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodepool import Budget
from karpenter_core.disruption.acceptance import DeclineReason
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.fingerprint import consolidation_fingerprint
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.disruption.plan import METHODS, methods_of
from karpenter_core.disruption.shutdown import ShutdownMethod
from karpenter_core.state.disruption_pause import pause_reason
from karpenter_core.state.events import TimePassed
from karpenter_core.state.pool_schedules import shuts_down_pools
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import disruption_budget
from tests.disruption.small_clusters import (
    NOW,
    box,
    cluster,
    found,
    gone,
    messages,
    pass_over,
    pool,
    runs,
)
from tests.support.pool_windows import hours, with_windows

NIGHT = hours("night", "0 0 * * *", "1h", shutdown=True)
DAY = hours("day", "0 8 * * *", "1h", shutdown=True)


def shut(*windows, **options):
    return with_windows(pool(**options), *(windows or (NIGHT,)))


def shut_down(*objects, **options):
    return found(cluster(*objects), ShutdownMethod(), **options)


def test_nodes_with_pods_are_removed_and_not_replaced():
    """A command for each node, those that are cheapest to disrupt first."""
    outcome = shut_down(shut(), box("busy"), runs("a", "busy"), box("empty"))

    assert gone(outcome) == ["empty", "busy"]
    assert len({command.id for command in outcome.commands}) == 2
    for command in outcome.commands:
        assert command.decision is CommandDecision.DELETE
        assert command.reason is DisruptionReason.SHUTDOWN
        assert 'window "night"' in command.cause


@pytest.mark.parametrize(
    "its_pool", [shut(DAY), shut(hours(limits={"cpu": "0"}, start="0 0 * * *")), pool()]
)
def test_nodes_stay_while_no_window_shuts_the_pool_down(its_pool):
    """A limit of 0 is no shutdown, and most pools have no windows."""
    disruption = pass_over(cluster(its_pool, box("busy"), runs("a", "busy")))
    (candidate,) = disruption.candidates(ShutdownMethod().disruption_class).candidates

    verdict = ShutdownMethod().accept(candidate, disruption)

    assert verdict.decline_reason is DeclineReason.NOT_SHUT_DOWN


@pytest.mark.parametrize(
    ("budgets", "count"),
    [
        ((Budget(nodes="1"),), 1),
        ((Budget(nodes="50%"),), 2),
        ((Budget(nodes="100%"), Budget(nodes="0", reasons=("Drifted",))), 4),
        ((Budget(nodes="0"),), 0),
    ],
)
def test_budgets_for_all_reasons_bound_the_nodes_that_go_at_once(budgets, count):
    """Those for other reasons do not."""
    nodes = [box(f"node-{number}") for number in range(4)]

    assert len(gone(shut_down(shut(budgets=budgets), *nodes))) == count


def test_node_with_a_protected_pod_stays():
    """The Event names the pod."""
    protected = runs("a", "busy", annotations={DO_NOT_DISRUPT: "true"})

    outcome = shut_down(shut(), box("busy"), protected)

    assert gone(outcome) == []
    assert "default/a" in messages(outcome, "DisruptionBlocked")[0]


def test_node_whose_pods_may_not_be_evicted_stays():
    """A PodDisruptionBudget that allows none."""
    budget = disruption_budget("web", allowed=0)

    assert gone(shut_down(shut(), box("busy"), runs("a", "busy"), budget)) == []


def test_static_pool_is_drained_only_with_its_feature_gate():
    """Without it the pool's nodes are left alone."""
    objects = (shut(replicas=2), box("one"), box("two"))

    assert gone(shut_down(*objects)) == []
    assert gone(shut_down(*objects, options=DisruptionOptions(static_capacity=True))) == [
        "one",
        "two",
    ]


def test_other_methods_follow_the_shutdown():
    """Without a shutdown the methods are the usual ones."""
    state = cluster(shut(), box("one"))

    assert shuts_down_pools(state.snapshot().pool_schedules)
    assert methods_of(DisruptionOptions(), shuts_down=True) == (ShutdownMethod(), *METHODS)
    assert methods_of(DisruptionOptions()) == METHODS


def test_window_that_opens_makes_remembered_results_stale():
    """The generation of the NodePool stays the same."""
    state = cluster(shut(DAY), box("one"))
    before = consolidation_fingerprint(state.snapshot())

    state.apply_event(TimePassed(EPOCH + timedelta(hours=8)))

    assert consolidation_fingerprint(state.snapshot()) != before


def test_policy_of_an_open_window_holds_for_consolidation():
    """An idle node goes outside the window and stays within it."""
    window = hours("work", "0 0 * * *", "1h", consolidateAfter="Never")
    day = hours("work", "0 8 * * *", "1h", consolidateAfter="Never")

    assert gone(found(cluster(shut(day), box("empty")), now=NOW)) == ["empty"]
    assert gone(found(cluster(shut(window), box("empty")), now=NOW)) == []


def test_unreadable_schedules_pause_the_disruption_of_the_pool():
    """Its windows may forbid it now."""
    broken = shut("[")

    assert gone(found(cluster(broken, box("empty")))) == []
    assert "annotation karpenter.sh/schedules" in pause_reason(broken, is_paused_globally=False)
