"""The real scheduler allocates the devices of nodes that were launched for ResourceClaims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool
from tests.e2e.kwok import KwokCloud
from tests.support.device_manifests import API, CLASS, DRIVER, claim
from tests.support.runner import NODE_CLAIMS, ScenarioWorld, wait_until

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
DEVICES = [
    {"name": f"gpu-{number}", "attributes": {"model": {"string": "a100"}}} for number in range(2)
]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
]


def catalogue(folder: Path) -> Path:
    """Write a catalogue of a cheap type without devices and one with two."""
    requirements = [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    plain: dict[str, Any] = {
        "name": "plain",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "16Gi"},
        "offerings": [{"Price": 0.1, "Available": True, "Requirements": requirements}],
    }
    with_devices = {
        **plain,
        "name": "with-devices",
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": requirements}],
        "resourceSliceTemplates": [{"driver": DRIVER, "pool": "node", "devices": DEVICES}],
    }
    path = folder / "types.json"
    path.write_text(json.dumps([plain, with_devices]), encoding="utf-8")
    return path


def published(node: str) -> dict[str, Any]:
    """Return the ResourceSlice that a driver publishes on a node."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": DEVICES,
        },
    }


async def test_two_pods_share_a_node_whose_driver_publishes_two_devices(
    real_local_cluster: RealLocalCluster, tmp_path: Path
):
    template = {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"spec": claim("gpu")["spec"]},
    }
    pods = deployment(
        "train", 2, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    )
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        client = world.client
        await client.create(DEVICE_CLASSES, CLASS)
        await client.create(RESOURCE_CLAIM_TEMPLATES, template)
        try:
            for manifest in (NODE_CLASS, node_pool(), pods):
                await world.create(manifest)
            options = {
                "providers": "kwok",
                "ignore-dra-requests": "false",
                "instance-types-file": str(catalogue(tmp_path)),
            }
            await world.add_controller(options=options).start()

            async def has_node() -> bool:
                return bool(await client.list(NODES))

            await wait_until(has_node, seconds=60)

            async def waits_for_driver() -> bool:
                (made,) = await client.list(NODE_CLAIMS)
                return any(
                    one.get("reason") == "DRADriverPoolsNotPublished"
                    for one in made.get("status", {}).get("conditions", ())
                )

            await wait_until(waits_for_driver, seconds=60)
            (node,) = (one["metadata"]["name"] for one in await client.list(NODES))
            await client.create(RESOURCE_SLICES, published(node))

            async def is_running() -> bool:
                found = await client.list(PODS)
                return [one["status"]["phase"] for one in found] == ["Running"] * 2

            await wait_until(is_running, seconds=90)
            allocations = [
                one["status"]["allocation"]["devices"]["results"][0]
                for one in await client.list(RESOURCE_CLAIMS)
            ]
            assert {one["device"] for one in allocations} == {"gpu-0", "gpu-1"}

            async def is_initialized() -> bool:
                (made,) = await client.list(NODE_CLAIMS)
                return any(
                    one["type"] == "Initialized" and one["status"] == "True"
                    for one in made.get("status", {}).get("conditions", ())
                )

            await wait_until(is_initialized, seconds=60)
        finally:
            await client.delete(DEPLOYMENTS, "train")
            await client.delete(RESOURCE_CLAIM_TEMPLATES, "gpu")
            await client.delete(DEVICE_CLASSES, DRIVER)
            for one in await client.list(RESOURCE_SLICES):
                await client.delete(RESOURCE_SLICES, one["metadata"]["name"])
