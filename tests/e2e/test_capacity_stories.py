"""Shares of spot, expendable pods, commitments, shutdown and surge moves on a real control plane."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE
from karpenter_core.api.rollouts import RESTARTED_AT
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS
from karpenter_core.testing.scenarios import Expectation, InitialObjects
from tests.controllers.whole_controller import deployment
from tests.e2e.kwok import KwokCloud
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS, NODE_POOLS, ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.local_clusters import LocalCluster

CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
DEAR = "mem2a.4xlarge"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]


@pytest_asyncio.fixture(loop_scope="session")
async def world(real_local_cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[ScenarioWorld]:
    async with ScenarioWorld(
        real_local_cluster, KwokCloud(), tmp_path, crds=CRDS, kinds=[DEPLOYMENTS]
    ) as world:
        yield world


async def prepare(
    world: ScenarioWorld,
    *manifests: dict[str, Any],
    cpu: str = "2",
    spot_share: str = "",
    **options: str,
) -> None:
    """Create objects, with a NodePool of nodes with so many cores, and start a controller."""
    size = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": [cpu]}
    sold = ["on-demand", "spot"] if spot_share else ["on-demand"]
    capacity_type = {"key": CAPACITY_TYPE, "operator": "In", "values": sold}
    pool = {"name": "general", "disruption": NEVER, "requirements": [size, capacity_type]}
    for manifest in InitialObjects.model_validate({"nodePools": [pool]}).objects():
        if spot_share and manifest["kind"] == "NodePool":
            manifest["metadata"]["annotations"] = {"karpenter.sh/spot-share": spot_share}
        await world.create(manifest)
    for manifest in manifests:
        await world.create(manifest)
    flags = {name.replace("_", "-"): value for name, value in options.items()}
    merged = {"providers": "kwok", "disable-leader-election": "true", **flags}
    await world.add_controller(options=merged).start()


async def annotate(world: ScenarioWorld, schedules: str | None) -> None:
    annotations = {"karpenter.sh/schedules": schedules}
    await world.client.patch(NODE_POOLS, "general", {"metadata": {"annotations": annotations}})


async def expect(world: ScenarioWorld, **expected: Any) -> None:
    await world.expect(Expectation.model_validate(expected))


def labels(world: ScenarioWorld, key: str) -> list[str]:
    """Return a label of every node."""
    return sorted(node["metadata"]["labels"].get(key, "") for node in world.mirror.objects(NODES))


async def test_nodes_have_their_share_of_spot_and_expendable_pods_buy_none(world: ScenarioWorld):
    """Each pod fills a node."""
    filler = deployment("filler", 2, cpu="1500m", memory="100Mi")
    annotations = {"karpenter.sh/expendable": "true"}
    filler["spec"]["template"]["metadata"]["annotations"] = annotations
    await prepare(world, filler, spot_share="50%")
    await world.create(deployment("web", 4, cpu="1500m", memory="100Mi"))

    async def web_runs() -> bool:
        pods = [pod for pod in world.mirror.objects(PODS) if pod["spec"].get("nodeName")]
        return len(pods) == 4 and len(world.mirror.objects(NODES)) == 4

    await expect(world, within="90s", nodes=4, ready_nodes=4, pods={"running": 4, "pending": 2})
    await wait_until(web_runs, seconds=30)
    assert labels(world, CAPACITY_TYPE) == ["on-demand", "on-demand", "spot", "spot"]
    await expect(world, within="5s", hold="5s", nodes=4, launched=4)


async def test_a_commitment_decides_which_type_is_launched_as_far_as_it_goes(world: ScenarioWorld):
    row = {
        "name": "paid",
        "requirements": [{"key": INSTANCE_TYPE, "operator": "In", "values": [DEAR]}],
        "resource": "nodes",
        "amount": 1,
        "price": 0,
    }
    await prepare(world, cpu="16", commitments=json.dumps([row]))
    await world.create(deployment("web", 2, cpu="9", memory="100Mi"))
    await expect(world, within="90s", pods={"running": 2}, nodes=2, consistent=True)
    assert labels(world, INSTANCE_TYPE).count(DEAR) == 1


async def test_a_pool_is_shut_down_until_its_window_is_removed(world: ScenarioWorld):
    start = datetime.now(UTC) - timedelta(minutes=5)
    window = {
        "name": "night",
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": "2h",
        "shutdown": True,
    }
    await prepare(world)
    await world.create(deployment("web", 2, cpu="1500m", memory="100Mi"))
    await expect(world, within="90s", pods={"running": 2}, nodes=2, consistent=True)
    await annotate(world, json.dumps([window]))
    await expect(world, within="90s", hold="5s", nodes=0, node_claims=0, pods={"pending": 2})
    await annotate(world, None)
    await expect(world, within="90s", pods={"running": 2}, nodes=2, consistent=True)


async def test_the_only_pod_of_a_drained_node_is_replaced_before_it_goes(world: ScenarioWorld):
    """By a rollout of its Deployment, not by an eviction."""
    single = deployment("web", 1)
    annotations = {"karpenter.sh/surge-move": "true"}
    single["spec"]["template"]["metadata"]["annotations"] = annotations
    await prepare(world, surge_moves="true")
    await world.create(single)
    # A pod that the controller has not seen ready yet is evicted: it serves nobody.
    await expect(world, within="90s", hold="3s", pods={"running": 1}, nodes=1, consistent=True)
    (claim,) = (claim["metadata"]["name"] for claim in await world.client.list(NODE_CLAIMS))
    await world.client.delete(NODE_CLAIMS, claim)

    async def has_moved() -> bool:
        claims = [each["metadata"]["name"] for each in await world.client.list(NODE_CLAIMS)]
        return len(claims) == 1 and claims != [claim]

    await wait_until(has_moved, seconds=90)
    await expect(world, within="60s", pods={"running": 1}, nodes=1, consistent=True)
    (found,) = await world.client.list(DEPLOYMENTS)
    assert RESTARTED_AT in found["spec"]["template"]["metadata"]["annotations"]
