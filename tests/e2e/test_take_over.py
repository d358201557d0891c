"""Karpenter's own controller and this one follow each other on one cluster, and no node is replaced."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.cli.rbac import render_rbac
from karpenter_core.kube.resources import NODES, PODS, ResourceKind
from karpenter_core.testing.scenarios import InitialObjects, ScenarioDeployment, ScenarioNodePool
from karpenter_provider_kwok.plugin import KwokProvider
from tests.e2e.kwok import KwokCloud
from tests.e2e.reference import GATES, reference_controller
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS, NODE_OVERLAYS, NODE_POOLS, ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.local_clusters import RealLocalCluster

ROOT: Final = Path(__file__).parents[2]
CRDS: Final = tuple(sorted((ROOT / "crds").glob("*.yaml")))
QUIET_SECONDS: Final = 25.0
"""So long nothing may change after a change of controllers; drift is judged within seconds."""
DOCTOR_SECONDS: Final = 60.0
RBAC: Final = "rbac.authorization.k8s.io"
ACCOUNT: Final = "system:serviceaccount:kube-system:doctor"
ROLE_KINDS: Final = {
    "ClusterRole": ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": ResourceKind(
        RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "Role": ResourceKind(RBAC, "v1", "roles", "Role", namespaced=True),
    "RoleBinding": ResourceKind(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True),
}
OVERLAID_PRICE: Final = "0.5"
"""Of each node of the static NodePool, by its overlay."""
GIVEN: Final = InitialObjects(
    node_pools=[
        ScenarioNodePool(
            name="general",
            disruption={
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
            labels={"team": "web"},
        ),
        ScenarioNodePool(
            name="fixed",
            replicas=2,
            limits={"nodes": "4"},
            taints=[{"key": "fixed", "effect": "NoSchedule"}],
            # Karpenter's kwok provider chooses no instance type itself.
            requirements=[
                {
                    "key": "node.kubernetes.io/instance-type",
                    "operator": "In",
                    "values": ["mem1.xlarge"],
                }
            ],
        ),
    ],
    manifests=[
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "fixed"},
            "spec": {
                "weight": 10,
                "requirements": [{"key": NODE_POOL, "operator": "In", "values": ["fixed"]}],
                "price": OVERLAID_PRICE,
            },
        },
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "general"},
            "spec": {
                "requirements": [{"key": NODE_POOL, "operator": "In", "values": ["general"]}],
                "priceAdjustment": "-50%",
                "capacity": {"example.com/licence": "8"},
            },
        },
    ],
    deployments=[ScenarioDeployment(name="web", replicas=6, cpu="1500m", memory="1Gi")],
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(480),
]


def shipped_catalogue() -> bytes:
    """Return the kwok provider's instance types, in the form that both controllers read."""
    return subprocess.check_output([sys.executable, "-m", "karpenter_provider_kwok", "catalogue"])


