"""Capacity beyond pending pods on a real control plane, under the unchanged CRDs of the upstream projects."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from benchmarks.peer import GO_ENVIRONMENT
from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.api.provisioning_request import GANG_REQUEST
from karpenter_core.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    POD_TEMPLATES,
    VERTICAL_POD_AUTOSCALERS,
)
from karpenter_core.kube.wire.codecs import CAPACITY_BUFFERS, PROVISIONING_REQUESTS
from karpenter_core.testing.scenarios import Expectation, InitialObjects
from tests.controllers.gangs import request, template
from tests.controllers.whole_controller import deployment
from tests.e2e.kwok import KwokCloud
from tests.e2e.test_kueue import KUEUE
from tests.e2e.upstream.suite import module_folder
from tests.support.controlplane import BinariesMissingError
from tests.support.local_clusters import RealLocalCluster
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS, NODE_OVERLAYS, NODE_POOLS, ScenarioWorld
from tests.support.shared_clusters import PROCESS_CORES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
KINDS = (PROVISIONING_REQUESTS, POD_TEMPLATES, DEPLOYMENTS, VERTICAL_POD_AUTOSCALERS)
AUTOSCALER = "k8s.io/autoscaler/vertical-pod-autoscaler@v1.5.1"
"""The module with the CRD of VerticalPodAutoscalers; `.ci/run` downloads it too."""
CORES = "karpenter.kwok.sh/instance-cpu"
TWO_CORES = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {"key": CORES, "operator": "In", "values": ["2"]},
]
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(400),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(kubernetes: str) -> AsyncIterator[RealLocalCluster]:
    """A real control plane of its own: others have our CRDs, of the same names."""
    try:
        local_cluster = RealLocalCluster(kubernetes, cores=PROCESS_CORES)
    except BinariesMissingError as error:
        pytest.fail(str(error))
    async with local_cluster:
        yield local_cluster


@pytest.fixture(scope="session")
def autoscaler_crd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CRD of VerticalPodAutoscalers alone, as it is in the file of several."""
    folder = tmp_path_factory.mktemp("autoscaler")
    command = ["go", "mod", "download", "-json", AUTOSCALER]
    answer = subprocess.run(
        command, cwd=folder, env=os.environ | GO_ENVIRONMENT, check=True, stdout=subprocess.PIPE
    )
    file = Path(json.loads(answer.stdout)["Dir"]) / "deploy" / "vpa-v1-crd-gen.yaml"
    (definition,) = (
        each
        for each in yaml.safe_load_all(file.read_text())
        if each and each["spec"]["names"]["kind"] == "VerticalPodAutoscaler"
    )
    written = folder / "verticalpodautoscalers.yaml"
    written.write_text(yaml.safe_dump(definition))
    return written


@pytest_asyncio.fixture(loop_scope="session")
async def world(
    cluster: RealLocalCluster, autoscaler_crd: Path, tmp_path: Path
) -> AsyncIterator[ScenarioWorld]:
    """The cluster with the CRDs of Karpenter and both autoscalers; only kwok's class is ours."""
    crds = [
        *sorted((module_folder() / "pkg/apis/crds").glob("*.yaml")),
        KUEUE / "crds" / "autoscaling.x-k8s.io_provisioningrequests.yaml",
        autoscaler_crd,
        ROOT / "crds" / "karpenter.kwok.sh_kwoknodeclasses.yaml",
    ]
    async with ScenarioWorld(cluster, KwokCloud(), tmp_path, crds=crds, kinds=KINDS) as world:
        yield world


async def prepare(world: ScenarioWorld, options: dict[str, str], given: dict[str, Any]) -> None:
    """Create objects and start a controller with these options."""
    for manifest in InitialObjects.model_validate(given).objects():
        await world.create(manifest)
    merged = {"providers": "kwok", "disable-leader-election": "true", **options}
    await world.add_controller(options=merged).start()


async def expect(world: ScenarioWorld, **expected: Any) -> None:
    await world.expect(Expectation.model_validate(expected))


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    return {
        each["type"]: (each["status"], each["reason"])
        for each in found.get("status", {}).get("conditions", ())
    }


