"""Runs of a cluster from the first pod to the last, with faults in between."""

from __future__ import annotations

import contextlib
import json
from unittest.mock import patch

from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.testing.expectations import CloudAccount
from karpenter_provider_kwok.cloud import KwokCloud
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.support.invariants import Invariants, quiet_violations

EDITION = {"example.com/edition": "2"}
NEWER = {"spec": {"template": {"metadata": {"labels": EDITION}}}}
"""A template label whose change makes the nodes of a pool drift."""


BOOT = {"key": "example.com/boot", "effect": "NoSchedule"}
"""A startup taint that stays unless a run removes it."""
COMMAND_SECONDS = 600
"""Time limit of a command's wait for its replacements."""
REPAIR_SECONDS = 600
"""Time after which the kwok provider repairs a Node that is not Ready."""


def pool(*, after="0s", **template):
    """A NodePool of one size whose limits allow replacements one at a time."""
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
            "consolidateAfter": after,
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


class ClusterRun:
    """The cluster of a run, and queries about it."""

    def __init__(self, harness, folder):
        self.harness, self.cluster = harness, harness.cluster
        self._folder = folder

    def is_whole(self, count, *, without=(), **labels):
        """Return whether so many nodes are complete, with pods on them."""
        metadata = [claim["metadata"] for claim in self.harness.claims()]
        return (
            len(metadata) == count
            and not any(each["name"] in without for each in metadata)
            and all(labels.items() <= each["labels"].items() for each in metadata)
            and not quiet_violations(self.harness, self._account())
        )

    def _account(self):
        if not (self._folder / "kwok.sqlite3").exists():  # no process has reached the cloud yet
            return CloudAccount()
        cloud_dump = cloud(self.harness, self._folder)
        return CloudAccount(instances=cloud_dump["instances"], launches=cloud_dump["launches"])

    def claims(self):
        """Return the claims by name."""
        return {claim["metadata"]["name"]: claim for claim in self.harness.claims()}

    def instances(self):
        """Return the names of the claims whose instances exist."""
        return {each["nodeClaim"] for each in self._account().instances}

    def launches(self):
        """Return how many instances each token has launched."""
        return self._account().launches

    @property
    def disrupted(self):
        """Names of the nodes that a command has tainted."""
        return {
            node["metadata"]["name"]
            for node in self.harness.nodes()
            if any(t["key"] == "karpenter.sh/disrupted" for t in node["spec"].get("taints") or ())
        }

    def take_taint(self, node):
        """Take the startup taint off a node, as the daemon does for which it was put there."""
        current = self.cluster.find(NODES, node)
        taints = [
            each for each in current["spec"].get("taints") or () if each["key"] != BOOT["key"]
        ]
        self.cluster.patch(NODES, node, {"spec": {"taints": taints or None}})

    async def settle(self, holds):
        await self.harness.settle(holds, seconds=7200)

    def break_cloud(self, *faults):
        (self._folder / "faults.json").write_text(json.dumps(faults))


async def replace_drifted_nodes(scene):
    """Launch two nodes; replace them as they drift; give one up; end with none."""
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


