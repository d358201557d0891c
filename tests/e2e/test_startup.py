"""A controller that starts in an incident serves all pending pods at once.

`python -m benchmarks.startup` does the same with 14,800 pods and holds the times to their gate.
"""

from __future__ import annotations

import pytest

from benchmarks.startup import measure

PODS = 3000

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]


async def test_thousands_of_waiting_pods_are_planned_at_once_in_little_memory(
    kubernetes: str,
) -> None:
    started = await measure(PODS, kubernetes)

    assert started.pods == PODS
    assert started.claims > 0
    assert started.is_steady, started