async def test_a_price_of_an_overlay_decides_which_type_is_launched(world: ScenarioWorld):
    await world.create(
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "paid"},
            "spec": {
                "weight": 10,
                "requirements": [
                    {"key": INSTANCE_TYPE, "operator": "In", "values": ["mem1.2xlarge"]}
                ],
                "price": "0.001",
            },
        }
    )
    try:
        await prepare(
            world,
            {"feature-gates": "NodeOverlay=true"},
            {
                "nodePools": [{"name": "general", "disruption": NEVER}],
                "deployments": [{"name": "web", "replicas": 1}],
            },
        )
        await expect(world, within="90s", pods={"running": 1}, nodes=1, consistent=True)
        (node,) = world.mirror.objects(NODES)
        assert node["metadata"]["labels"][INSTANCE_TYPE] == "mem1.2xlarge"
        (overlay,) = await world.client.list(NODE_OVERLAYS)
        assert conditions(overlay)["Ready"][0] == "True"
        (controller,) = world.controllers.values()

        async def costs_the_price_of_the_overlay() -> bool:
            lines = (await controller.metrics()).splitlines()
            return 'karpenter_nodepools_cost_total{nodepool="general"} 0.001' in lines

        await wait_until(costs_the_price_of_the_overlay, seconds=30)
    finally:
        await world.client.delete(NODE_OVERLAYS, "paid")


async def test_the_nodes_of_a_buffer_stay_until_the_buffer_goes(world: ScenarioWorld):
    """Nodes that consolidation deletes at once otherwise, as it does in the end."""
    buffer = {
        "apiVersion": CAPACITY_BUFFERS.api_version,
        "kind": "CapacityBuffer",
        "metadata": {"name": "headroom", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "workers"}, "replicas": 2},
    }
    pool = {"name": "general", "requirements": TWO_CORES, "disruption": CONSOLIDATING}
    await prepare(world, {"feature-gates": "CapacityBuffer=true"}, {"nodePools": [pool]})
    await world.create(template())
    await world.create(buffer)
    try:
        await expect(world, within="90s", hold="15s", nodes=2, ready_nodes=2, launched=2)
        (found,) = await world.client.list(CAPACITY_BUFFERS)
        assert found["status"]["replicas"] == 2
        assert conditions(found)["Provisioning"] == ("True", "FitsExistingCapacity")
    finally:
        await world.client.delete(CAPACITY_BUFFERS, "headroom")
    await expect(world, within="90s", nothing_left=True, launched=2)


def zonal(name: str, zone: str) -> dict[str, Any]:
    """Return a template of pods that fill half a node in a zone."""
    return template(name, nodeSelector={ZONE: zone})


async def test_atomic_requests_that_fail_leave_nothing_also_after_a_kill(
    world: ScenarioWorld, tmp_path: Path
):
    """One exceeds the limits, of the other a zone is sold out; the controller dies before the clean-up."""
    pool = {
        "name": "general",
        "requirements": TWO_CORES,
        "disruption": NEVER,
        "limits": {"cpu": "8"},
    }
    KwokCloud().suffer(tmp_path, [{"fault": "stock-out", "zones": ["test-zone-b"]}])
    await prepare(world, {"provisioning-requests": "true"}, {"nodePools": [pool]})
    for manifest in (zonal("first", "test-zone-a"), zonal("second", "test-zone-b")):
        await world.create(manifest)
    await world.create(request("large", ("first", 20)))
    await world.create(request("torn", ("first", 1), ("second", 1)))

    async def are_refused() -> bool:
        return [
            conditions(each).get("Provisioned")
            for each in await world.client.list(PROVISIONING_REQUESTS)
        ] == [("False", "CapacityIsNotFound")] * 2

    async with asyncio.timeout(60):
        while len(world.mirror.ever(NODE_CLAIMS)) < 2:
            await world.mirror.changed(1.0)
    (controller,) = world.controllers.values()
    await controller.process.kill()
    await controller.start()
    await expect(world, within="120s", hold="5s", nothing_left=True)
    await wait_until(are_refused, seconds=30)
    claims = [each.object["metadata"] for each in world.mirror.ever(NODE_CLAIMS)]
    assert [each["annotations"][GANG_REQUEST] for each in claims] == ["default/torn"] * 2


def until_a_minute_begins(now: datetime) -> datetime:
    """Return the next full minute that is far enough away to start a controller before it."""
    at_least = now + timedelta(seconds=20)
    return at_least.replace(second=0, microsecond=0) + timedelta(minutes=1)


