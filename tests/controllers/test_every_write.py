"""Every write of whole runs is failed in every way.

At each write of a run, where it leaves the process, the process forks, and in the child that write
fails: with a conflict, with 429, with 500, without an answer because it never arrived, and without one
although it was done. Whatever fails, the run has to end
as it does undisturbed: no claim without an instance, no node without a claim, no pod lost, no taint
left behind, and nothing launched twice.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.controllers.write_failures import WAYS, EveryWriteFailure, WriteRecord
from tests.support.drawn_faults import drawn_faults
from tests.support.forked_runs import ForkedRuns

WITHOUT_ELECTION = "--disable-leader-election"

ROOMY = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
    ]
}
"""Instance types on which all pods of a run have room."""


def budget():
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }


def names(objects):
    return {item["metadata"]["name"] for item in objects}


def whole(scene, tmp_path, pods):
    """Return whether so many pods run on complete nodes."""
    if not len(scene.pods("Running")) == pods == len(scene.pods()):
        return False
    nodes, claims = scene.nodes(), scene.claims()
    marks = {taint["key"] for node in nodes for taint in node["spec"].get("taints") or ()}
    return (
        len(nodes) == len(claims)
        and not any(item["metadata"].get("deletionTimestamp") for item in (*nodes, *claims))
        and not {mark for mark in marks if mark.startswith("karpenter.sh/")}
        and all(is_ready(claim) for claim in claims)
        and len(claims) == len(cloud(scene, tmp_path)["instances"])
    )


def serving(scene):
    return [p for p in scene.pods("Running") if not p["metadata"].get("deletionTimestamp")]


def is_ready(claim):
    conditions = claim.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def empty(scene, tmp_path):
    return not (scene.nodes() or scene.claims() or cloud(scene, tmp_path)["instances"])


async def drained(scene, tmp_path):
    """Made for pods, deleted under them within their budget, replaced, emptied, gone."""
    scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), budget(), deployment("web", 2)])
    await scene.settle(lambda: whole(scene, tmp_path, 2), seconds=400)
    (first,) = names(scene.claims())
    available = []
    stop = scene.cluster.server.registry.store.listen(
        PODS, lambda _change: available.append(len(serving(scene)))
    )
    scene.cluster.delete(NODE_CLAIMS, first)
    await scene.settle(
        lambda: first not in names(scene.claims()) and whole(scene, tmp_path, 2), seconds=900
    )
    stop()
    assert min(available) == 1, "the budget allows one pod to be away, and no more"
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: empty(scene, tmp_path), seconds=900)


async def forced(scene, tmp_path):
    """Use protected pods, and a deadline that none of them outlives."""
    pool = node_pool(
        template={
            **ROOMY,
            "terminationGracePeriod": "60s",
            "startupTaints": [{"key": "example.com/boot", "effect": "NoSchedule"}],
        }
    )
    protected = deployment("web", 2, terminationGracePeriodSeconds=5)
    metadata = protected["spec"]["template"]["metadata"]
    metadata["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    scene.cluster.apply([NODE_CLASS, pool, protected])
    await booted(scene, tmp_path)
    (first,) = names(scene.nodes())
    scene.cluster.delete(NODES, first)
    await booted(scene, tmp_path, gone=first)
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: empty(scene, tmp_path), seconds=900)


async def booted(scene, tmp_path, gone=""):
    """Wait for two pods on new nodes, whose startup taint another client removes."""

    def holds():
        for node in scene.nodes():
            taints = node["spec"].get("taints") or ()
            kept = [taint for taint in taints if taint["key"] != "example.com/boot"]
            if len(kept) < len(taints) and not any("unregistered" in t["key"] for t in kept):
                patch = {"spec": {"taints": kept or None}}
                name = node["metadata"]["name"]
                scene.cluster.server.registry.patch(NODES, patch, name, "")
        return gone not in names(scene.nodes()) and whole(scene, tmp_path, 2)

    await scene.settle(holds, seconds=900)


async def unlucky(scene, tmp_path):
    """No capacity at first; then the cloud takes the instance away, and its Node vanishes too."""
    scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), deployment("web", 2)])
    await scene.settle(lambda: whole(scene, tmp_path, 2), seconds=400)
    (first,) = names(scene.claims())
    with closing(sqlite3.connect(tmp_path / "kwok.sqlite3")) as instances, instances:
        instances.execute("UPDATE instances SET gone_at = launched_at")
    for name in names(scene.nodes()):
        scene.cluster.server.registry.patch(NODES, {"metadata": {"finalizers": None}}, name, "")
        scene.cluster.delete(NODES, name)
    await scene.settle(
        lambda: first not in names(scene.claims()) and whole(scene, tmp_path, 2), seconds=900
    )
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: empty(scene, tmp_path), seconds=900)


RUNS = {
    "drained": (drained, {"request": 34, "reply": 29}),
    "forced": (forced, {"request": 37, "reply": 36}),
    "unlucky": (unlucky, {"request": 30, "reply": 30}),
}
"""Each with the number of writes and of answers that it has had; fewer: some are not seen."""


def run_with_faults(folder, run, faults, troubles=()):
    """Run a cluster under faults of write and cloud; return the faults or the recorded writes."""
    kept = {}

    async def scenario(scene):
        kept["faults"] = faults(scene.cluster.clock)
        claims = set()
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda change: claims.add(change.stored.obj["metadata"]["uid"])
        )
        running = scene.start(WITHOUT_ELECTION, faults=kept["faults"])
        await run(scene, folder)
        launches = cloud(scene, folder)["launches"]
        assert set(launches.values()) == {1}, "each claim has had one instance"
        for name, expected in {
            "nodes_created": launches,
            "nodes_drained": launches,
            "nodes_terminated": launches,
            "nodeclaims_terminated": claims,
        }.items():
            assert total(running, f"karpenter_{name}") <= len(expected), (
                f"{name} counts an object twice"
            )

    print(f"{folder.name}: {run.__name__}")  # noqa: T201 - seen where the run fails
    folder.mkdir()
    faults_file = folder / "faults.json"
    stock_out = {"fault": "stock-out", "count": 1}
    faults_file.write_text(json.dumps([*troubles, *([stock_out] if run is unlucky else ())]))
    run_controller(folder, scenario, arguments=[f"--kwok-faults-file={faults_file}"])
    return kept["faults"]


def total(running, counter):
    """Sum a counter over all of its labels."""
    series = f"{counter}_total"
    families = running.process.metrics.registry.restricted_registry([series]).collect()
    return sum(sample.value for family in families for sample in family.samples)


@pytest.mark.parametrize("run", RUNS)
def test_every_write_of_a_run_is_observed(tmp_path, run, capsys):
    """As many as ever, in the same order each time, so that a number means one write."""

    def recorded_writes(name):
        record = run_with_faults(tmp_path / name, RUNS[run][0], lambda _clock: WriteRecord())
        return record.writes

    writes = recorded_writes("first")
    with capsys.disabled():
        print(f"\n{run}: {len(writes)} writes, {len(WAYS)} ways to fail each")  # noqa: T201
    assert len(writes) >= RUNS[run][1]["request"]
    assert writes == recorded_writes("second")


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_converges_after_any_failed_write(tmp_path, run, way, pytestconfig):
    folder = tmp_path / "run"
    drawn = drawn_faults(pytestconfig, f"write {run}", list(WAYS).index(way))
    forks = ForkedRuns(folder, drawn)
    failures = lambda clock: EveryWriteFailure(WAYS[way], clock, forks)  # noqa: E731
    forks.play(lambda: run_with_faults(folder, RUNS[run][0], failures))
    assert len(forks.names) >= RUNS[run][1][WAYS[way].stage]


CALLS = [(run, operation) for run in RUNS for operation in ("launch", "terminate")]
"""Cloud calls of the runs; only the unlucky one is long enough for a comparison."""


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "trouble",
    [
        {"fault": "throttle", "retryAfter": "7s"},
        {"fault": "lost-reply"},
        {"fault": "slow-reply", "delay": "90s"},
        {"fault": "slow-call", "delay": "90s"},
    ],
    ids=lambda trouble: trouble["fault"],
)
@pytest.mark.parametrize(("run", "operation"), [*CALLS, ("unlucky", "list")])
def test_a_run_converges_after_any_cloud_fault(tmp_path, run, trouble, operation):
    """The first two calls of each sort are refused, late, or done without an answer."""
    troubles = [{**trouble, "operation": operation, "count": 2}]
    run_with_faults(tmp_path / "run", RUNS[run][0], lambda _clock: WriteRecord(), troubles)
