"""A rebalance that the unchanged controllers carry out ends as its preview said.

One cluster of each group is drawn. All of them, or of more:

KARPENTER_EVERY_KILL=1 REBALANCE_SEEDS=0:40 pytest -m cluster_runs tests/cli/test_rebalance_carried_out.py
"""

from __future__ import annotations

import asyncio
import os
import random
from datetime import timedelta

import pytest

from karpenter_core.cli.rebalance.document import rebalance_document
from karpenter_core.cli.rebalance.simulation import disruptions_now, simulate_rebalance
from karpenter_core.kube.resources import NAMESPACES
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.cli.inputs import pool, read_harness
from tests.controllers.whole_controller import NODE_CLASS, deployment
from tests.support.drawn_faults import drawn_runs

FIRST, BEYOND = map(int, os.environ.get("REBALANCE_SEEDS", "0:20").split(":"))
EACH = 5
"""Size of a group."""

CAPACITY_TYPE = "karpenter.sh/capacity-type"
SIZES = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2", "4", "8"]}
WINDOW = timedelta(minutes=40)
"""The time for which a budget of some clusters allows no disruption, from just before the preview."""


def capacity(*values):
    return {"key": CAPACITY_TYPE, "operator": "In", "values": list(values)}


class Cluster:
    """Pools and workloads of one draw."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.is_wide = seed % 2 == 1
        """Whether late pods are wider than the nodes of the others."""
        self.has_window = self.rng.random() < 0.4
        self.pending = self.rng.choice([0, 0, 1, 2, 4])
        self.kept = [self.workload(f"kept-{number}", 2, 6) for number in range(5)]
        self.leaving = [self.workload(f"leaving-{number}", 4, 10) for number in range(3)]

    def workload(self, name, least, most):
        """Return a Deployment; some run on spot capacity, some may not be disrupted."""
        rng, pod = self.rng, {}
        if rng.random() < 0.3:
            pod["nodeSelector"] = {CAPACITY_TYPE: "spot"}
        cpu = rng.choice(["300m", "700m", "1200m", "1700m"])
        made = deployment(name, rng.randint(least, most), cpu=cpu, memory="256Mi", **pod)
        if name.startswith("kept") and rng.random() < 0.2:
            annotations = {"karpenter.sh/do-not-disrupt": "true"}
            made["spec"]["template"]["metadata"]["annotations"] = annotations
            made["spec"]["replicas"] = min(made["spec"]["replicas"], 2)
        return made

    def late(self):
        """Return a Deployment of pods that are pending at the preview; some fit no node of now."""
        made = self.workload("late", self.pending, self.pending)
        if self.is_wide:
            (container,) = made["spec"]["template"]["spec"]["containers"]
            container["resources"]["requests"]["cpu"] = "3"
        return made

    def pools(self):
        """Return pools of on-demand and spot nodes, and one of a fixed number of nodes."""
        rng = self.rng
        budgets = [{"nodes": rng.choice(["1", "2", "25%", "100%"])}]
        disruption = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": rng.choice(["0s", "30s", "2m"]),
            "budgets": budgets,
        }
        both = rng.random() < 0.5
        general = pool(
            template={"requirements": [capacity(*(["spot"] if both else []), "on-demand"), SIZES]},
            disruption=disruption,
        )
        spot = pool(
            "spot", template={"requirements": [capacity("spot"), SIZES]}, disruption=disruption
        )
        taint = {"key": "dedicated", "value": "static", "effect": "NoSchedule"}
        static = pool(
            "static",
            template={"requirements": [capacity("on-demand"), SIZES], "taints": [taint]},
            replicas=2,
        )
        return general, spot, static

    def budgets(self):
        """Return a PodDisruptionBudget that forbids evictions and one that allows one at a time."""
        return [
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": app}}},
            }
            for name, app, most in (("never", "kept-0", 0), ("one", "kept-1", 1))
        ]


def close_window(harness, pools):
    """Let a budget allow nothing for some time, from a minute ago on."""
    opened = harness.cluster.clock.now() - timedelta(minutes=1)
    closed = {
        "nodes": "0",
        "schedule": f"{opened.minute} {opened.hour} * * *",
        "duration": f"{WINDOW // timedelta(minutes=1)}m",
    }
    for each in pools[:2]:
        budgets = [*each["spec"]["disruption"]["budgets"], closed]
        spec = {**each["spec"], "disruption": {**each["spec"]["disruption"], "budgets": budgets}}
        harness.cluster.apply([{**each, "spec": spec}])


async def previewed_and_carried_out(cluster, folder):
    """Return the preview of a cluster that has shrunk, and its nodes when it was carried out."""
    gate = "--feature-gates=StaticCapacity=true"
    async with ControllerHarness(lambda: {"kwok": KwokProvider()}, folder=folder) as harness:
        paused = harness.start("--pause-disruption", gate)
        pools = cluster.pools()
        workloads = (*cluster.kept, *cluster.leaving)
        harness.cluster.apply([NODE_CLASS, *pools, *cluster.budgets(), *workloads])
        wanted = sum(each["spec"]["replicas"] for each in workloads)
        await harness.settle(lambda: len(harness.pods("Running")) == wanted, seconds=600)
        harness.cluster.apply(
            {**each, "spec": {**each["spec"], "replicas": 0}} for each in cluster.leaving
        )
        left = sum(each["spec"]["replicas"] for each in cluster.kept)
        await harness.settle(lambda: len(harness.pods()) == left, seconds=600)
        await asyncio.sleep(150)
        if cluster.has_window:
            close_window(harness, pools)
        await paused.stop()
        late = cluster.late()
        # The newest object is the time of the files.
        harness.cluster.apply(
            [late, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "now"}}]
        )
        left += cluster.pending
        await harness.settle(lambda: len(harness.pods()) == left, seconds=1)
        preview = rebalance_document(simulate_rebalance(await read_harness(harness, folder)))
        harness.start(gate)
        await asyncio.sleep(3 * 3600)
        assert len(harness.pods("Running")) == left
        assert harness.cluster.find(NAMESPACES, "now") is not None
        return preview, disruptions_now(await read_harness(harness, folder)).before


NOTHING_TO_SAVE = {14}
"""Clusters whose nodes cost as little as they can from the start."""


@pytest.mark.cluster_runs
@pytest.mark.parametrize("first", range(FIRST, BEYOND, EACH))
def test_an_executed_rebalance_saves_as_much_as_its_preview(tmp_path, first, pytestconfig):
    """Within two percent, with budgets, windows, protected and pending pods, spot and static nodes."""
    seeds = range(first, min(first + EACH, BEYOND))
    for seed, folder in drawn_runs(pytestconfig, "rebalance", seeds, tmp_path):
        check_rebalance(folder, seed)


def check_rebalance(tmp_path, seed):
    cluster = Cluster(seed)
    preview, carried_out = run_virtual(previewed_and_carried_out(cluster, tmp_path))

    assert preview["complete"]
    assert (preview["savingsPerHour"] > 0) is (seed not in NOTHING_TO_SAVE)
    if cluster.has_window and preview["steps"]:
        starts = [step["afterSeconds"] for step in preview["steps"]]
        assert min(starts) >= (WINDOW - timedelta(minutes=2)).total_seconds()
    launched = preview["launchedForPendingPods"]
    if cluster.is_wide and cluster.pending:
        assert launched["nodes"] > 0
    saved = (
        preview["before"]["pricePerHour"] + launched["pricePerHour"] - carried_out.price_per_hour
    )
    assert saved == pytest.approx(preview["savingsPerHour"], rel=0.02, abs=1e-9)
    assert carried_out.nodes == preview["after"]["nodes"]
    after = preview["after"]["pricePerHour"]
    assert carried_out.price_per_hour == pytest.approx(after, rel=0.02)
