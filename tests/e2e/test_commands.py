"""Commands that look at a cluster, on a real control plane: with get and list only, and on a snapshot."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind
from karpenter_core.testing.scenarios import Expectation, InitialObjects
from tests.e2e.kwok import KwokCloud
from tests.support.processes import free_ports, wait_until
from tests.support.runner import NODE_CLAIMS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
READER = "reader"
RBAC = "rbac.authorization.k8s.io"
ROLES = ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ResourceKind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLE = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": READER},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
}
BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": READER},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": READER},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": READER}],
}
GIVEN = {
    "nodePools": [
        {
            "name": "general",
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"},
        }
    ],
    "deployments": [{"name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}],
}
STUCK = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "stuck", "namespace": "default"},
    "spec": {
        "nodeSelector": {"kubernetes.io/arch": "riscv64"},
        "containers": [
            {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}
        ],
    },
}
ANSWERS = (
    ("plan", "-o", "json"),
    ("plan", "--rebalance", "-o", "json"),
    ("explain", "pod", "default/stuck", "-o", "json"),
    ("explain", "nodepool", "general", "-o", "json"),
    ("top", "-o", "json"),
)
"""Commands whose answers are the same on a snapshot; others name objects of the test."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]


async def karpenter(*arguments: str) -> str:
    """Return what a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "karpenter_core.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, (arguments, output.decode(), errors.decode())
    return output.decode()


def lasting(answer: str) -> dict[str, Any]:
    """Return an answer in JSON without what the time of the question decides."""
    volatile = {
        "decisions",
        "timings",
        "ageSeconds",
        "age",
        "createdAt",
        "settlesAt",
        "nominatedUntil",
    }

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: kept(inner) for name, inner in value.items() if name not in volatile}
        return [kept(inner) for inner in value] if isinstance(value, list) else value

    return kept(json.loads(answer))


async def test_commands_answer_with_rights_to_read_only_and_alike_on_a_snapshot(
    real_local_cluster: RealLocalCluster, tmp_path
):
    kubeconfig = real_local_cluster.control_plane.write_kubeconfig(READER, organization="nobody")
    (port,) = free_ports(1)
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        await world.client.create(ROLES, ROLE)
        await world.client.create(BINDINGS, BINDING)
        try:
            for manifest in InitialObjects.model_validate(GIVEN).objects():
                await world.create(manifest)
            options = {"providers": "kwok", "dashboard-port": str(port)}
            await world.add_controller(options=options).start()
            running = {"within": "90s", "consistent": True, "pods": {"running": 3}}
            await world.expect(Expectation.model_validate(running))
            await world.create(STUCK)
            await wait_until(lambda: is_unschedulable(world), seconds=30)
            await check_commands(world, kubeconfig, tmp_path / "cluster.json.gz")
            await check_dashboard(world, f"http://127.0.0.1:{port}")
        finally:
            await world.client.delete(resources.PODS, "stuck", "default")
            await world.client.delete(BINDINGS, READER)
            await world.client.delete(ROLES, READER)


async def is_unschedulable(world: ScenarioWorld) -> bool:
    """Whether the real scheduler has found no node for the pod."""
    pod = await world.client.get(resources.PODS, "stuck", "default")
    conditions = (pod or {}).get("status", {}).get("conditions", [])
    return any(each.get("reason") == "Unschedulable" for each in conditions)


async def check_commands(world: ScenarioWorld, kubeconfig: Path, snapshot: Path) -> None:
    cluster = (f"--kubeconfig={kubeconfig}",)
    (node, *_), (claim, *_) = (
        [each["metadata"]["name"] for each in world.mirror.objects(kind)]
        for kind in (resources.NODES, NODE_CLAIMS)
    )
    named = (
        ("explain", "node", node, "-o", "json"),
        ("explain", "nodeclaim", claim, "-o", "json"),
    )
    await karpenter("snapshot", "-o", str(snapshot), *cluster)
    questions = (*ANSWERS, *named)
    live = await asyncio.gather(*(karpenter(*each, *cluster) for each in questions))
    saved = await asyncio.gather(
        *(karpenter(*each, "--offline", str(snapshot)) for each in questions)
    )
    for question, first, second in zip(questions, live, saved, strict=True):
        assert lasting(first) == lasting(second), question
    plan, rebalance, pod, _, top, of_node, of_claim = map(json.loads, live)
    nodes = len(world.mirror.objects(resources.NODES))
    assert (plan["nodeClaims"], list(plan["unschedulable"])) == ([], ["default/stuck"])
    assert rebalance["before"] == rebalance["after"]
    assert pod["answer"].startswith("default/stuck: stays pending")
    assert "riscv64" in pod["answer"]
    assert (top["totals"]["nodes"], top["totals"]["pendingPods"]) == (nodes, 1)
    assert of_node["answer"].startswith(node)
    assert of_claim["answer"].startswith(claim)


async def check_dashboard(world: ScenarioWorld, url: str) -> None:
    """The page of the controller shows the same nodes, and the pod that has none."""
    nodes = {each["metadata"]["name"] for each in world.mirror.objects(resources.NODES)}
    async with aiohttp.ClientSession() as session:

        async def shows_all() -> bool:
            async with session.get(f"{url}/dashboard/v1/state") as answer:
                document = json.loads(await answer.text())
            shown = {each["name"] for each in document["nodes"]}
            return shown == nodes and [each["pod"] for each in document["pendingPods"]] == [
                "default/stuck"
            ]

        await wait_until(shows_all, seconds=30)
