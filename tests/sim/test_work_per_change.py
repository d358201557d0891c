"""The controllers of the embedded cluster do work per change, and lose no pod by it."""

from __future__ import annotations

import asyncio
import random

import pytest

from karpenter_core.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
)
from karpenter_core.sim import filters
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.fields import labels_of
from karpenter_core.sim.pods import is_ready
from karpenter_core.sim.topology import PlacementView
from karpenter_core.sim.virtual_time import run_virtual
from tests.sim.objects import budget, deployment, node, pod, workload

DEFAULT = "default"


def viewed(cluster):
    """Return the placement of all pods, read from the store alone."""
    view = PlacementView({"default": {}})
    for each in cluster.list(NODES):
        view.set_node(each)
    for each in cluster.list(PODS):
        ended = each["status"].get("phase") in {"Succeeded", "Failed"}
        if each["spec"].get("nodeName") and not ended:
            view.add_pod(each, each["spec"]["nodeName"])
    return view


def test_node_by_node_many_pods_find_their_place(monkeypatch):
    """Each node is compared with the shape of the pods, not with each pod that waits."""
    compared = 0
    static_refusal = filters.static_refusal

    def counting(of_pod, of_node):
        nonlocal compared
        compared += 1
        return static_refusal(of_pod, of_node)

    monkeypatch.setattr("karpenter_core.sim.pod_groups.static_refusal", counting)

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([deployment("web", replicas=400, cpu="1")])
            await asyncio.sleep(5)
            for number in range(100):
                cluster.apply([node(f"node-{number}", cpu="4")])
                await asyncio.sleep(1)
            await asyncio.sleep(30)
            return sum(bool(each["spec"].get("nodeName")) for each in cluster.list(PODS))

    assert run_virtual(scenario()) == 400
    assert compared < 10 * 400  # 20,000 if all pods were evaluated at each node


SHAPES = (
    {"cpu": "1"},
    {"cpu": "3"},
    {"cpu": "1", "nodeSelector": {"disk": "fast"}},
    {"cpu": "500m", "tolerations": [{"key": "dedicated", "operator": "Exists"}]},
    {
        "cpu": "500m",
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "shape-4"}},
            }
        ],
    },
    {
        "cpu": "250m",
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": "shape-0"}},
                    }
                ]
            }
        },
    },
)


def change(cluster, rng, number):
    """Change something: nodes come, go and change, pods come and go."""
    nodes = [each["metadata"]["name"] for each in cluster.list(NODES)]
    pods = [each["metadata"]["name"] for each in cluster.list(PODS)]
    match rng.choice(["pod", "pod", "pod", "node", "node", "gone", "ended", "cordon", "label"]):
        case "node":
            taints = [{"key": "dedicated", "effect": "NoSchedule"}] if rng.random() < 0.3 else []
            zone = rng.choice(["a", "b", "c"])
            disk = rng.choice(["fast", "slow"])
            cluster.apply([node(f"node-{number}", zone=zone, taints=taints, disk=disk)])
        case "gone" if len(nodes) > 3:
            cluster.delete(NODES, rng.choice(nodes))
        case "ended" if pods:
            cluster.delete(PODS, rng.choice(pods), namespace=DEFAULT)
        case "cordon" if nodes:
            spec = {"spec": {"unschedulable": rng.random() < 0.5}}
            cluster.patch(NODES, rng.choice(nodes), spec)
        case "label" if nodes:
            labels = {"disk": rng.choice(["fast", "slow"])}
            cluster.patch(NODES, rng.choice(nodes), {"metadata": {"labels": labels}})
        case _:
            kind = rng.randrange(len(SHAPES))
            labels = {"app": f"shape-{kind}"}
            for copy in range(rng.randint(1, 5)):
                made = pod(f"pod-{number}-{copy}", labels=labels, **SHAPES[kind])
                cluster.apply([made | {"metadata": {**made["metadata"], "uid": None}}])


