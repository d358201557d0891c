"""CapacityQuotas on a real API server, under the rules of their CustomResourceDefinition."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from karpenter_core.kube.resources import EVENTS, PODS
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS
from karpenter_core.testing.cluster import ClusterError
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.e2e.test_commands import karpenter
from tests.support.capacity_quotas import DEFINITION, capacity_quota
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]


def exactly(count):
    return CountBounds(at_least=count, at_most=count)


async def test_a_quota_bounds_the_nodes_of_a_cluster_until_it_is_raised(
    real_local_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The API server refuses amounts that are no limit, and accepts status and condition."""
    definition = tmp_path / "capacityquotas.yaml"
    definition.write_text(yaml.safe_dump(DEFINITION))
    async with ScenarioWorld(
        real_local_cluster,
        KwokCloud(),
        tmp_path,
        crds=[*CRDS, definition],
        kinds=[CAPACITY_QUOTAS],
    ) as world:
        for amount in ("500m", "1000m", "-1", "3.67Gi"):
            with pytest.raises(ClusterError, match="non-negative integers"):
                await world.create(capacity_quota(cpu=amount))
        await world.create(capacity_quota(nodes="2"))
        never = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        types = {
            "requirements": [
                {
                    "key": "karpenter.kwok.sh/instance-cpu",
                    "operator": "In",
                    "values": ["2"],
                }
            ]
        }
        pool = ScenarioNodePool(name="general", disruption=never).manifest()
        pool["spec"]["template"]["spec"].setdefault("requirements", []).extend(
            types["requirements"]
        )
        for manifest in InitialObjects(
            manifests=[pool],
            deployments=[ScenarioDeployment(name="web", replicas=4, cpu="1500m")],
        ).objects():
            await world.create(manifest)
        controller = world.add_controller(
            options={
                "providers": "kwok",
                "disable-leader-election": "true",
                "capacity-quotas": "true",
            }
        )
        await controller.start()
        await world.expect(
            Expectation(
                within=timedelta(seconds=90),
                hold=timedelta(seconds=15),
                pods=ExpectedPods(running=exactly(2)),
                nodes=exactly(2),
                node_claims=exactly(2),
            )
        )
        async with asyncio.timeout(30):
            while True:
                (quota,) = await world.client.list(CAPACITY_QUOTAS)
                used = quota.get("status", {}).get("used", {}).get("resources", {})
                if used == {"nodes": "2"}:
                    break
                await asyncio.sleep(1)
        (condition,) = quota["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Reconciled", "True")

        assert any(
            event["reason"] == "LimitReached" and event["involvedObject"]["name"] == "team"
            for event in world.mirror.objects(EVENTS)
        )
        waiting = next(
            pod["metadata"]["name"]
            for pod in world.mirror.objects(PODS)
            if not pod["spec"].get("nodeName")
        )
        monkeypatch.setenv("CAPACITY_QUOTAS", "true")  # as in the controller's environment
        kubeconfig = f"--kubeconfig={world.local_cluster.kubeconfig}"
        answer = json.loads(await karpenter("explain", "pod", waiting, "-o", "json", kubeconfig))
        assert "stays pending" in answer["answer"]
        assert "team" in json.dumps(answer)

        raised = {"spec": {"limits": {"resources": {"nodes": "4"}}}}
        await world.client.patch(CAPACITY_QUOTAS, "team", raised)
        await world.expect(
            Expectation(
                within=timedelta(seconds=90),
                pods=ExpectedPods(running=exactly(4)),
                nodes=exactly(4),
            )
        )
