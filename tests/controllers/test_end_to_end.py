"""Pending pods get nodes, and idle nodes go, in the embedded cluster."""

from __future__ import annotations

from collections import Counter

import structlog

from karpenter_core.kube.resources import DEPLOYMENTS, EVENTS, NODES
from tests.controllers.test_launch_limits import KEEP, one_to_a_node
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)


def test_fifty_pods_get_nodes_and_the_nodes_go_with_them(tmp_path):
    """0 -> 50 -> 0: every pod runs, then no object, finalizer or instance is left."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 50)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 50, seconds=30)
        launched = cloud(scene, tmp_path)
        assert len(scene.claims()) == len(scene.nodes()) == len(launched["instances"])
        assert {1} == set(launched["launches"].values())

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=60)

        assert cloud(scene, tmp_path)["instances"] == []
        assert await running.stop() == 0

    run_controller(tmp_path, scenario)


def test_the_stages_of_each_claim_are_logged_once(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), one_to_a_node(3)])
        with structlog.testing.capture_logs() as lines:
            scene.start()
            await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
            await scene.cluster.clock.sleep(300)
        stages = Counter(line["event"] for line in lines)
        nodes = {n["metadata"]["name"] for n in scene.nodes()}
        for stage in ("registered nodeclaim", "initialized nodeclaim"):
            assert stages[stage] == 3
            assert {line["Node"]["name"] for line in lines if line["event"] == stage} == nodes

    structlog.reset_defaults()  # commands that another test ran in this process log errors alone
    run_controller(tmp_path, scenario)


def test_nodes_and_pods_may_live_in_another_cluster_than_claims(tmp_path):
    """Two kubeconfigs; a Node is not owned by an object that its cluster has never heard of."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.workload.apply([deployment("web", 5)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=30)
        assert scene.cluster.list(NODES) == []
        assert len(scene.claims()) == len(scene.nodes()) > 0
        assert all("ownerReferences" not in node["metadata"] for node in scene.nodes())
        kinds = {event["involvedObject"]["kind"] for event in scene.cluster.list(EVENTS)}
        assert {"NodeClaim", "NodePool"} >= kinds >= {"NodeClaim"}
        kinds = {event["involvedObject"]["kind"] for event in scene.workload.list(EVENTS)}
        assert {"Pod", "Node"} >= kinds >= {"Pod"}

        scene.workload.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=60)
        assert cloud(scene, tmp_path)["instances"] == []

    run_controller(tmp_path, scenario, split=True)


def test_two_runs_of_one_scenario_take_the_same_steps(tmp_path):
    """Same names, same writes, same instants."""

    def once(folder):
        folder.mkdir()
        seen = []

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 20)])
            running = scene.start()
            await scene.settle(lambda: len(scene.pods("Running")) == 20, seconds=30)
            seen.append(sorted(claim["metadata"]["name"] for claim in scene.claims()))
            seen.append(dict(running.process.kube_writer.counts))
            seen.append(scene.cluster.clock.now())

        run_controller(folder, scenario)
        return seen

    assert once(tmp_path / "first") == once(tmp_path / "second")


def test_a_claim_costs_few_writes(tmp_path):
    """Creation, launch (two), Node, registration with initialisation, and one pod event."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        await scene.cluster.clock.sleep(5)

        counts = running.process.kube_writer.counts
        assert counts["create", "NodeClaim", ""] == 1
        assert counts["patch", "NodeClaim", ""] == 1
        assert counts["patch", "NodeClaim", "status"] <= 3
        assert counts["patch", "Node", ""] == 1

    run_controller(tmp_path, scenario)


def test_an_idle_cluster_costs_no_writes(tmp_path):
    """Ten minutes in which nothing happens: nothing is written."""

    async def scenario(scene):
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=disruption), deployment("web", 3)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=30)
        await scene.cluster.clock.sleep(60)
        before = dict(running.process.kube_writer.counts)

        await scene.cluster.clock.sleep(600)

        assert before == dict(running.process.kube_writer.counts)

    run_controller(tmp_path, scenario)


def test_an_untolerated_taint_is_named_in_the_event(tmp_path):
    """The pods stay pending, nothing is launched."""

    async def scenario(scene):
        taint = {"key": "example.com/team", "value": "search", "effect": "NoSchedule"}
        scene.cluster.apply(
            [NODE_CLASS, node_pool(template={"taints": [taint]}), deployment("web", 3)]
        )
        scene.start()
        await scene.settle(lambda: len(scene.events("FailedScheduling")) == 3, seconds=30)

        assert all("example.com/team" in e["message"] for e in scene.events("FailedScheduling"))
        assert scene.claims() == []

    run_controller(tmp_path, scenario)


def test_a_pod_that_never_fits_shows_one_event(tmp_path):
    """However long it waits within the event's window, and however often it is tried."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("giant", 1, cpu="100000")])
        scene.start()
        await scene.cluster.clock.sleep(120)

        (event,) = scene.events("FailedScheduling")
        assert event["count"] == 1
        assert "cpu" in event["message"]
        assert scene.claims() == []

    run_controller(tmp_path, scenario)


