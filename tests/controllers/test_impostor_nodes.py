"""A Node that shows the provider ID of a claim without right never gets the claim's labels or place."""

from __future__ import annotations

from karpenter_core.kube.resources import NODES
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
WITHOUT_ELECTION = "--disable-leader-election"
SLOW_BOOT = "--kwok-registration-delay=30s"
FINALIZER = "karpenter.sh/termination"
POOL = "karpenter.sh/nodepool"


def impostor(provider_id, name="evil"):
    """A Node as a kubelet creates it that lies about its provider ID."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {
            "providerID": provider_id,
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
        },
        "status": {"capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }


def reasons(scene):
    return {event["reason"] for event in scene.events()}


def node_of(scene, name):
    return next(node for node in scene.nodes() if node["metadata"]["name"] == name)


def is_untouched(node):
    return (
        POOL not in node["metadata"]["labels"]
        and "karpenter.sh/registered" not in node["metadata"]["labels"]
        and FINALIZER not in node["metadata"].get("finalizers", ())
        and not node["metadata"].get("ownerReferences")
        and "karpenter.sh/unregistered" in {taint["key"] for taint in node["spec"]["taints"]}
    )


async def boot_with_impostor(scene):
    """Launch one claim; another Node shows its provider ID before its own Node appears."""
    scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
    scene.start(WITHOUT_ELECTION)
    await scene.settle(
        lambda: any(c.get("status", {}).get("providerID") for c in scene.claims()), seconds=20
    )
    (claim,) = scene.claims()
    scene.cluster.apply([impostor(claim["status"]["providerID"])])
    return claim["metadata"]["name"]


def test_the_node_that_shows_a_provider_id_first_is_refused_and_the_true_one_registers(tmp_path):
    async def scenario(scene):
        name = await boot_with_impostor(scene)
        await scene.settle(lambda: "NodeRefused" in reasons(scene), seconds=20)
        assert is_untouched(node_of(scene, "evil"))
        registered = next(
            c for c in scene.claims()[0]["status"]["conditions"] if c["type"] == "Registered"
        )
        assert (registered["status"], registered["reason"]) == ("Unknown", "NodeRefused")
        assert 'Node "evil"' in registered["message"]

        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        (claim,) = scene.claims()
        assert claim["metadata"]["name"] == claim["status"]["nodeName"] == name
        assert is_untouched(node_of(scene, "evil"))
        assert scene.pods("Running")[0]["spec"]["nodeName"] == name

    run_controller(tmp_path, scenario, arguments=[SLOW_BOOT])


def test_a_claim_outlives_the_deletion_of_the_refused_node(tmp_path):
    """The claim's own Node has not appeared then: nothing of it is lost."""

    async def scenario(scene):
        name = await boot_with_impostor(scene)
        await scene.settle(lambda: "NodeRefused" in reasons(scene), seconds=20)
        scene.cluster.delete(NODES, "evil")

        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        assert [c["metadata"]["name"] for c in scene.claims()] == [name]

    run_controller(tmp_path, scenario, arguments=[SLOW_BOOT])


def test_a_node_with_the_provider_id_of_a_registered_claim_may_come_and_go(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (claim,) = scene.claims()
        evil = impostor(claim["status"]["providerID"], name="a-first-by-name")
        evil["metadata"]["finalizers"] = [FINALIZER]
        evil["metadata"]["labels"] |= claim["metadata"]["labels"]

        scene.cluster.apply([evil])
        await scene.settle(lambda: "NodeRefused" in reasons(scene), seconds=20)
        scene.cluster.delete(NODES, "a-first-by-name")
        await scene.settle(lambda: len(scene.nodes()) == 1, seconds=60)
        await scene.cluster.clock.sleep(60)

        (after,) = scene.claims()
        assert after["metadata"]["uid"] == claim["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        assert after["status"]["nodeName"] == claim["status"]["nodeName"]
        assert len(scene.pods("Running")) == 1

    run_controller(tmp_path, scenario)


def test_a_kubelet_that_changes_its_nodepool_gets_it_back_once_a_minute(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (claim,) = scene.claims()
        name = claim["status"]["nodeName"]
        lie = {"metadata": {"labels": {POOL: "secure"}}}

        def pool():
            return node_of(scene, name)["metadata"]["labels"][POOL]

        scene.cluster.patch(NODES, name, lie)
        await scene.settle(lambda: pool() == "general", seconds=10)
        assert "NodeLabelRestored" in reasons(scene)
        scene.cluster.patch(NODES, name, lie)
        await scene.cluster.clock.sleep(20)
        assert pool() == "secure"
        await scene.settle(lambda: pool() == "general", seconds=60)

    run_controller(tmp_path, scenario)
