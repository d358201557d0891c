"""Launch limits hold in a whole controller."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_POOLS
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
HELD = "karpenter_nodeclaims_held_back_total"
ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "web"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


def one_to_a_node(replicas: int, **pod):
    return deployment("web", replicas, affinity=ALONE, **pod)


def names(objects):
    return {each["metadata"]["name"] for each in objects}


def condition(pool, kind):
    results = [c for c in pool.get("status", {}).get("conditions", []) if c["type"] == kind]
    return results[0] if results else None


async def most(scene, seconds: int) -> int:
    """Let time pass and return the most Nodes and claims without one that were seen."""
    peak = 0
    for _ in range(seconds):
        await scene.cluster.clock.sleep(1)
        nodes = names(scene.nodes())
        peak = max(peak, len(nodes | names(scene.claims())))
    return peak


def test_cluster_never_exceeds_its_node_limit(tmp_path):
    """Nodes of others count; pods that are left say why; when there is room again it is used."""
    foreign = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "foreign"},
        "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
    }

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), foreign, one_to_a_node(3)])
        running = scene.start(WITHOUT_ELECTION, "--max-nodes-total=4")
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "web", 9)
        assert await most(scene, 90) == 4
        assert len(scene.pods("Running")) == 3
        messages = [event["message"] for event in scene.events("FailedScheduling")]
        assert any("4 nodes (--max-nodes-total)" in message for message in messages)
        labels = 'nodepool="general",reason="max_nodes_total"'
        assert running.metric(f"{HELD}{{{labels}}}") >= 6

        scene.cluster.delete(NODES, "foreign")
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=60)
        assert len(scene.nodes()) == 4

    run_controller(tmp_path, scenario)


def test_one_wave_does_not_overshoot_the_limit(tmp_path):
    """A single plan for many nodes is cut; those with the highest priority go first."""
    first = one_to_a_node(5)
    second = deployment("urgent", 2, affinity=ALONE, priority=1000)
    second["spec"]["template"]["metadata"]["labels"] = {"app": "web", "which": "urgent"}
    second["spec"]["selector"]["matchLabels"] = {"which": "urgent"}

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), first, second])
        scene.start(WITHOUT_ELECTION, "--max-nodes-total=3")
        assert await most(scene, 60) == 3
        running = names(scene.pods("Running"))
        assert len(running) == 3
        assert sum(name.startswith("urgent") for name in running) == 2

    run_controller(tmp_path, scenario)


def test_pods_that_fit_one_larger_node_are_placed_there(tmp_path):
    """No further nodes may be launched; the cheapest plan would have several."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        scene.start(WITHOUT_ELECTION, "--max-nodes-total=1")
        scene.cluster.apply([deployment("web", 150, cpu="1700m", memory="3Gi")])
        assert await most(scene, 60) == 1
        assert len(scene.pods("Running")) > 40

    run_controller(tmp_path, scenario)


def test_replacement_beyond_the_limit_is_not_created(tmp_path):
    """Drift replaces first and removes then, so it needs a node to spare; without one it waits."""

    async def scenario(scene):
        pool = node_pool(disruption={**KEEP, "budgets": [{"nodes": "100%"}]})
        scene.cluster.apply([NODE_CLASS, pool, one_to_a_node(2)])
        scene.start(WITHOUT_ELECTION, "--max-nodes-total=2")
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        before = names(scene.nodes())
        labels = {"spec": {"template": {"metadata": {"labels": {"example.com/new": "yes"}}}}}
        scene.cluster.server.registry.patch(NODE_POOLS, labels, "general", "")
        assert await most(scene, 300) == 2
        assert names(scene.nodes()) == before
        assert not any(
            taint["key"] == "karpenter.sh/disrupted"
            for node in scene.nodes()
            for taint in node["spec"].get("taints") or []
        )

    run_controller(tmp_path, scenario)