def test_existing_capacity_is_used_first(tmp_path):
    """Pods that fit on what is there launch nothing."""

    async def scenario(scene):
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        scene.cluster.apply(
            [NODE_CLASS, node_pool(disruption=disruption), deployment("web", 1, cpu="3")]
        )
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        before = {claim["metadata"]["name"] for claim in scene.claims()}
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.pods(), seconds=60)

        scene.cluster.apply([deployment("small", 2, cpu="500m", memory="256Mi")])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=30)

        assert before == {claim["metadata"]["name"] for claim in scene.claims()}

    run_controller(tmp_path, scenario)


def test_limits_hold(tmp_path):
    """A pool that may have two nodes gets two, and the event says that the limit is why."""

    async def scenario(scene):
        one_core = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["3"]}
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(limits={"nodes": "2"}, template={"requirements": [one_core]}),
                deployment("web", 6),
            ]
        )
        scene.start()
        await scene.cluster.clock.sleep(60)

        assert len(scene.claims()) == 2
        assert len(scene.pods("Pending")) > 0
        assert all("limit" in event["message"] for event in scene.events("FailedScheduling"))

    run_controller(tmp_path, scenario)


def test_a_missing_node_class_shows_a_condition_and_an_event(tmp_path):
    """The pool is not Ready, and says why; nothing is launched for it."""

    async def scenario(scene):
        scene.cluster.apply([node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: "status" in scene.pool("general"), seconds=30)
        await scene.cluster.clock.sleep(5)

        conditions = {c["type"]: c for c in scene.pool("general")["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "False"
        assert conditions["NodeClassReady"]["reason"] == "NodeClassNotFound"
        (event,) = scene.events("NodeClassReady")
        assert "NodeClass not found on cluster" in event["message"]
        assert scene.claims() == []

        scene.cluster.apply([NODE_CLASS])
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)

    run_controller(tmp_path, scenario)


def test_the_status_of_a_pool_counts_its_nodes_and_resources(tmp_path):
    """Nodes and resources, zeros when the last node is gone."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 5)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=30)
        await scene.cluster.clock.sleep(10)
        status = scene.pool("general")["status"]
        assert status["nodes"] == len(scene.nodes())
        assert status["resources"]["nodes"] == str(len(scene.nodes()))

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=60)
        await scene.cluster.clock.sleep(10)

        status = scene.pool("general")["status"]
        assert (status["nodes"], status["resources"]["cpu"]) == (0, "0")

    run_controller(tmp_path, scenario)


def test_an_empty_node_is_deleted_after_fifteen_seconds_and_not_before(tmp_path):
    """Case 171; a pod that comes meanwhile keeps it (case 174)."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        await scene.cluster.clock.sleep(60)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.pods(), seconds=60)
        await scene.cluster.clock.sleep(14)
        assert len(scene.nodes()) == 1

        scene.cluster.scale(DEPLOYMENTS, "web", 1)
        await scene.cluster.clock.sleep(120)

        assert len(scene.pods("Running")) == 1
        assert len(cloud(scene, tmp_path)["launches"]) == 1

    run_controller(tmp_path, scenario)


def test_a_deleted_node_drains_and_its_pods_move(tmp_path):
    """Taint, eviction, instance, finalizers; the pods run again elsewhere."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 2)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=30)
        first = scene.nodes()[0]["metadata"]["name"]

        scene.cluster.delete(NODES, first)

        await scene.settle(
            lambda: first not in {node["metadata"]["name"] for node in scene.nodes()}, seconds=120
        )
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        assert len(scene.claims()) == len(cloud(scene, tmp_path)["instances"])
        assert scene.events("Evicted")

    run_controller(tmp_path, scenario)


def test_claims_carry_the_decision_they_come_from(tmp_path):
    """Its id, as in the logs, and its cause."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 2)])
        scene.start(name="first")
        await scene.settle(lambda: len(scene.claims()) > 0, seconds=30)

        annotations = scene.claims()[0]["metadata"]["annotations"]
        assert annotations["karpenter.sh/decision-id"].startswith("first-")
        assert annotations["karpenter.sh/decision-cause"] == "2 pod(s) without a placement"

    run_controller(tmp_path, scenario)
