"""A controller beside a cluster that stands and churns needs little memory.

`python -m benchmarks.footprint` does the same with 1,000 and 5,000 nodes, and has goals for more figures.
"""

from __future__ import annotations

import pytest

from benchmarks.footprint import measure
from benchmarks.standing import ClusterSize

SIZE = ClusterSize(500, 5_000)
LIMIT_MIB = 512
WATCHED_SECONDS = 5.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


async def test_five_hundred_nodes_and_their_churn_fit_into_512_mebibytes() -> None:
    found = await measure(SIZE, WATCHED_SECONDS)

    assert found.nodes >= SIZE.nodes
    assert found.pods >= SIZE.pods
    assert found.churn_passes > 0
    assert 0 < found.resident_mib <= found.peak_mib < LIMIT_MIB