async def test_the_scale_subresource_and_a_window_set_the_nodes_of_a_static_pool(
    world: ScenarioWorld,
):
    """As `kubectl scale` does; while the window is open its replicas count, afterwards those of the spec."""
    fixed = {"name": "fixed", "replicas": 1, "requirements": TWO_CORES}
    await prepare(world, {"feature-gates": "StaticCapacity=true"}, {"nodePools": [fixed]})
    await expect(world, within="60s", nodes=1, ready_nodes=1, consistent=True)
    await world.client.patch(NODE_POOLS, "fixed", {"spec": {"replicas": 3}}, subresource="scale")
    await expect(world, within="60s", nodes=3, ready_nodes=3, consistent=True)

    async def is_counted() -> bool:
        (pool,) = await world.client.list(NODE_POOLS)
        return pool.get("status", {}).get("nodes") == 3

    await wait_until(is_counted, seconds=30)
    end = until_a_minute_begins(datetime.now(UTC))
    start = end - timedelta(hours=2)
    window = (
        f'[{{"name": "night", "schedule": "{start.minute} {start.hour} * * *", '
        '"duration": "2h", "replicas": 1}]'
    )
    annotations = {"karpenter.sh/schedules": window}
    await world.client.patch(NODE_POOLS, "fixed", {"metadata": {"annotations": annotations}})
    await expect(world, within="60s", nodes=1, node_claims=1, consistent=True)
    before_end = end - datetime.now(UTC)
    assert before_end > timedelta(), "the window closes later"
    await expect(world, within=f"{int(before_end.total_seconds()) + 60}s", nodes=3, ready_nodes=3)
    assert datetime.now(UTC) >= end
    await world.client.patch(NODE_POOLS, "fixed", {"spec": {"replicas": 0}}, subresource="scale")
    await expect(world, within="60s", nothing_left=True)


async def test_windows_limit_and_consolidate_and_a_node_is_kept_for_predicted_requests(
    world: ScenarioWorld,
):
    """Its pod would come back with three cores: only without the prediction a smaller node does."""
    sizes = [TWO_CORES[0], {**TWO_CORES[1], "values": ["2", "4"]}]
    pool = {"name": "general", "requirements": sizes, "disruption": NEVER}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    await world.create(
        {
            "apiVersion": VERTICAL_POD_AUTOSCALERS.api_version,
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Initial"}},
        }
    )
    advice = {"containerName": "web", "target": {"cpu": "3"}}
    status = {"status": {"recommendation": {"containerRecommendations": [advice]}}}
    await world.client.patch(VERTICAL_POD_AUTOSCALERS, "web", status, subresource="status")
    await prepare(world, {"vpa-predictions": "true"}, {"nodePools": [pool]})
    await world.create(deployment("web", 1, cpu="500m"))
    await world.create(deployment("big", 1, cpu="3"))
    await expect(world, within="90s", pods={"running": 2}, nodes=1, consistent=True)

    consolidating = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    await open_window(world, limits={"cpu": "4"}, **consolidating)
    await world.client.delete(DEPLOYMENTS, "big")
    await world.create(deployment("more", 1, cpu="3600m"))

    async def is_kept_for_its_pod() -> bool:
        events = [event["message"] for event in await world.client.list(EVENTS)]
        return any(message.startswith("Can't replace with a cheaper node") for message in events)

    await wait_until(is_kept_for_its_pod, seconds=60)
    await expect(world, within="30s", hold="3s", nodes=1, launched=1, pods={"pending": 1})

    await world.client.delete(VERTICAL_POD_AUTOSCALERS, "web")
    await open_window(world, **consolidating)

    async def is_replaced() -> bool:
        nodes = [node["metadata"]["labels"] for node in world.mirror.objects(NODES)]
        return sorted(each.get(CORES, "") for each in nodes) == ["2", "4"]

    await wait_until(is_replaced, seconds=120)
    await expect(world, within="60s", pods={"running": 2}, nodes=2, launched=3, consistent=True)


async def open_window(world: ScenarioWorld, **changes: Any) -> None:
    """Give the pool a window that began some minutes ago."""
    start = datetime.now(UTC) - timedelta(minutes=5)
    schedule = f"{start.minute} {start.hour} * * *"
    window = {"name": "day", "schedule": schedule, "duration": "2h", **changes}
    annotations = {"karpenter.sh/schedules": json.dumps([window])}
    await world.client.patch(NODE_POOLS, "general", {"metadata": {"annotations": annotations}})
