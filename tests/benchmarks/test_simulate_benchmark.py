"""The benchmark of simulations reaches the size that it was asked for."""

from __future__ import annotations

from benchmarks.simulate import PODS_PER_NODE, scenario
from karpenter_core.cli.simulate.document import simulation_document
from karpenter_core.cli.simulate.run import simulate


def test_nodes_and_pods_are_those_of_the_wave():
    """Full nodes at the peak, and pods that go again."""
    given = scenario(4, 6.0)
    document = simulation_document(simulate(given))

    (deployment,) = given.workload.deployments
    replicas = [change.replicas for change in deployment.changes]
    assert max(replicas) == 4 * PODS_PER_NODE
    assert min(replicas) < max(replicas)
    assert document["nodes"]["peak"] == 4
    assert document["waiting"]["count"] == 0
