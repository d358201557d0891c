"""No node with pods ends while the API server does not show pods.

The short form takes kinds for stale after seconds. SILENCE_MINUTES=15 plays it with the times that
`karpenter run` has, for so many minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
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
from tests.e2e.hanging_proxy import HangingProxy, Trouble
from tests.e2e.kwok import KwokCloud
from tests.support.gateway import Gateway
from tests.support.pod_placement import EACH_ON_ITS_OWN
from tests.support.processes import wait_until
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
MINUTES: Final = float(os.environ.get("SILENCE_MINUTES", "0"))

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300 + 120 * MINUTES),
]

TWO: Final = CountBounds(at_least=2, at_most=2)
TIMES: Final = "90,70,5" if MINUTES else "8,5,1"
OUTAGE_SECONDS: Final = MINUTES * 60 or 25.0
EMPTY_SECONDS: Final = 120 if MINUTES else 12
"""Time for which nodes stay empty before they go: longer than kinds stay fresh."""
HEALED_SECONDS: Final = 180 if MINUTES else 90
ALL_PODS: Final = (b"GET /api/v1/pods?",)

GIVEN: Final = InitialObjects(
    node_pools=[
        ScenarioNodePool(
            name="general",
            disruption={
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": f"{EMPTY_SECONDS}s",
                "budgets": [{"nodes": "100%"}],
            },
        )
    ],
    deployments=[ScenarioDeployment(name="web", replicas=2, pod=EACH_ON_ITS_OWN)],
)
RUNNING: Final = Expectation(
    within=timedelta(seconds=90), pods=ExpectedPods(running=TWO), nodes=TWO, instances=TWO
)
EMPTIED: Final = Expectation(
    within=timedelta(seconds=60), pods=ExpectedPods(running=CountBounds(at_most=0))
)
GONE: Final = Expectation(within=timedelta(seconds=120 + EMPTY_SECONDS), nothing_left=True)


@pytest.mark.parametrize(
    ("local_cluster", "trouble"),
    [
        # The others are what the proxy answers, whatever is behind it.
        ("real" if trouble is Trouble.SILENT else "embedded", trouble)
        for trouble in Trouble
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Trouble) else None,
    indirect=["local_cluster"],
)
async def test_a_node_with_unlisted_pods_is_not_terminated(
    local_cluster: LocalCluster, trouble: Trouble, tmp_path: Path
):
    """Pods are bound to nodes that were empty when pods were last heard of."""
    async with (
        ScenarioWorld(local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
        HangingProxy(gateway.port, tmp_path / "proxy.kubeconfig", marks=ALL_PODS) as proxy,
    ):
        for manifest in GIVEN.objects():
            await world.create(manifest)
        controller = world.add_controller(
            kubeconfig=proxy.kubeconfig,
            options={"providers": "kwok", "disable-leader-election": "true"},
            command=(sys.executable, "-m", "tests.e2e.short_freshness"),
            environment={**os.environ, "CONTACT_TIMES": TIMES},
        )
        await controller.start()
        await world.expect(RUNNING, where="before")
        await world.scale("web", 0)
        await world.expect(EMPTIED, where="emptied")

        proxy.begin(trouble)
        await world.scale("web", 2)
        await world.expect(RUNNING, where="bound meanwhile")
        pods, nodes = world.uids(PODS), world.uids(NODES)
        await asyncio.sleep(OUTAGE_SECONDS)

        status, text = await controller.readiness()
        assert status == 500, text
        assert "freshness" in text
        assert "pods" in text
        assert world.uids(NODES) == nodes
        assert world.uids(PODS) == pods
        await world.expect(RUNNING, where="while pods are not shown")

        proxy.end()
        await wait_until(controller.is_ready, seconds=HEALED_SECONDS)
        await asyncio.sleep(EMPTY_SECONDS + 10)
        assert world.uids(PODS) == pods
        await world.expect(RUNNING, where="healed")
        await world.scale("web", 0)
        await world.expect(GONE, where="afterwards")
