"""A plan of files is what the unchanged controllers then do with the same cluster.

    PLAN_SEEDS=0:200 pytest -m cluster_runs tests/cli/test_plan_carried_out.py

draws more clusters, of which each run of the tests plays one of each group (all: KARPENTER_EVERY_KILL=1).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest

from karpenter_core.cli.document import plan_document
from karpenter_core.cli.plan import solve_cluster
from karpenter_core.cli.rebalance.document import rebalance_document
from karpenter_core.cli.rebalance.simulation import disruptions_now
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.cli.inputs import pool, read_harness
from tests.controllers.whole_controller import NODE_CLASS, deployment
from tests.support.drawn_faults import drawn_runs
from tests.support.run_selection import others_as_cluster_runs

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
CPU = "karpenter.kwok.sh/instance-cpu"
TAINT = {"key": "team", "value": "batch", "effect": "NoSchedule"}
FIRST, BEYOND = map(int, os.environ.get("PLAN_SEEDS", "0:24").split(":"))
EACH = 4
"""Size of a group."""


def one_of(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


class Cluster:
    """Pools and workloads of one draw."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.running = [self.workload(f"web-{number}") for number in range(3)]
        self.leaving = [self.workload(f"gone-{number}") for number in range(2)]
        self.late = [self.workload(f"late-{number}") for number in range(self.rng.randint(1, 4))]
        self.left = [self.rng.choice([0, 1, 2]) for _ in self.leaving]

    def workload(self, name):
        """Return a Deployment with a constraint or none; some fit no node."""
        rng = self.rng
        selects = {"labelSelector": {"matchLabels": {"app": name}}}
        spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selects}
        apart = {**selects, "topologyKey": HOST}
        constraints = rng.choice(
            [
                {}, {}, {},
                {"nodeSelector": {CAPACITY_TYPE: "spot"}},
                {"nodeSelector": {ZONE: rng.choice(["test-zone-a", "test-zone-b", "nowhere"])}},
                {"topologySpreadConstraints": [{**spread, "topologyKey": ZONE}]},
                {"topologySpreadConstraints": [{**spread, "topologyKey": HOST}]},
                {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}},
                {"tolerations": [{"key": "team", "operator": "Exists"}], "nodeSelector": {"karpenter.sh/nodepool": "batch"}},
            ]
        )  # fmt: skip
        cpu = rng.choice(["250m", "700m", "1200m", "1700m", "3", "7", "900"])
        memory = rng.choice(["128Mi", "1Gi", "5Gi"])
        return deployment(name, rng.randint(1, 9), cpu=cpu, memory=memory, **constraints)

    def pools(self):
        """Return pools of which some have limits, weights or taints."""
        rng = self.rng
        disruption = {
            "consolidationPolicy": rng.choice(["WhenEmpty", "WhenEmptyOrUnderutilized"]),
            "consolidateAfter": "30s",
            "budgets": [{"nodes": rng.choice(["2", "30%", "100%"])}],
        }
        sizes = one_of(CPU, *rng.sample(["2", "4", "8", "16"], 3))
        general = pool(
            template={"requirements": [one_of(CAPACITY_TYPE, "on-demand"), sizes]},
            disruption=disruption,
            weight=rng.choice([1, 1, 50]),
            **({"limits": {"cpu": rng.choice(["20", "60"])}} if rng.random() < 0.3 else {}),
        )
        spot = pool(
            "spot",
            template={"requirements": [one_of(CAPACITY_TYPE, "spot"), sizes]},
            disruption=disruption,
            weight=rng.choice([1, 10]),
        )
        batch = pool(
            "batch",
            template={
                "requirements": [one_of(CAPACITY_TYPE, "spot", "on-demand")],
                "taints": [TAINT],
            },
            disruption=disruption,
            limits={"nodes": str(rng.randint(1, 20))},
        )
        return general, spot, batch


def claims(harness):
    return {claim["metadata"]["name"]: claim for claim in harness.cluster.list(NODE_CLAIMS)}


def bought(claim):
    """Return what a NodeClaim bought, as a plan names it."""
    labels = claim["metadata"]["labels"]
    return (
        labels["karpenter.sh/nodepool"],
        labels["node.kubernetes.io/instance-type"],
        labels[ZONE],
        labels[CAPACITY_TYPE],
    )