async def roll_back_without_capacity(scene):
    """Have nothing to replace a drifted node by, so that the command is taken back, until there is;
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


UNREADY = {"fault": "unready-node", "count": 1}
INCOMPLETE = {"fault": "missing-resource", "resources": ["memory"], "count": 1}


async def replace_by_unready_node(scene, fault=UNREADY, reason="NodeNotReady"):
    """Replace a drifted node by one that registers and is never ready; then a user deletes it.

    The command is taken back, and both nodes are kept: one serves, the other may yet come up. Another replacement would be ordered for ever.
    """
    scene.cluster.apply([NODE_CLASS, pool(), budget(), deployment("web", 2)])
    await scene.settle(lambda: scene.is_whole(1))
    (old,) = scene.claims()
    scene.break_cloud(fault)
    scene.cluster.patch(NODE_POOLS, "general", NEWER)
    new = await another(scene, {old})
    await serving_on(scene, old, seconds=COMMAND_SECONDS - 60)
    assert scene.disrupted == {old}, "the command still waits"
    await scene.settle(lambda: not scene.disrupted)
    await serving_on(scene, old, seconds=1800)
    assert condition(scene.claims()[new], "Initialized")["reason"] == reason
    assert scene.claims().keys() == scene.instances() == {old, new}
    assert not any("deletionTimestamp" in claim["metadata"] for claim in scene.claims().values())
    assert not scene.disrupted
    scene.cluster.delete(NODE_CLAIMS, new)
    await scene.settle(lambda: scene.is_whole(1, without={old, new}, **EDITION))
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


async def replace_by_incomplete_node(scene):
    """Replace it by one that is ready and never shows the memory that its pods ask for."""
    await replace_by_unready_node(scene, fault=INCOMPLETE, reason="ResourceNotRegistered")


async def repair_unready_node(scene):
    """Launch a node that is never ready for pending pods, until it is repaired.

    Nothing else is launched for the pods meanwhile, and it does not count as empty.
    """
    scene.break_cloud(UNREADY)
    scene.cluster.apply([NODE_CLASS, pool(), budget(), deployment("web", 2)])
    broken = await another(scene, set())
    await scene.cluster.clock.sleep(REPAIR_SECONDS - 60)
    assert scene.claims().keys() == scene.instances() == {broken}
    assert "deletionTimestamp" not in scene.claims()[broken]["metadata"]
    await scene.settle(lambda: scene.is_whole(1, without={broken}))
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


async def remove_startup_taint_late(scene):
    """Take the startup taint off a replacement after its command was taken back.

    It is used then, and no third node is launched.
    """
    late_pool = pool(after="5m", startupTaints=[BOOT])
    scene.cluster.apply([NODE_CLASS, late_pool, budget(), deployment("web", 2)])
    await scene.settle(lambda: any(is_true(c, "Registered") for c in scene.claims().values()))
    (old,) = scene.claims()
    await scene.cluster.clock.sleep(60)
    assert not is_true(scene.claims()[old], "Initialized")
    scene.take_taint(old)
    await scene.settle(lambda: scene.is_whole(1))
    scene.cluster.patch(NODE_POOLS, "general", NEWER)
    new = await another(scene, {old})
    await serving_on(scene, old, seconds=COMMAND_SECONDS - 60)
    await scene.settle(lambda: not scene.disrupted)
    await serving_on(scene, old, seconds=1200)
    assert scene.claims().keys() == {old, new}
    scene.take_taint(new)
    await scene.settle(lambda: scene.is_whole(1, without={old}, **EDITION))
    assert scene.claims().keys() == {new}
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


async def lose_launch_answers(scene):
    """Delete a claim whose instance was launched by a call that never answered.

    Then delete the next one before the cloud has even started its launch, whose answer is lost.
    """
    lost = {"fault": "lost-reply", "operation": "launch"}
    scene.break_cloud(lost)
    scene.cluster.apply([NODE_CLASS, pool(), budget(), deployment("web", 2)])
    await scene.settle(scene.instances)
    (first,) = scene.claims()
    assert not scene.claims()[first].get("status", {}).get("providerID")
    scene.cluster.delete(NODE_CLAIMS, first)
    await scene.settle(lambda: first not in scene.claims())
    assert first not in scene.instances()
    scene.break_cloud(lost, {"fault": "slow-call", "operation": "launch", "delay": "40s"})
    await scene.settle(lambda: scene.claims().keys() - {first})
    (second,) = scene.claims()
    token = scene.claims()[second]["metadata"]["uid"]
    await scene.cluster.clock.sleep(5)
    assert token not in scene.launches()
    scene.cluster.delete(NODE_CLAIMS, second)
    await scene.settle(lambda: token in scene.launches())
    scene.break_cloud()
    await scene.settle(lambda: scene.is_whole(1, without={first, second}))
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.harness.pods() and scene.is_whole(0))


async def another(scene, known):
    """Wait for one more registered node, and return its name."""

    def registered():
        claims = scene.claims().items()
        return [n for n, claim in claims if n not in known and is_true(claim, "Registered")]

    await scene.settle(registered)
    (name,) = registered()
    return name


async def serving_on(scene, node, *, seconds):
    """Let time pass, while all pods run on a node."""
    for _ in range(seconds // 30):
        await scene.cluster.clock.sleep(30)
        assert {pod["spec"]["nodeName"] for pod in serving(scene.harness)} == {node}
        assert len(serving(scene.harness)) == 2


def condition(claim, kind):
    conditions = claim.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})


def is_true(claim, kind):
    return condition(claim, kind).get("status") == "True"


def serving(scene):
    return [
        pod
        for pod in scene.pods("Running")
        if pod["metadata"]["labels"]["app"] == "web"
        and not pod["metadata"].get("deletionTimestamp")
    ]


@contextlib.contextmanager
def watch_invariants(harness):
    """Watch a cluster and its cloud; what is broken is in `breaches` of what this yields."""
    watch = Invariants(harness)
    terminate = KwokCloud.terminate

    def noted(self, provider_ids):
        watch.note_terminate(provider_ids)
        return terminate(self, provider_ids)

    with patch.object(KwokCloud, "terminate", noted):
        yield watch


def run_cluster(folder, run, begin):
    """Run a cluster in a folder of its own; `begin` starts the process, given harness and watch."""

    async def scenario(harness):
        with watch_invariants(harness) as watch:
            end = begin(harness, watch)
            await run(ClusterRun(harness, folder))
            end()
        assert watch.breaches == []

    folder.mkdir(parents=True)
    run_controller(folder, scenario, arguments=[f"--kwok-faults-file={folder / 'faults.json'}"])
