"""A Node that is removed ends its claim and its instance, before and after it registers."""

from __future__ import annotations

import pytest

from karpenter_core.controllers.nodeclaim.admission import NodeAdmission
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.sim.faults import RequestFault
from karpenter_core.sim.kubelets import KubeletTimes
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
OUTAGE_SECONDS = 300
GRACE_SECONDS = 15 * 60


def claim_reads(request):
    return request.method == "GET" and request.path == "/apis/karpenter.sh/v1/nodeclaims"


@pytest.fixture
def during_admission(monkeypatch):
    """Return a function that sets what happens once, while the first node is admitted."""

    def interpose(action):
        admitted = []

        async def admit(_admission, claim, node):
            if not admitted:
                admitted.append(claim.name)
                await action(node)

        monkeypatch.setattr(NodeAdmission, "admit", admit)
        return admitted

    return interpose


def claim_names(scene):
    return {claim["metadata"]["name"] for claim in scene.claims()}


def start(scene):
    scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
    return scene.start(WITHOUT_ELECTION)


def remove_by_force(scene, name):
    """Delete a Node past the controller."""
    scene.cluster.patch(NODES, name, {"metadata": {"finalizers": None}})
    scene.cluster.delete(NODES, name)


async def assert_replaced(scene, folder, running, name, reason="NodeRemoved"):
    """Check that a claim ends with its instance soon, and that its pod runs elsewhere."""
    await scene.settle(lambda: name not in claim_names(scene), seconds=60)
    await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
    (claim,) = scene.claims()
    (instance,) = cloud(scene, folder)["instances"]
    assert instance["providerID"] == claim["status"]["providerID"]
    ended = [
        (decision.method, decision.reason, [each.node_claim for each in decision.candidates])
        for decision in running.process.runtime.journal.latest()
        if decision.kind == "disrupt"
    ]
    assert ended == [("liveness", reason, [name])]


def test_a_node_removed_during_its_admission_ends_its_claim(tmp_path, during_admission):
    """Registered all the same, the claim would keep an instance without a Node for ever."""

    async def scenario(scene):
        async def remove(node):
            scene.cluster.delete(NODES, node.name)
            await scene.cluster.clock.sleep(1)

        removed = during_admission(remove)
        running = start(scene)
        await scene.settle(lambda: bool(removed), seconds=30)
        await assert_replaced(scene, tmp_path, running, removed[0])

    run_controller(tmp_path, scenario)


def test_a_node_removed_before_it_is_ready_ends_its_claim(tmp_path):
    """Its registration is held for a moment, until it becomes Ready."""

    async def scenario(scene):
        running = start(scene)
        await scene.settle(lambda: bool(scene.nodes()), seconds=30)
        (node,) = scene.nodes()
        await scene.cluster.clock.sleep(1)
        (claim,) = scene.claims()
        assert not node["metadata"].get("finalizers")
        scene.cluster.delete(NODES, node["metadata"]["name"])
        assert not scene.nodes()
        await assert_replaced(scene, tmp_path, running, claim["metadata"]["name"])

    run_controller(tmp_path, scenario, times=KubeletTimes(node_boot_seconds=10))


def test_a_claim_is_kept_while_a_stale_state_shows_no_node_of_it(tmp_path, during_admission):
    """A kind without contact may hide a newer Node; the claim ends once all kinds are fresh."""

    async def scenario(scene):
        async def remove_unseen(node):
            scene.cluster.frontend.stop()
            scene.cluster.frontend.start()
            scene.cluster.frontend.faults.add(
                RequestFault(matches=claim_reads, status=403, times=None)
            )
            await scene.cluster.clock.sleep(OUTAGE_SECONDS)
            scene.cluster.delete(NODES, node.name)
            await scene.cluster.clock.sleep(1)

        removed = during_admission(remove_unseen)
        running = start(scene)
        await scene.settle(lambda: bool(removed), seconds=30)
        await scene.cluster.clock.sleep(2 * OUTAGE_SECONDS)
        assert not scene.nodes()
        assert removed[0] in claim_names(scene)
        waiting = running.metric('karpenter_core_waiting_for_freshness{consumer="liveness"}')
        assert waiting == 1

        scene.cluster.frontend.faults.clear()
        await assert_replaced(scene, tmp_path, running, removed[0])

    run_controller(tmp_path, scenario)


def test_a_registered_node_that_is_removed_by_force_ends_its_claim_in_time(tmp_path):
    """Its instance would run without pods until it expires."""

    async def scenario(scene):
        running = start(scene)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (claim,) = scene.claims()
        remove_by_force(scene, claim["status"]["nodeName"])
        await scene.cluster.clock.sleep(GRACE_SECONDS - 30)
        assert claim["metadata"]["name"] in claim_names(scene)
        await scene.settle(lambda: len(scene.claims()) == 1, seconds=60)
        await assert_replaced(scene, tmp_path, running, claim["metadata"]["name"], "NodeLost")

    run_controller(tmp_path, scenario)


def test_claims_are_kept_when_most_of_them_have_lost_their_nodes(tmp_path):
    """The cluster may be another one than that of the claims."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        scene.cluster.apply([deployment("web", 3, cpu="3")])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        names = claim_names(scene)
        assert len(names) > 1
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        for node in scene.nodes():
            remove_by_force(scene, node["metadata"]["name"])
        await scene.cluster.clock.sleep(2 * GRACE_SECONDS)
        assert claim_names(scene) == names

    run_controller(tmp_path, scenario)


def test_claims_without_nodes_end_once_another_node_has_registered(tmp_path):
    """This is the cluster that instances join: so the Nodes are gone, however many they are."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        scene.cluster.apply([deployment("web", 6, cpu="3")])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 6, seconds=60)
        lost = set()
        for _ in range(4):
            lost |= claim_names(scene)
            for node in scene.nodes():
                remove_by_force(scene, node["metadata"]["name"])
            await scene.cluster.clock.sleep(60)
        serving = claim_names(scene) - lost
        assert len(serving) < len(lost) / 2
        await scene.settle(lambda: claim_names(scene) == serving, seconds=GRACE_SECONDS + 400)
        assert len(cloud(scene, tmp_path)["instances"]) == len(serving)

    run_controller(tmp_path, scenario)


def test_a_node_that_its_kubelet_creates_again_keeps_its_claim(tmp_path):
    """It gets its labels back, and loses the taint of Nodes that are not registered."""

    async def scenario(scene):
        start(scene)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (node,) = scene.nodes()
        name = node["metadata"]["name"]
        remove_by_force(scene, name)
        await scene.cluster.clock.sleep(60)
        again = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {
                "providerID": node["spec"]["providerID"],
                "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
            },
            "status": node["status"],
        }
        scene.cluster.apply([again])
        await scene.cluster.clock.sleep(2 * GRACE_SECONDS)
        restored = next(each for each in scene.nodes() if each["metadata"]["name"] == name)
        assert restored["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
        assert restored["metadata"]["finalizers"] == ["karpenter.sh/termination"]
        assert not restored["spec"].get("taints")

        remove_by_force(scene, name)  # its time begins anew
        await scene.cluster.clock.sleep(GRACE_SECONDS - 30)
        assert name in claim_names(scene)
        await scene.settle(lambda: name not in claim_names(scene), seconds=60)

    run_controller(tmp_path, scenario)
