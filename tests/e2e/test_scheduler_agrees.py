"""Plans put odd pods on existing nodes exactly where the real kube-scheduler binds them.

A pod that the plan puts on a node which kube-scheduler refuses would stay pending for ever; one that
is refused by the plan only would get a node of its own, or keep its node from consolidation.
`KARPENTER_SCHEDULER_SEED` draws other clusters.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from karpenter_core.kube import resources
from karpenter_core.testing.cluster import ClusterClient, ClusterError
from tests.peer.our_plans import plan
from tests.support.drawn_placements import CASE, HOST, SIZE, ZONE, DrawnCluster, draw_cluster
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

SEED: Final = int(os.environ.get("KARPENTER_SCHEDULER_SEED", "1"))
CLUSTERS: Final = 80
READY_SECONDS: Final = 120.0
GATED: Final = "SchedulingGated"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]


async def test_existing_nodes_take_the_pods_that_kube_scheduler_binds(
    real_local_cluster: LocalCluster,
):
    random = Random(SEED)
    clusters = [
        *_known_cases(),
        *(draw_cluster(random, f"drawn-{SEED}-{n}") for n in range(CLUSTERS)),
    ]
    async with ClusterClient(real_local_cluster.kubeconfig) as client:
        try:
            await asyncio.gather(*(_create_nodes(client, each) for each in clusters))
            await wait_until(lambda: _is_ready(client), seconds=READY_SECONDS)
            await asyncio.gather(*(_create_pods(client, each) for each in clusters))
            await wait_until(lambda: _is_ready(client), seconds=READY_SECONDS)
            planned = await asyncio.to_thread(plan, await _read(client), [])
            on_nodes = {pod for pods in planned["existingNodes"].values() for pod in pods}
            for each in clusters:
                await client.patch(
                    resources.PODS, "waiting", {"spec": {"schedulingGates": None}},
                    namespace=each.waiting["metadata"]["namespace"],
                )  # fmt: skip
            await wait_until(lambda: _is_decided(client), seconds=READY_SECONDS)
            pods = await _waiting(client)
        finally:
            await asyncio.gather(*(_delete(client, each) for each in clusters))
    bound = {key for key, pod in pods.items() if pod["spec"].get("nodeName")}
    assert len(pods) == len(clusters)
    assert {"apart/waiting", "sized/waiting"} & bound == set()
    assert "both/waiting" in bound
    assert _described(on_nodes - bound, pods) == {}, f"planned, but not bound (seed {SEED})"
    assert _described(bound - on_nodes, pods) == {}, f"bound, but not planned (seed {SEED})"


def _described(keys: set[str], pods: dict[str, Any]) -> dict[str, Any]:
    return {key: (pods[key]["spec"], pods[key]["status"].get("conditions")) for key in sorted(keys)}


def _known_cases() -> list[DrawnCluster]:
    """Return cases that a solver which counts term by term, or label by label, gets wrong."""
    cache, both = ({"app": "cache"}, {"app": "cache", "role": "db"})
    terms = [
        {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
        for labels in (cache, {"role": "db"})
    ]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    expressions = [
        {"key": SIZE, "operator": "Gt", "values": ["1"]},
        {"key": SIZE, "operator": "NotIn", "values": ["3"]},
    ]
    sized = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]
            }
        }
    }
    return [
        _case("apart", near, cache, {"role": "db"}),
        _case("both", near, both),
        _case("sized", sized),
    ]


def _case(name: str, affinity: dict[str, Any], *running: dict[str, str]) -> DrawnCluster:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {CASE: name, HOST: name, ZONE: f"zone-{name}"}
    container = {"name": "main", "image": "pause"}
    waiting = {
        "nodeSelector": {CASE: name},
        "affinity": affinity,
        "containers": [container],
        "schedulingGates": [{"name": "example.com/planning"}],
    }

    def made(kind: str, metadata: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}

    return DrawnCluster(
        namespaces=(made("Namespace", {"name": name}),),
        nodes=(
            made(
                "Node", {"name": name, "labels": labels},
                status={"allocatable": amounts, "capacity": amounts},
            ),
        ),
        running=tuple(
            made(
                "Pod", {"name": f"running-{number}", "namespace": name, "labels": pod_labels},
                spec={"nodeName": name, "containers": [container]},
            )
            for number, pod_labels in enumerate(running)
        ),
        waiting=made("Pod", {"name": "waiting", "namespace": name}, spec=waiting),
    )  # fmt: skip


async def _create_nodes(client: ClusterClient, cluster: DrawnCluster) -> None:
    for namespace in cluster.namespaces:
        await client.create(resources.NAMESPACES, namespace)
    for node in cluster.nodes:
        await client.create(resources.NODES, node)


async def _create_pods(client: ClusterClient, cluster: DrawnCluster) -> None:
    """Create the pods; kwok runs those on nodes that it knows."""
    for pod in (*cluster.running, cluster.waiting):
        await wait_until(lambda pod=pod: _has_created(client, pod), seconds=READY_SECONDS)


async def _has_created(client: ClusterClient, pod: dict[str, Any]) -> bool:
    """Create a pod; the service account of a new namespace takes a moment."""
    try:
        await client.create(resources.PODS, pod)
    except ClusterError as error:
        if error.code == 403:
            return False
        raise
    return True


async def _delete(client: ClusterClient, cluster: DrawnCluster) -> None:
    for pod in (*cluster.running, cluster.waiting):
        await client.delete(resources.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    for node in cluster.nodes:
        await client.delete(resources.NODES, node["metadata"]["name"])
    for namespace in cluster.namespaces:
        await client.delete(resources.NAMESPACES, namespace["metadata"]["name"])


async def _is_ready(client: ClusterClient) -> bool:
    """Tell whether every node is ready, and every pod on a node runs."""
    nodes, pods = await client.list(resources.NODES), await client.list(resources.PODS)
    starting = [
        taint
        for node in nodes
        for taint in node["spec"].get("taints", ())
        if taint["key"] == "node.kubernetes.io/not-ready"
    ]
    return not starting and all(
        pod["status"].get("phase") == "Running" for pod in pods if pod["spec"].get("nodeName")
    )


async def _read(client: ClusterClient) -> dict[str, Any]:
    pods = await client.list(resources.PODS)
    for pod in pods:
        pod["spec"].pop("schedulingGates", None)
    return {
        "nodes": await client.list(resources.NODES),
        "pods": pods,
        "namespaces": await client.list(resources.NAMESPACES),
    }


async def _waiting(client: ClusterClient) -> dict[str, Any]:
    return {
        f"{pod['metadata']['namespace']}/waiting": pod
        for pod in await client.list(resources.PODS)
        if pod["metadata"]["name"] == "waiting"
    }


async def _is_decided(client: ClusterClient) -> bool:
    """Tell whether kube-scheduler has bound or refused every pod."""
    return all(
        pod["spec"].get("nodeName")
        or any(
            each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ())
        )
        for pod in (await _waiting(client)).values()
    )
