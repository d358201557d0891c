"""Plans of clusters where Karpenter's own scheduler once found cheaper ones cost no more than these.

`compare_costs.py` finds such clusters; the costs are those of its cheapest run.
"""

from __future__ import annotations

import pytest

from tests.peer.compare_costs import cost_of
from tests.peer.draw import random_cluster
from tests.peer.our_plans import plan


@pytest.mark.parametrize(
    ("seed", "theirs"),
    [(5044, 0.32), (5123, 0.144), (3019, 0.164), (20710, 0.156), (21044, 0.3876)],
)
def test_a_plan_of_few_pods_costs_no_more_than_theirs(seed, theirs):
    cluster, types = random_cluster(seed, [])
    assert cost_of(plan(cluster, types), types) <= theirs + 1e-9
