"""NodePools get their hash, conditions and usage (cases 139, 142-144)."""

from __future__ import annotations

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_POOLS
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

WITHOUT_ELECTION = "--disable-leader-election"
HASH = "karpenter.sh/nodepool-hash"
ZEROS = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


def hash_of(scene) -> str:
    return scene.pool("general")["metadata"]["annotations"][HASH]


def test_the_hash_follows_the_template_and_nothing_else(tmp_path):
    """Case 139, as written: labels move it; limits, weight, requirements and policy do not."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: HASH in scene.pool("general")["metadata"].get("annotations", {}))
        before = hash_of(scene)

        requirement = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
        other = {
            "limits": {"cpu": "100"},
            "weight": 7,
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized"},
            "template": {"spec": {"requirements": [requirement]}},
        }
        scene.cluster.server.registry.patch(NODE_POOLS, {"spec": other}, "general", "")
        await scene.cluster.clock.sleep(5)
        assert hash_of(scene) == before

        labels = {"template": {"metadata": {"labels": {"team": "a"}}}}
        scene.cluster.server.registry.patch(NODE_POOLS, {"spec": labels}, "general", "")
        await scene.settle(lambda: hash_of(scene) != before, seconds=5)

    run_controller(tmp_path, scenario)


def test_a_pool_of_a_foreign_kind_is_ignored(tmp_path):
    """Neither hash nor status: another controller's (cases 142 and 144)."""
    foreign = node_pool("foreign")
    ref = {"group": "other.example.com", "kind": "OtherNodeClass", "name": "default"}
    foreign["spec"]["template"]["spec"]["nodeClassRef"] = ref

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), foreign])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: scene.pool("general").get("status", {}).get("conditions"))
        await scene.cluster.clock.sleep(10)

        pool = scene.pool("foreign")
        assert "annotations" not in pool["metadata"]
        assert not pool.get("status", {}).get("conditions")
        assert "resources" not in pool.get("status", {})

    run_controller(tmp_path, scenario)


def test_the_status_counts_nodes_as_they_come_and_go(tmp_path):
    """Case 142: zeros, two nodes, zeros."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start(WITHOUT_ELECTION)

        def status():
            return scene.pool("general").get("status", {})

        await scene.settle(lambda: status().get("resources") == ZEROS, seconds=30)
        scene.cluster.apply([deployment("web", 2, cpu="60", memory="1Gi")])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await scene.cluster.clock.sleep(10)
        assert (status()["nodes"], status()["resources"]["nodes"]) == (2, "2")

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=120)
        await scene.settle(
            lambda: (status()["nodes"], status()["resources"]) == (0, ZEROS), seconds=10
        )

    run_controller(tmp_path, scenario)


def test_usage_that_came_too_soon_to_be_written_is_written_later(tmp_path):
    """Another change of the NodePool in the meantime does not make it wait for the next node."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)
        (node,) = (each["metadata"]["name"] for each in scene.nodes())
        for count in ("2", "3"):
            capacity = {"status": {"capacity": {"example.com/dongle": count}}}
            scene.cluster.server.registry.patch(NODES, capacity, node, part="status")
            await scene.cluster.clock.sleep(1)
        assert scene.pool("general")["status"]["resources"]["example.com/dongle"] == "2"
        touched = {"metadata": {"annotations": {"touched": "yes"}}}
        scene.cluster.patch(NODE_POOLS, "general", touched)
        await scene.cluster.clock.sleep(5)
        assert scene.pool("general")["status"]["resources"]["example.com/dongle"] == "3"

    run_controller(tmp_path, scenario)