def test_pool_launches_at_its_rate_and_loses_no_claim(tmp_path):
    """In no minute there are more; each has its turn."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), one_to_a_node(5)])
        scene.start(WITHOUT_ELECTION, "--launches-per-minute=2")
        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=200)
        made = sorted(
            datetime.fromisoformat(claim["metadata"]["creationTimestamp"])
            for claim in scene.claims()
        )
        waits = [third - first for first, third in zip(made, made[2:], strict=False)]
        assert len(waits) == 3
        assert min(waits) >= timedelta(seconds=59)
        assert max(waits) <= timedelta(seconds=80)
        messages = [event["message"] for event in scene.events("FailedScheduling")]
        assert any(
            "has reached its limit of 2 launch(es) per minute" in message for message in messages
        )

    run_controller(tmp_path, scenario)


def broken(folder, *faults):
    path = folder / "faults.json"
    path.write_text(json.dumps(list(faults)))
    return f"--kwok-faults-file={path}"


def launches(scene, folder) -> int:
    calls = cloud(scene, folder)["calls"]
    return sum(call["operation"] == "launch" and call["result"] == "launched" for call in calls)


@pytest.mark.cluster_runs
def test_pool_whose_nodes_never_register_backs_off(tmp_path):
    """Ten nodes at first, then one at a time; a success opens the pool again."""
    option = broken(tmp_path, {"fault": "failed-node"})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), one_to_a_node(10)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(14 * 60)
        assert launches(scene, tmp_path) == 10

        await scene.cluster.clock.sleep(3 * 60)
        assert launches(scene, tmp_path) == 11
        assert len(scene.claims()) == 1
        held = condition(scene.pool("general"), "LaunchesHeldBack")
        assert held is not None
        assert held["status"] == "True"
        assert "did not register" in held["message"]

        await scene.cluster.clock.sleep(100 * 60)
        assert launches(scene, tmp_path) <= 16
        labels = 'nodepool="general",reason="registration_failures"'
        assert running.metric(f"{HELD}{{{labels}}}") > 0
        messages = [event["message"] for event in scene.events("FailedScheduling")]
        assert any(
            'nodes of nodepool "general" in a row that were launched for such pods did not register'
            in m
            for m in messages
        )

        broken(tmp_path)
        await scene.settle(lambda: len(scene.pods("Running")) == 10, seconds=1800)
        await scene.settle(
            lambda: condition(scene.pool("general"), "LaunchesHeldBack") is None, seconds=60
        )

    run_controller(tmp_path, scenario, arguments=[option])


def test_pods_of_a_pool_on_hold_go_to_another_one(tmp_path):
    """The lighter pool takes what the heavier one cannot bring."""
    broken_claims = {"fault": "failed-node", "nodeClaims": ["preferred-*"]}
    option = broken(tmp_path, broken_claims)

    async def scenario(scene):
        pools = [
            node_pool("preferred", disruption=KEEP, weight=50),
            node_pool("spare", disruption=KEEP),
        ]
        scene.cluster.apply([NODE_CLASS, *pools, one_to_a_node(3)])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(10 * 60)
        assert scene.pods("Running") == []
        await scene.settle(lambda: len(scene.pods("Running")) >= 2, seconds=10 * 60)

    run_controller(tmp_path, scenario, arguments=[option])


def test_a_changed_pool_is_tried_at_once(tmp_path):
    """The change may have corrected the fault."""
    option = broken(tmp_path, {"fault": "failed-node"})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), one_to_a_node(4)])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(15 * 60 + 30)
        assert scene.claims() == []
        broken(tmp_path)
        labels = {"spec": {"template": {"metadata": {"labels": {"example.com/new": "yes"}}}}}
        scene.cluster.server.registry.patch(NODE_POOLS, labels, "general", "")
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=30)

    run_controller(tmp_path, scenario, arguments=[option])


@pytest.mark.parametrize("switch", ["setting", "annotation"])
def test_paused_disruption_deletes_nothing(tmp_path, switch):
    """Neither for being empty nor for its age; both are made up for when the pause ends."""
    arguments = ("--pause-disruption",) if switch == "setting" else ()
    eager = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}

    async def scenario(scene):
        pool = node_pool(disruption=eager, template={"expireAfter": "10m"})
        if switch == "annotation":
            pool["metadata"]["annotations"] = {"karpenter.sh/pause-disruption": "true"}
        scene.cluster.apply([NODE_CLASS, pool, one_to_a_node(2)])
        running = scene.start(WITHOUT_ELECTION, *arguments)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        before = names(scene.claims())
        scene.cluster.scale(DEPLOYMENTS, "web", 1)
        await scene.cluster.clock.sleep(30 * 60)
        assert names(scene.claims()) == before

        if switch == "setting":
            await running.stop()
            scene.start(WITHOUT_ELECTION)
        else:
            off = {"metadata": {"annotations": {"karpenter.sh/pause-disruption": None}}}
            scene.cluster.server.registry.patch(NODE_POOLS, off, "general", "")
        await scene.settle(lambda: not names(scene.claims()) & before, seconds=180)

    run_controller(tmp_path, scenario)
