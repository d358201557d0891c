"""A controller that starts in an incident serves all pending pods at once.

`python -m benchmarks.startup` does the same with 14,800 pods on a real control plane and holds the times
to their gate. Here the cluster is the embedded one: what is judged is the controller's process, and a real
API server and scheduler take a minute of CPU to store so many pods and to give up on them.
"""

from __future__ import annotations

import pytest

from benchmarks.startup import measure
from tests.support.local_clusters import EmbeddedLocalCluster

PODS = 3000

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


async def test_thousands_of_waiting_pods_are_planned_at_once_in_little_memory() -> None:
    started = await measure(PODS, EmbeddedLocalCluster())

    assert started.pods == PODS
    assert started.claims > 0
    assert started.is_steady, started
