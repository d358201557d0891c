"""A rebalance that is carried out on a real control plane saves what its preview said.

The scheduler of Kubernetes breaks ties at random, where that of the embedded cluster has an order.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube import resources
from tests.cli.test_rebalance_carried_out import Cluster
from tests.controllers.whole_controller import NODE_CLASS
from tests.e2e.kwok import KwokCloud
from tests.support.processes import wait_until
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.local_clusters import RealLocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
OPTIONS = {"providers": "kwok", "feature-gates": "StaticCapacity=true"}
SETTLED_SECONDS = 5
"""Time after which nodes may be consolidated."""
QUIET_SECONDS = 30.0
"""Longer than the pause between two passes of consolidation and their validation."""
CARRIED_OUT_SECONDS = 420.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
]


async def preview(world: ScenarioWorld) -> dict[str, Any]:
    """Return what `karpenter plan --rebalance` says now."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "karpenter_core.cli.main", "plan", "--rebalance", "-o", "json"),
        f"--kubeconfig={world.local_cluster.kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


def running(world: ScenarioWorld) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in world.mirror.objects(resources.PODS)
        if pod.get("status", {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["namespace"] == "default"
    ]


def nodes(world: ScenarioWorld) -> frozenset[str]:
    return frozenset(each["metadata"]["name"] for each in world.mirror.objects(resources.NODES))


async def reach(holds: Callable[[], bool], seconds: float) -> None:
    async def held() -> bool:
        return holds()

    await wait_until(held, seconds=seconds)


async def await_quiet(world: ScenarioWorld) -> None:
    """Wait until the nodes have stayed the same for some time."""
    async with asyncio.timeout(CARRIED_OUT_SECONDS):
        before, since = nodes(world), 0.0
        while since < QUIET_SECONDS:
            await asyncio.sleep(1)
            now = nodes(world)
            before, since = (before, since + 1) if now == before else (now, 0.0)


def shrinking_cluster(seed: int) -> Cluster:
    """Return a drawn cluster without windows and pending pods, whose nodes settle soon."""
    cluster = Cluster(seed)
    cluster.has_window, cluster.pending = False, 0
    return cluster


@pytest.mark.parametrize("seed", [5])
async def test_a_rebalance_saves_what_its_preview_said(
    real_local_cluster: RealLocalCluster,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seed: int,
):
    """Within two percent, whichever nodes the scheduler chooses for evicted pods."""
    cluster = shrinking_cluster(seed)
    pools = cluster.pools()
    for each in pools[:2]:
        each["spec"]["disruption"]["consolidateAfter"] = f"{SETTLED_SECONDS}s"
    workloads = (*cluster.kept, *cluster.leaving)
    budgets = cluster.budgets()
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for manifest in (NODE_CLASS, *pools, *workloads):
            await world.create(manifest)
        for budget in budgets:
            await world.client.create(resources.POD_DISRUPTION_BUDGETS, budget)
        try:
            paused = world.add_controller("paused", options={**OPTIONS, "pause-disruption": "true"})
            await paused.start()
            wanted = sum(each["spec"]["replicas"] for each in workloads)
            await reach(lambda: len(running(world)) == wanted, 120)
            for each in cluster.leaving:
                await world.scale(each["metadata"]["name"], 0)
            left = sum(each["spec"]["replicas"] for each in cluster.kept)
            await reach(lambda: len(running(world)) == left, 60)
            await asyncio.sleep(SETTLED_SECONDS + 5)
            await paused.process.stop()
            del world.controllers["paused"]
            said = await preview(world)
            await world.add_controller("acting", options=OPTIONS).start()
            # A busy cluster pauses between two passes for longer than the nodes have to be quiet.
            with suppress(TimeoutError):
                await reach(
                    lambda: len(nodes(world)) == said["after"]["nodes"], CARRIED_OUT_SECONDS
                )
            await await_quiet(world)
            done = (await preview(world))["before"]
        finally:
            for budget in budgets:
                name = budget["metadata"]["name"]
                await world.client.delete(resources.POD_DISRUPTION_BUDGETS, name, "default")
    saved = said["before"]["pricePerHour"] - done["pricePerHour"]
    record_property("said", said["savingsPerHour"])
    record_property("saved", saved)
    assert len(running(world)) == left
    assert said["savingsPerHour"] > 0
    assert saved == pytest.approx(said["savingsPerHour"], rel=0.02, abs=1e-9), (said, done)
    assert done["nodes"] == said["after"]["nodes"]
