"""Schedules of NodePools: the annotation, its errors, and the order of windows."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import SCHEDULES
from karpenter_core.api.pool_schedules import in_force, read_schedules, schedules_error
from karpenter_core.testing.builders import node_pool
from tests.support.pool_windows import hours, with_windows

STATIC = node_pool("static", replicas=3)


def amounts(pool):
    return {name: str(amount) for name, amount in pool.spec.limits.items()}


def test_pool_without_the_annotation_has_no_windows():
    """Nor an error."""
    assert read_schedules(node_pool()) == ()
    assert schedules_error(node_pool()) == ""


def test_window_changes_only_the_limits_that_it_names():
    """Others stay, and the pool itself is not changed."""
    pool = node_pool(limits={"cpu": "10", "memory": "20Gi"})

    changed = in_force(pool, read_schedules(with_windows(pool, hours(limits={"cpu": 40}))))

    assert amounts(changed) == {"cpu": "40", "memory": "20Gi"}
    assert amounts(pool) == {"cpu": "10", "memory": "20Gi"}


def test_last_window_of_the_list_wins_field_by_field():
    """The first one still sets what the second leaves alone."""
    pool = with_windows(
        node_pool(),
        hours("a", limits={"cpu": "1", "nodes": "5"}, consolidateAfter="Never"),
        hours("b", limits={"cpu": "2"}, consolidationPolicy="WhenEmpty"),
    )

    changed = in_force(pool, read_schedules(pool))

    assert amounts(changed) == {"cpu": "2", "nodes": "5"}
    assert changed.spec.disruption.consolidation_policy == "WhenEmpty"
    assert str(changed.spec.disruption.consolidate_after) == "Never"


@pytest.mark.parametrize("last", [False, True])
def test_shutdown_wins_over_windows_before_and_after_it(last):
    """Limits of nodes become 0, and so do the replicas of a static pool."""
    windows = [hours("down", shutdown=True), hours("up", limits={"nodes": "9"})]
    pool = with_windows(node_pool(), *(windows[::-1] if last else windows))
    static = with_windows(STATIC, hours("down", shutdown=True), hours("up", replicas=9))

    assert amounts(in_force(pool, read_schedules(pool)))["nodes"] == "0"
    assert in_force(static, read_schedules(static)).spec.replicas == 0


def test_no_open_window_leaves_the_pool_as_it_is():
    """The same object."""
    assert in_force(STATIC, ()) is STATIC


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", '""'),
        ("office hours", "office hours"),
        ("{}", "Expected `array`"),
        ('[{"name": "a"}]', "[0]"),
        ('[{"name": "a", "schedule": "@daily", "duration": "1h", "limit": {}}]', "`limit`"),
    ],
)
def test_text_that_is_no_list_of_windows_is_refused(text, named):
    """The error names the annotation and the place."""
    error = schedules_error(with_windows(node_pool(), text))

    assert error.startswith(f"annotation {SCHEDULES}: ")
    assert named.strip('"') in error


@pytest.mark.parametrize(
    ("pool", "window", "named"),
    [
        (node_pool(), hours("", shutdown=True), '[0].name ""'),
        (node_pool(), hours("a b", shutdown=True), '"a b"'),
        (node_pool(), hours(start="0 25 * * *", shutdown=True), '"0 25 * * *"'),
        (node_pool(), hours(duration="0m", shutdown=True), 'duration "0m"'),
        (node_pool(), hours(duration="90s", shutdown=True), 'duration "90s"'),
        (node_pool(), hours(duration="9000h", shutdown=True), 'duration "9000h"'),
        (node_pool(), hours(duration="long", shutdown=True), 'duration "long"'),
        (node_pool(), hours(timeZone="Europe/Berln", shutdown=True), 'timeZone "Europe/Berln"'),
        (node_pool(), hours(limits={"cpu": "many"}), '[0].limits.cpu "many"'),
        (node_pool(), hours(limits={"cpu": -1}), '[0].limits.cpu "-1"'),
        (node_pool(), hours(consolidateAfter="soon"), '[0].consolidateAfter "soon"'),
        (node_pool(), hours(consolidateAfter="-1h"), '[0].consolidateAfter "-1h"'),
        (node_pool(), hours(consolidationPolicy="Never"), '[0].consolidationPolicy "Never"'),
        (node_pool(), hours(replicas=2), "replicas 2"),
        (node_pool(), hours(), 'window "hours" changes nothing'),
        (node_pool(), hours(shutdown="yes"), "[0].shutdown"),
        (STATIC, hours(replicas=-1), "replicas -1"),
        (STATIC, hours(limits={"cpu": "4"}), "no limit but nodes"),
        (STATIC, hours(consolidateAfter="1h"), "static NodePool"),
    ],
)
def test_window_with_a_wrong_value_is_refused(pool, window, named):
    """The error names the field and the value."""
    error = schedules_error(with_windows(pool, window))

    assert error.startswith(f"annotation {SCHEDULES}: ")
    assert named in error


def test_two_windows_of_one_name_are_refused():
    """Metrics and messages could not tell them apart."""
    error = schedules_error(with_windows(node_pool(), hours(shutdown=True), hours(shutdown=True)))

    assert 'name "hours" stands twice' in error
