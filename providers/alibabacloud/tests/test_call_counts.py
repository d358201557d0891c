"""Bounds the calls of a controller with twenty nodes (`benchmarks/api_calls.py` prints all counts)."""

from __future__ import annotations

import pytest

from benchmarks.api_calls import count_calls

pytestmark = [pytest.mark.timeout(240), pytest.mark.cluster_runs]

NODES = 20
TYPES = ("ecs.c7.large", "ecs.g7.large", "ecs.g8y.large")
MOST_AT_LAUNCH = {"CreateAutoProvisioningGroup": 2, "DescribeInstances": 15}
"""Upper bounds of a launch, whatever the number of nodes."""
IDLE_CALLS = 650
"""In an hour, whatever the number of nodes."""


def test_calls_of_a_launch_and_of_an_idle_hour_stay_few():
    """One launch call serves all pods, and only tags are written node by node."""
    counts = count_calls("alibabacloud", NODES, types=TYPES)

    assert counts.launch["TagResources"] == NODES
    exceeded = {name: counts.launch[name] for name, most in MOST_AT_LAUNCH.items()
                if counts.launch[name] > most}  # fmt: skip
    assert not exceeded
    assert sum(counts.idle.values()) <= IDLE_CALLS
    launches = {"CreateAutoProvisioningGroup", "RunInstances", "DeleteInstances", "TagResources"}
    assert not counts.idle.keys() & launches
