"""The benchmark of passes under churn measures what it says."""

from __future__ import annotations

from collections import Counter

from benchmarks.passes import CHURN, PODS_PER_NODE, _Cluster, measure
from karpenter_core.disruption.candidate_memory import NodeProfileReader
from karpenter_core.scheduling.compiled.node_table import ExistingNodeReader
from karpenter_core.scheduling.whatif.base_state import BaseState
from karpenter_core.state.existing_nodes import ExistingNodeBuilder


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


def test_a_pass_reads_only_the_nodes_whose_pods_have_changed(monkeypatch):
    """Whatever the size of the cluster: a pass touches the nodes of some forty pods."""
    reads = Counter()

    def counting(owner, name):
        genuine = getattr(owner, name)

        def counted(*arguments):
            reads[name] += 1
            return genuine(*arguments)

        monkeypatch.setattr(owner, name, counted)

    counting(ExistingNodeBuilder, "existing_node")  # read by both kinds of passes
    counting(ExistingNodeReader, "signature")
    counting(NodeProfileReader, "read")
    counting(BaseState, "_read")
    nodes, rounds = 240, 2
    measure(nodes, rounds=rounds)

    changed = (rounds + 1) * 2 * CHURN
    assert reads["existing_node"] <= 2 * (nodes + changed)
    assert reads["signature"] <= 2 * nodes + 3 * changed + nodes
    assert reads["read"] <= nodes + changed
    assert reads["_read"] <= nodes + changed