def planned(claim):
    cheapest = claim["cheapest"]
    return claim["nodePool"], cheapest["instanceType"], cheapest["zone"], cheapest["capacityType"]


async def started(cluster, harness):
    """Let a controller launch the nodes of what runs, end it, and make the pods that are planned for."""
    paused = harness.start("--pause-disruption")
    harness.cluster.apply([NODE_CLASS, *cluster.pools(), *cluster.running, *cluster.leaving])
    await asyncio.sleep(120)
    harness.cluster.apply(
        {**each, "spec": {**each["spec"], "replicas": left}}
        for each, left in zip(cluster.leaving, cluster.left, strict=True)
    )
    await asyncio.sleep(120)
    await paused.stop()
    # The newest object is the time of the files.
    harness.cluster.apply(
        [*cluster.late, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "now"}}]
    )
    await asyncio.sleep(1)


async def planned_and_launched(cluster, folder):
    """Return the plan, what the controller buys for it, its price, and the pods that stay pending."""
    async with ControllerHarness(lambda: {"kwok": KwokProvider()}, folder=folder) as harness:
        await started(cluster, harness)
        command_input = await read_harness(harness, folder)
        document = plan_document(command_input.cluster, solve_cluster(command_input.cluster))
        before, price = claims(harness), disruptions_now(command_input).before.price_per_hour
        harness.start("--pause-disruption")
        await asyncio.sleep(300)
        new = [claim for name, claim in claims(harness).items() if name not in before]
        after = disruptions_now(await read_harness(harness, folder)).before
        pending = {
            f"default/{pod['metadata']['name']}"
            for pod in harness.pods()
            if not pod["spec"].get("nodeName")
        }
        return document, Counter(map(bought, new)), after.price_per_hour - price, pending


GROUPS = others_as_cluster_runs(range(FIRST, BEYOND, EACH))


def drawn_clusters(config, first, folder):
    """Return the clusters of a group that this run of the tests plays, each with a folder."""
    for seed, own in drawn_runs(config, "plan", range(first, min(first + EACH, BEYOND)), folder):
        yield Cluster(seed), own


@pytest.mark.parametrize("first", GROUPS)
def test_the_controller_launches_the_nodes_of_the_plan(tmp_path, first, pytestconfig):
    """The same instances for the same price, and the same pods stay pending."""
    for cluster, folder in drawn_clusters(pytestconfig, first, tmp_path):
        document, launched, price, pending = run_virtual(planned_and_launched(cluster, folder))

        assert launched == Counter(map(planned, document["nodeClaims"]))
        assert price == pytest.approx(document["cost"]["hourly"])
        assert pending == document["unschedulable"].keys()


async def planned_and_disrupted(cluster, folder):
    """Return the disruption of a plan, and what the controller removes and launches first."""
    cluster.late = []
    async with ControllerHarness(lambda: {"kwok": KwokProvider()}, folder=folder) as harness:
        await started(cluster, harness)
        document = rebalance_document(disruptions_now(await read_harness(harness, folder)))
        before = claims(harness)
        harness.start()
        for _ in range(120):
            await asyncio.sleep(1)
            now = claims(harness)
            removed = {
                name
                for name in before
                if name not in now or "deletionTimestamp" in now[name]["metadata"]
            }
            if removed:
                break
        new = [claim for name, claim in now.items() if name not in before]
        return document, removed, Counter(map(bought, new))


@pytest.mark.parametrize("first", GROUPS)
def test_the_controller_disrupts_the_nodes_of_the_plan(tmp_path, first, pytestconfig):
    """The nodes that a plan removes are those that the next command removes, and so are the new ones."""
    for cluster, folder in drawn_clusters(pytestconfig, first, tmp_path):
        document, removed, launched = run_virtual(planned_and_disrupted(cluster, folder))

        steps = document["steps"]
        assert removed == {node["nodeClaim"] for step in steps for node in step["nodes"]}
        assert launched == Counter(planned(claim) for step in steps for claim in step["nodeClaims"])
