"""Bounds the calls of a controller with twenty nodes (`benchmarks/api_calls.py` prints all counts)."""

from __future__ import annotations

import pytest

from benchmarks.api_calls import count_calls

pytestmark = [pytest.mark.timeout(240), pytest.mark.cluster_runs]

NODES = 20
TYPES = ("c5.large", "m5.large", "m5.metal", "m6g.large")
"""A region without bare metal has no prices for it, which is a failure."""
MOST_AT_LAUNCH = {"CreateFleet": 2, "DescribeInstances": 10, "CreateLaunchTemplate": 8}
"""Upper bounds of a launch, whatever the number of nodes."""
IDLE_CALLS = 650
"""In an hour, whatever the number of nodes."""


def test_calls_of_a_launch_and_of_an_idle_hour_stay_few():
    """One launch call serves all pods, and only tags are written node by node."""
    counts = count_calls("aws", NODES, types=TYPES)

    assert counts.launch["CreateTags"] == NODES
    exceeded = {name: counts.launch[name] for name, most in MOST_AT_LAUNCH.items()
                if counts.launch[name] > most}  # fmt: skip
    assert not exceeded
    assert sum(counts.idle.values()) <= IDLE_CALLS
    assert not counts.idle.keys() & {"CreateTags", "CreateFleet", "TerminateInstances"}