@pytest.mark.parametrize("preference", ["least-allocated", "most-allocated"])
@pytest.mark.parametrize("seed", range(6))
def test_no_pod_waits_while_a_node_takes_it(seed, preference):
    """After random changes an independent view, built anew, refuses each waiting pod everywhere."""

    async def scenario():
        rng, waited = random.Random(seed), 0
        async with EmbeddedCluster(preference=preference) as cluster:
            for number in range(60):
                change(cluster, rng, number)
                await asyncio.sleep(rng.choice([0, 0, 15]))
                if number % 5 == 4:
                    await asyncio.sleep(60)
                    view = viewed(cluster)
                    for each in cluster.list(PODS):
                        if not each["spec"].get("nodeName"):
                            waited += 1
                            fitting = [
                                name for name in view.nodes if view.refusal(each, name) is None
                            ]
                            assert not fitting, (number, each["metadata"]["name"], fitting)
            return waited

    assert run_virtual(scenario()) > 0


@pytest.mark.parametrize("seed", range(4))
def test_counts_of_pods_are_those_of_the_objects(seed):
    """ReplicaSets and PodDisruptionBudgets agree with a count over all pods."""

    async def scenario():
        rng = random.Random(seed)
        async with EmbeddedCluster() as cluster:
            cluster.apply(node(f"node-{number}") for number in range(3))
            cluster.apply([deployment("web", replicas=9), deployment("api", replicas=4)])
            cluster.apply([budget("web", "web", maxUnavailable=2)])
            for _ in range(25):
                match rng.choice(["scale", "delete", "evict", "relabel", "budget"]):
                    case "scale":
                        cluster.scale(DEPLOYMENTS, rng.choice(["web", "api"]), rng.randint(0, 12))
                    case "relabel" if cluster.list(PODS):
                        name = rng.choice(cluster.list(PODS))["metadata"]["name"]
                        labels = {"app": rng.choice(["web", "other"])}
                        cluster.patch(
                            PODS, name, {"metadata": {"labels": labels}}, namespace=DEFAULT
                        )
                    case "budget":
                        spec = {"spec": {"maxUnavailable": rng.randint(1, 4)}}
                        cluster.patch(POD_DISRUPTION_BUDGETS, "web", spec, namespace=DEFAULT)
                    case _ if cluster.list(PODS):
                        name = rng.choice(cluster.list(PODS))["metadata"]["name"]
                        cluster.delete(PODS, name, namespace=DEFAULT)
                    case _:
                        pass
                await asyncio.sleep(rng.choice([0, 1, 60]))
            await asyncio.sleep(120)
            pods = cluster.list(PODS)
            for replica_set in cluster.list(REPLICA_SETS):
                own = [
                    each
                    for each in pods
                    if each["metadata"]["ownerReferences"][0]["uid"]
                    == replica_set["metadata"]["uid"]
                ]
                status = replica_set["status"]
                assert status["replicas"] == len(own) == replica_set["spec"]["replicas"]
                assert status["readyReplicas"] == sum(map(is_ready, own))
            covered = [each for each in pods if labels_of(each).get("app") == "web"]
            status = cluster.find(POD_DISRUPTION_BUDGETS, "web", namespace=DEFAULT)["status"]
            assert status["currentHealthy"] == sum(map(is_ready, covered))
            return len(pods)

    run_virtual(scenario())


def test_a_daemon_set_compares_each_node_once(monkeypatch):
    """Until the node or the DaemonSet changes, however often its pods do."""
    compared = 0
    static_refusal = filters.static_refusal

    def counting(of_pod, of_node):
        nonlocal compared
        compared += 1
        return static_refusal(of_pod, of_node)

    monkeypatch.setattr("karpenter_core.sim.workloads.static_refusal", counting)

    async def scenario():
        nonlocal compared
        async with EmbeddedCluster() as cluster:
            cluster.apply([workload("DaemonSet", "agent", nodeSelector={"disk": "fast"})])
            for number in range(60):
                cluster.apply([node(f"node-{number:02d}", disk=("fast", "slow")[number % 2])])
                await asyncio.sleep(1)
            await asyncio.sleep(30)
            counts = [len(cluster.list(PODS))]
            assert compared < 4 * 60  # 1,830 if all nodes were compared at each new one
            cluster.patch(NODES, "node-01", {"metadata": {"labels": {"disk": "fast"}}})
            await asyncio.sleep(30)
            counts.append(len(cluster.list(PODS)))
            spec = {"template": {"spec": {"nodeSelector": {"disk": "slow"}}}}
            cluster.patch(DAEMON_SETS, "agent", {"spec": spec}, namespace=DEFAULT)
            await asyncio.sleep(60)
            counts.append(len(cluster.list(PODS)))
            return counts

    assert run_virtual(scenario()) == [30, 31, 29]