def doctor(kubeconfig: Path, folder: Path, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the findings of `karpenter doctor --take-over`."""
    flags = {"kubeconfig": str(kubeconfig), "cache-folder": str(folder / "doctor"), **options}
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from karpenter_core.cli.main import main; main()",
            "doctor",
            "--take-over",
            "--output=json",
            *(f"--{flag}={value}" for flag, value in flags.items()),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=DOCTOR_SECONDS,
    )
    try:
        return json.loads(ended.stdout)
    except ValueError:
        pytest.fail(f"no JSON: {ended.stdout[-2000:]} {ended.stderr[-2000:]}")


async def state(world: ScenarioWorld) -> dict[str, dict[str, str]]:
    """Return the names of claims, nodes of claims and pods by UID."""
    nodes = [
        node
        for node in await world.client.list(NODES)
        if NODE_POOL in node["metadata"].get("labels", {})
    ]
    return {
        "claims": _named(await world.client.list(NODE_CLAIMS)),
        "nodes": _named(nodes),
        "pods": _named(await world.client.list(PODS)),
    }


def _named(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {each["metadata"]["uid"]: each["metadata"]["name"] for each in objects}


async def running(world: ScenarioWorld, count: int, *, seconds: float = 90) -> None:
    """Wait until so many pods run and every claim is Initialized."""

    async def holds() -> bool:
        pods = await world.client.list(PODS)
        claims = await world.client.list(NODE_CLAIMS)
        return sum(pod["status"].get("phase") == "Running" for pod in pods) == count and all(
            any(
                condition["type"] == "Initialized" and condition["status"] == "True"
                for condition in claim.get("status", {}).get("conditions", [])
            )
            for claim in claims
        )

    await wait_until(holds, seconds=seconds)


async def is_overlaid(world: ScenarioWorld) -> bool:
    """Tell whether the overlays were accepted."""
    overlays = await world.client.list(NODE_OVERLAYS)
    return len(overlays) == 2 and all(
        any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in overlay.get("status", {}).get("conditions", ())
        )
        for overlay in overlays
    )


async def check_costs(world: ScenarioWorld, metrics: str, catalogue: bytes) -> None:
    """Check that the nodes of each NodePool cost what its overlay says."""
    for name, cost in (await overlaid_costs(world, catalogue)).items():
        series = f'karpenter_nodepools_cost_total{{nodepool="{name}"}} '
        lines = [line for line in metrics.splitlines() if line.startswith(series)]
        assert [float(line[len(series) :]) for line in lines] == [pytest.approx(cost)], name


async def overlaid_costs(world: ScenarioWorld, catalogue: bytes) -> dict[str, float]:
    """Return what the nodes of each NodePool cost: half of the list price in the dynamic one."""
    prices = {
        (each["name"], *(_value(offering, key) for key in (ZONE, CAPACITY_TYPE))): offering["Price"]
        for each in json.loads(catalogue)
        for offering in each["offerings"]
    }
    general = 0.0
    for node in await world.client.list(NODES):
        labels = node["metadata"].get("labels", {})
        if labels.get(NODE_POOL) == "general":
            general += prices[labels[INSTANCE_TYPE], labels[ZONE], labels[CAPACITY_TYPE]] / 2
    return {"fixed": 2 * float(OVERLAID_PRICE), "general": general}


def _value(offering: dict[str, Any], key: str) -> str:
    (value,) = next(each["values"] for each in offering["Requirements"] if each["key"] == key)
    return value


async def fixed_nodes(world: ScenarioWorld, replicas: int) -> None:
    """Set the replicas of the static NodePool, and wait for so many nodes of it."""
    await world.client.patch(NODE_POOLS, "fixed", {"spec": {"replicas": replicas}})

    async def holds() -> bool:
        nodes = await world.client.list(NODES)
        pools = [node["metadata"].get("labels", {}).get(NODE_POOL) for node in nodes]
        return pools.count("fixed") == replicas

    await wait_until(holds, seconds=60)


async def remove_all(world: ScenarioWorld) -> None:
    """Remove the pods and the static nodes, and wait until nothing is left."""
    await world.scale("web", 0)
    await fixed_nodes(world, 0)

    async def nothing_left() -> bool:
        return not any((await state(world)).values())

    await wait_until(nothing_left, seconds=120)


async def test_nodes_stay_when_controllers_follow_each_other(
    real_local_cluster: RealLocalCluster, tmp_path
):
    """From Karpenter to this controller and back again, each launching nodes of its own."""
    catalogue = tmp_path / "catalogue.json"
    shipped = await asyncio.to_thread(shipped_catalogue)
    catalogue.write_bytes(shipped)
    kubeconfig = real_local_cluster.kubeconfig
    ours = {
        "providers": "kwok",
        "instance-types-file": str(catalogue),
        "feature-gates": GATES,
    }
    limited = real_local_cluster.control_plane.write_kubeconfig(ACCOUNT, organization="nobody")
    roles = render_rbac(
        [KwokProvider().karpenter_provider_info()],
        namespace="kube-system",
        service_account="doctor",
        observe=True,
    )
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        first = reference_controller(kubeconfig, tmp_path, catalogue, name="reference")
        second = reference_controller(kubeconfig, tmp_path, catalogue, name="reference-again")
        for role in roles:
            await world.client.create(ROLE_KINDS[role["kind"]], role)
        try:
            await first.start()
            for manifest in GIVEN.objects():
                await world.create(manifest)
            await fixed_nodes(world, 2)
            await running(world, 6)
            await wait_until(lambda: is_overlaid(world), seconds=60)
            left = await state(world)
            assert left["claims"]
            assert left["nodes"]

            beside = await asyncio.to_thread(doctor, limited, tmp_path, {**ours, "observe": "true"})
            assert not [each for each in beside if each["severity"] == "error"], beside
            assert "forbidden" not in json.dumps(beside)
            await first.stop()
            controller = world.add_controller(options=ours)
            await controller.start()
            await asyncio.sleep(QUIET_SECONDS)
            assert await state(world) == left, "taken over without a change"
            assert await is_overlaid(world)
            await check_costs(world, await controller.metrics(), shipped)

            await world.scale("web", 12)
            await fixed_nodes(world, 3)
            await running(world, 12)
            grown = await state(world)
            assert all(left[kind].items() <= grown[kind].items() for kind in left)
            assert len(grown["claims"]) > len(left["claims"])
            await controller.process.stop()

            await second.start()
            await asyncio.sleep(QUIET_SECONDS)
            assert await state(world) == grown, "handed back without a change"
            await remove_all(world)
        finally:
            await first.stop()
            await second.stop()
            for role in reversed(roles):
                metadata = role["metadata"]
                await world.client.delete(
                    ROLE_KINDS[role["kind"]], metadata["name"], metadata.get("namespace", "")
                )
