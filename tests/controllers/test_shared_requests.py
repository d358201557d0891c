"""Many ProvisioningRequests share nodes while instances fail, requests go and processes die."""

from __future__ import annotations

from random import Random

import pytest

from karpenter_core.api.provisioning_request import GANG_ATTEMPT
from karpenter_core.kube.wire.codecs import NODE_POOLS, PROVISIONING_REQUESTS
from tests.controllers.gangs import request, run_gangs, template

NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
"""Consolidation must not clean up what a gang has left."""
AT_ONCE = {**NEVER, "consolidateAfter": "0s"}
DELAYED = {"late-failure", "slow-node"}
FAULTS = ("late-failure", "slow-node", "stock-out", "unready-node")


def faults_of(rolled):
    """Return faults of the cloud that strike once or twice; some node is never ready."""
    return [
        {
            "fault": kind,
            "count": rolled.randint(1, 2),
            **({"delay": f"{rolled.randint(3, 90)}s"} if kind in DELAYED else {}),
        }
        for kind in FAULTS
        if rolled.random() < 0.5 or kind == "unready-node"
    ]


def drawn_request(name, rolled):
    sets = [
        (rolled.choice(("workers", "big")), rolled.randint(1, 4))
        for _ in range(rolled.randint(1, 2))
    ]
    return request(name, *sets, ValidUntilSeconds=str(rolled.choice((300, 400))))


@pytest.mark.cluster_runs
@pytest.mark.parametrize("seed", range(6))
def test_each_request_is_provisioned_whole_or_leaves_nothing(tmp_path, seed):
    """None loses its capacity to the failure of another one, and no instance is launched twice."""
    rolled = Random(seed)

    async def story(scene):
        scene.break_cloud(*faults_of(rolled))
        scene.prepare(template("big", cpu="2"), disruption=NEVER)
        running, names = scene.harness.start(), []
        for number in range(rolled.randint(6, 12)):
            names.append(f"job-{number}")
            scene.cluster.apply([drawn_request(names[-1], rolled)])
            await scene.passes(rolled.choice((0, 0.3, 1, 5)))
            if rolled.random() < 0.2:
                gone = names.pop(rolled.randrange(len(names)))
                scene.cluster.delete(PROVISIONING_REQUESTS, gone, namespace="default")
            if rolled.random() < 0.15:
                await running.kill()
                running = scene.harness.start()

        def is_decided(name):
            return scene.is_true("Provisioned", name) or scene.is_true("Failed", name)

        await scene.until(lambda: all(map(is_decided, names)), seconds=3600)
        await scene.passes(700)
        assert not any(scene.is_true("CapacityRevoked", name) for name in names)
        marks = [claim["metadata"]["annotations"] for claim in scene.harness.claims()]
        assert not any(GANG_ATTEMPT in each for each in marks)
        assert set(scene.launches().values()) <= {1}
        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"disruption": AT_ONCE}})
        await scene.until(scene.is_empty, seconds=1800)

    run_gangs(tmp_path, story)
