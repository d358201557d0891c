"""Lives of machines, from the first pod to the last, to be disturbed in every way."""

from __future__ import annotations

import contextlib
import json
from unittest.mock import patch

from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.invariants import Invariants, unquiet
from karpenter_provider_kwok.cloud import SimulatedCloud
from tests.controllers.scenes import NODE_CLASS, cloud, deployment, node_pool, play

EDITION = {"example.com/edition": "2"}
NEWER = {"spec": {"template": {"metadata": {"labels": EDITION}}}}
"""What makes the machines of a pool drift."""


def pool(**template):
    """Machines of one size, two of which may be replaced one at a time within the limits."""
    return node_pool(
        template={
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
            ],
            **template,
        },
        limits={"cpu": "12"},
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "1"}],
        },
    )


def budget():
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }


class Scene:
    """What a life is lived in, and a look at it."""

    def __init__(self, harness, folder):
        self.harness, self.cluster = harness, harness.cluster
        self._folder = folder

    def is_whole(self, machines, *, without=(), **labels):
        """Whether there are so many machines, each as it should be, and pods on them."""
        metadata = [claim["metadata"] for claim in self.harness.claims()]
        return (
            len(metadata) == machines
            and not any(each["name"] in without for each in metadata)
            and all(labels.items() <= each["labels"].items() for each in metadata)
            and not unquiet(self.harness, self._account())
        )

    def _account(self):
        found = cloud(self.harness, self._folder)
        return CloudAccount(instances=found["instances"], launches=found["launches"])

    async def settle(self, holds):
        await self.harness.settle(holds, seconds=7200)

    def break_cloud(self, *faults):
        (self._folder / "faults.json").write_text(json.dumps(faults))


async def renewed(scene):
    """Launch two machines; replace them as they drift; give one up; end with none."""
    scene.cluster.apply([NODE_CLASS, pool(), budget()])
    scene.cluster.apply([deployment("bulk", 2, cpu="2500m"), deployment("web", 2)])
    await scene.settle(lambda: scene.is_whole(2))
    available = []
    scene.cluster.server.registry.store.listen(
        PODS, lambda _change: available.append(len(serving(scene.harness)))
    )
    scene.cluster.patch(NODE_POOLS, "general", NEWER)
    await scene.settle(lambda: scene.is_whole(2, **EDITION))
    scene.cluster.scale(DEPLOYMENTS, "bulk", 0)
    await scene.settle(lambda: len(scene.harness.pods()) == 2 and scene.is_whole(1))
    assert min(available) >= 1, "the budget allows one pod to be away, and no more"
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


async def refused(scene):
    """Nothing to replace a drifted machine by, so that the command is taken back, until there is;
    then a deletion against a budget that never yields, with a deadline.
    """
    stubborn = {**budget(), "spec": {**budget()["spec"], "minAvailable": 2}}
    scene.cluster.apply([NODE_CLASS, pool(terminationGracePeriod="90s")])
    scene.cluster.apply([deployment("web", 2, terminationGracePeriodSeconds=5)])
    await scene.settle(lambda: scene.is_whole(1))
    scene.break_cloud({"fault": "stock-out"})
    scene.cluster.patch(NODE_POOLS, "general", NEWER)
    await scene.settle(lambda: scene.harness.events("InsufficientCapacityError"))
    await scene.settle(lambda: scene.is_whole(1))
    scene.break_cloud()
    await scene.settle(lambda: scene.is_whole(1, **EDITION))
    scene.cluster.apply([stubborn])
    (claim,) = (claim["metadata"]["name"] for claim in scene.harness.claims())
    scene.cluster.delete(NODE_CLAIMS, claim)
    await scene.settle(lambda: scene.is_whole(1, without={claim}))
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


def serving(scene):
    return [
        pod
        for pod in scene.pods("Running")
        if pod["metadata"]["labels"]["app"] == "web"
        and not pod["metadata"].get("deletionTimestamp")
    ]


@contextlib.contextmanager
def watched(harness, *, now=None):
    """Watch a cluster and its cloud; what is broken is in `breaches` of what this yields.

    `now` is the wall clock of the controller, where it is not the cluster's.
    """
    watch = Invariants(harness, now=now)
    terminate = SimulatedCloud.terminate

    def noted(self, provider_ids):
        watch.note_terminate(provider_ids)
        return terminate(self, provider_ids)

    with patch.object(SimulatedCloud, "terminate", noted):
        yield watch


def live(folder, life, begin):
    """Live a life in a folder of its own; `begin` starts the process, given harness and watch."""

    async def story(harness):
        with watched(harness) as watch:
            end = begin(harness, watch)
            await life(Scene(harness, folder))
            end()
        assert watch.breaches == []

    folder.mkdir(parents=True)
    play(folder, story, arguments=[f"--kwok-faults-file={folder / 'faults.json'}"])
