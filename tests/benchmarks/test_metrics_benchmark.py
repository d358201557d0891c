"""The cluster of the scrape benchmark."""

from __future__ import annotations

from collections import Counter

from benchmarks.metrics import cluster
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView, PodView


def test_the_cluster_has_the_requested_numbers_of_nodes_claims_and_pods():
    """Pods are spread evenly, and Nodes have the conditions that kubelets set."""
    made = list(cluster(nodes=4, pods=10))

    assert Counter(map(type, made)) == {NodeView: 4, NodeClaim: 4, PodView: 10}
    on_nodes = Counter(each.node_name for each in made if isinstance(each, PodView))
    assert sorted(on_nodes.values()) == [2, 2, 3, 3]
    assert {len(each.conditions) for each in made if isinstance(each, NodeView)} == {5}
