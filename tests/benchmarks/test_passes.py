"""The benchmark of passes under churn measures what it says."""

from __future__ import annotations

from benchmarks.passes import CHURN, PODS_PER_NODE, _Cluster, measure


def test_as_many_pods_wait_after_each_churn_and_none_is_lost():
    cluster = _Cluster(3)
    for _ in range(3):
        cluster.churn()
        snapshot = cluster.builder.snapshot()
        assert len(snapshot.pods) == 3 * PODS_PER_NODE
        assert len(snapshot.pending_pods) == CHURN


def test_every_part_of_a_pass_has_a_cost():
    """`measure` itself refuses a pass in which not every node is a candidate."""
    costs = measure(6, rounds=1)
    assert all(value > 0 for value in costs.values())
    assert {"snapshot", "provisioning", "disruption"} < costs.keys()
