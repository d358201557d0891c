"""Every write of a static NodePool's life is failed in every way, and the process killed at each.

The pool is created, grows, drifts, shrinks and goes to nothing. At each write, where it leaves the
process, the process forks, and in the child that write fails, or the controller dies there and another
one is started. Whatever happens, there are never more claims than `limits.nodes`, every claim has one
instance, and the pool ends with its replicas.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from tests.controllers.whole_controller import NODE_CLASS, cloud, node_pool, run_controller
from tests.controllers.write_failures import WAYS, EveryWriteFailure, WriteRecord
from tests.support.drawn_faults import drawn_faults
from tests.support.forked_runs import ForkedRuns

ON = ("--disable-leader-election", "--feature-gates=StaticCapacity=true")
LIMIT = 3
LEAST = 60
"""Writes that the run has had at least; fewer: some are not seen."""


def is_ready(claim):
    conditions = claim.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def is_settled(scene, folder, count, revision):
    """Return whether there are so many complete nodes of this revision, and nothing else."""
    claims, nodes = scene.claims(), scene.nodes()
    marks = {taint["key"] for node in nodes for taint in node["spec"].get("taints") or ()}
    return (
        len(claims) == len(nodes) == count == len(cloud(scene, folder)["instances"])
        and all(map(is_ready, claims))
        and not any(item["metadata"].get("deletionTimestamp") for item in (*nodes, *claims))
        and not {mark for mark in marks if mark.startswith("karpenter.sh/")}
        and all(claim["metadata"]["annotations"]["revision"] == revision for claim in claims)
    )


async def live(scene, folder):
    """Let the pool live."""
    pool = node_pool(
        replicas=2,
        limits={"nodes": LIMIT},
        disruption={"budgets": [{"nodes": "100%"}], "consolidateAfter": "Never"},
    )
    pool["spec"]["template"]["metadata"] = {"annotations": {"revision": "1"}}
    scene.cluster.apply([NODE_CLASS, pool])
    await scene.settle(lambda: is_settled(scene, folder, 2, "1"), seconds=900)
    template = {"metadata": {"annotations": {"revision": "2"}}}
    scene.cluster.patch(NODE_POOLS, "general", {"spec": {"template": template}})
    await scene.settle(lambda: is_settled(scene, folder, 2, "2"), seconds=1800)
    for replicas in (3, 1, 0):
        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"replicas": replicas}})
        await scene.settle(lambda n=replicas: is_settled(scene, folder, n, "2"), seconds=900)


def play(folder, faults):
    """Play the life; `faults` makes the faults of the first process, given clock and process."""
    most = [0]

    async def scenario(scene):
        running = []
        made = faults(scene.cluster.clock, running)
        existing = set()

        def count(change):
            uid = change.stored.obj["metadata"]["uid"]
            (existing.discard if change.type == "DELETED" else existing.add)(uid)
            most[0] = max(most[0], len(existing))

        scene.cluster.server.registry.store.listen(NODE_CLAIMS, count)
        running.append(scene.start(*ON, faults=made))
        keeper = asyncio.create_task(keep_running(scene, running))
        await live(scene, folder)
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        assert set(cloud(scene, folder)["launches"].values()) == {1}
        assert most[0] <= LIMIT, f"{most[0]} claims at once"

    folder.mkdir()
    run_controller(folder, scenario)
    return most[0]


async def keep_running(scene, running):
    """Start another process when one has died."""
    while True:
        await scene.cluster.clock.sleep(1)
        if not running[-1].is_alive:
            running.append(scene.start(*ON))


class KillAtEveryWrite:
    """Continues the run by one child for each write, in which the process dies at this stage."""

    def __init__(self, stage, running, forks):
        self._stage, self._running, self._forks = stage, running, forks

    async def __call__(self, op):
        if self._forks.is_child or op.stage != self._stage:
            return
        if self._forks.fork(f"{len(self._forks.names)}. {op.verb} {op.kind.kind} {op.name}"):
            self._running[0].cut()
            message = "the process is dead"
            raise ApiError(message, status=0)


def test_a_static_pool_lives_within_its_limit(tmp_path):
    """Without a fault, and with as many writes as ever."""
    record = WriteRecord()

    assert play(tmp_path / "run", lambda _clock, _running: record) == LIMIT
    assert len(record.writes) >= LEAST


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_a_static_pool_has_its_replicas_after_any_failed_write(tmp_path, way, pytestconfig):
    folder = tmp_path / "run"
    drawn = drawn_faults(pytestconfig, "static", list(WAYS).index(way))
    forks = ForkedRuns(folder, drawn)
    forks.play(lambda: play(folder, lambda clock, _: EveryWriteFailure(WAYS[way], clock, forks)))
    assert len(forks.names) >= LEAST


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stage", ["request", "reply"])
def test_a_static_pool_has_its_replicas_after_a_kill_at_any_write(tmp_path, stage, pytestconfig):
    """Before the write, and after it was done without an answer."""
    folder = tmp_path / "run"
    forks = ForkedRuns(folder, drawn_faults(pytestconfig, "static kills", int(stage == "reply")))
    forks.play(lambda: play(folder, lambda _, running: KillAtEveryWrite(stage, running, forks)))
    assert len(forks.names) >= LEAST
