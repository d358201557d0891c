"""A leader whose host's clock is set forward and back works on, and ends no node for it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.support.pod_placement import EACH_ON_ITS_OWN
from tests.support.runner import NODE_CLAIMS, ScenarioWorld
from tests.support.wall_clock import WallClock

if TYPE_CHECKING:
    from tests.support.controller import ControllerProcess
    from tests.support.local_clusters import LocalCluster

CRDS: Final = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
SETTLED_SECONDS: Final = 11
"""Longer than the time within which a leader has to renew its lease."""

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

GIVEN: Final = InitialObjects(
    node_pools=[
        ScenarioNodePool(
            name="general",
            expire_after="1h",
            disruption={
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "10s",
                "budgets": [{"nodes": "100%"}],
            },
        )
    ],
    deployments=[ScenarioDeployment(name="web", replicas=2, pod=EACH_ON_ITS_OWN)],
)


GONE: Final = Expectation(within=timedelta(seconds=90), nothing_left=True)


def running(count: int) -> Expectation:
    amount = CountBounds(at_least=count, at_most=count)
    return Expectation(
        within=timedelta(seconds=90),
        pods=ExpectedPods(running=amount),
        nodes=amount,
        instances=amount,
        launched=amount,
        consistent=True,
    )


async def test_clock_steps_end_no_node_and_change_no_leader(
    embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """Also while an instance has been launched and its node has not registered."""
    clock = WallClock(tmp_path)
    async with ScenarioWorld(embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for manifest in GIVEN.objects():
            await world.create(manifest)
        options = {"providers": "kwok", "kwok-registration-delay": "5s"}
        leader = world.add_controller("leader", options=options, environment=clock.environment)
        await leader.start()
        await world.expect(running(2), where="before")
        identity = await world.expect_leader()
        standby = world.add_controller("standby", options=options)
        await standby.start()

        for count, hours in ((3, 5), (4, -5)):
            before = {kind: world.uids(kind) for kind in (NODE_CLAIMS, NODES, PODS)}
            await world.scale("web", count)
            launched = CountBounds(at_least=count)
            await world.expect(Expectation(instances=launched), where=f"{hours} h, launched")
            clock.set_ahead(timedelta(hours=hours))
            await world.expect(running(count), where=f"{hours} h")
            await asyncio.sleep(SETTLED_SECONDS)
            await world.expect(running(count), where=f"{hours} h, later")
            for kind, held in before.items():
                assert held <= world.uids(kind), kind.kind
            assert await world.expect_leader() == identity
            assert differences(leader)[-1] == -hours

        await world.scale("web", 0)
        await world.expect(GONE, where="empty nodes")
        assert standby.process.is_running


def differences(controller: ControllerProcess) -> list[int]:
    """Return the differences of the clocks that it has logged, in hours."""
    lines = [json.loads(line) for line in controller.process.log_text().splitlines()]
    return [round(line["seconds"] / 3600) for line in lines if "clock differs" in line["message"]]
