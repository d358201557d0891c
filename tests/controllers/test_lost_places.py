"""Pods that cannot be bound where they were placed are planned again soon after others were bound."""

from __future__ import annotations

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.controllers.provisioning import provisioner
from karpenter_core.kube.resources import PODS
from karpenter_core.sim.pods import bind
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

TWO_ZONES = {
    "requirements": [
        {"key": ZONE, "operator": "In", "values": ["test-zone-a", "test-zone-b"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": INSTANCE_TYPE, "operator": "In", "values": ["mem2a.xlarge"]},
    ]
}
NEVER = {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}
REFUSED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/0 nodes are available.",
}


def spread_over_zones(replicas):
    """Return a Deployment of pods that nothing binds but the test."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return deployment("web", replicas, schedulerName="by-hand", topologySpreadConstraints=[spread])


def test_a_pod_that_its_spread_keeps_from_its_place_is_planned_soon_after_the_last_binding(
    tmp_path, monkeypatch
):
    """The scheduler binds a pod in another zone than planned; in that zone is one too many then.

    It refuses that pod with the words that the pod has already, which it does not write again.
    """
    monkeypatch.setattr(provisioner, "RETRY_SECONDS", 1000.0)

    async def scenario(scene):
        cluster = scene.cluster
        cluster.apply(
            [NODE_CLASS, node_pool(template=TWO_ZONES, disruption=NEVER), spread_over_zones(4)]
        )
        running = scene.start()
        await scene.settle(lambda: len(scene.pods()) == 4, seconds=30)
        for pod in scene.pods():
            cluster.server.registry.patch(
                PODS, {"status": {"conditions": [REFUSED]}}, pod["metadata"]["name"], "default",
                part="status",
            )  # fmt: skip

        def places():
            """Return the pods that wait by the name of their node."""
            snapshot = running.process.cluster_state.snapshot()
            found = {node["metadata"]["name"]: [] for node in scene.nodes()}
            for uid, placement in snapshot.ledger.placements.items():
                state_node = snapshot.state_node(placement.target)
                if state_node.node is not None and state_node.initialized:
                    found[state_node.node.name].append(snapshot.pods[uid].name)
            return {node: sorted(names) for node, names in found.items()}

        def bind_to(node, name):
            binding = {"target": {"kind": "Node", "name": node}}
            bind(cluster.server.registry, binding, name, "default", now=cluster.clock.now())

        await scene.settle(lambda: sorted(map(len, places().values())) == [2, 2], seconds=60)
        (here, mine), (there, others) = places().items()
        bind_to(there, mine[0])
        bind_to(there, others[0])
        await cluster.clock.sleep(5)

        assert places() == {here: sorted([mine[1], others[1]]), there: []}
        assert len(scene.nodes()) == 2

    run_controller(tmp_path, scenario)
