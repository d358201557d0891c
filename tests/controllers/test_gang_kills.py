"""A process that serves a ProvisioningRequest is killed at every write, and every write fails.

Whatever happens, the gang is launched whole or nothing of it stays, never more than its own number of
nodes exists, and no NodeClaim gets a second instance.
"""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.kube.resources import PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS, PROVISIONING_REQUESTS
from tests.controllers.gangs import consumer, request, run_gangs
from tests.controllers.write_failures import WAYS, EveryWriteFailure, WriteRecord, write_of
from tests.support.drawn_faults import drawn_faults
from tests.support.forked_runs import ForkedRuns

DOWN_SECONDS = 2.0
"""Pause between a kill and the next process."""
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
"""Consolidation must not clean up what a gang has left."""
AT_ONCE = {**NEVER, "consolidateAfter": "0s"}
SIZE = 2
"""Nodes of the gang of a run."""


class KillAtEveryWrite:
    """Continues the run by one child for each write, which is killed before it or after it."""

    def __init__(self, stage, scene, forks):
        self._stage, self._scene, self._forks = stage, scene, forks
        self._is_dead = False

    async def __call__(self, op):
        if op.stage != self._stage or self._forks.is_child:
            return
        if self._forks.fork(f"{len(self._forks.names)}. {write_of(op)}"):
            self._scene.running.cut()
            self._reviving = asyncio.create_task(self._revive())

    async def _revive(self):
        await self._scene.cluster.clock.sleep(DOWN_SECONDS)
        self._scene.running = self._scene.harness.start()


async def launched_at_the_second_attempt(scene):
    """One of two instances fails at first; then the gang is launched, used and gone."""
    scene.break_cloud({"fault": "late-failure", "delay": "5s", "count": 1})
    scene.prepare(request(), disruption=NEVER)
    await scene.until(lambda: scene.is_true("Provisioned"), seconds=3600)
    assert len(scene.instances()) == SIZE
    scene.cluster.apply([consumer(f"worker-{n}") for n in range(6)])
    await scene.until(lambda: len(scene.bound()) == 6, seconds=60)
    await scene.until(lambda: scene.is_true("BookingExpired"))
    scene.cluster.patch(NODE_POOLS, "general", {"spec": {"disruption": AT_ONCE}})
    for pod in scene.bound():
        scene.cluster.delete(PODS, pod["metadata"]["name"], namespace="default")
    await scene.until(scene.is_empty)


async def given_up(scene):
    """One node is never ready, so that nothing of the gang may stay."""
    scene.break_cloud({"fault": "unready-node", "count": 100})
    scene.prepare(request("job", ValidUntilSeconds="120"), disruption=NEVER)
    await scene.until(lambda: scene.is_true("Failed"))
    assert not scene.is_true("Provisioned")
    await scene.until(scene.is_empty)


async def withdrawn(scene):
    """The request is deleted while its nodes start."""
    scene.break_cloud({"fault": "unready-node", "count": 100})
    scene.prepare(request(), disruption=NEVER)
    await scene.until(lambda: len(scene.nodes()) == SIZE, seconds=1800)
    scene.cluster.delete(PROVISIONING_REQUESTS, "job", namespace="default")
    await scene.until(scene.is_empty)


async def shared(scene):
    """Another request has places on the same nodes, and the request that launched them is deleted."""
    scene.break_cloud({"fault": "slow-node", "delay": "60s", "count": 1})
    job = request("job", ("workers", 4), ValidUntilSeconds="3600")
    scene.prepare(job, request("second", ("workers", 2)), disruption=NEVER)
    await scene.until(lambda: len(scene.nodes()) >= 1, seconds=3600)
    scene.cluster.delete(PROVISIONING_REQUESTS, "job", namespace="default")
    await scene.until(lambda: scene.is_true("Provisioned", "second"), seconds=3600)
    assert not scene.is_true("CapacityRevoked", "second")
    await scene.until(lambda: scene.is_true("BookingExpired", "second"))
    assert not scene.is_true("CapacityRevoked", "second")
    scene.cluster.patch(NODE_POOLS, "general", {"spec": {"disruption": AT_ONCE}})
    await scene.until(scene.is_empty)


RUNS = {
    "launched": (launched_at_the_second_attempt, 30),
    "given up": (given_up, 18),
    "withdrawn": (withdrawn, 18),
    "shared": (shared, 24),
}
"""Each with the number of writes that it has had at least."""


def run_with_faults(folder, run, faults):
    """Play a run; `faults` makes those of its first process, given the scene."""
    kept = []

    async def story(scene):
        counts = set()
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda _change: counts.add(len(scene.harness.claims()))
        )
        kept.append(faults(scene))
        scene.running = scene.harness.start(faults=kept[0])
        await RUNS[run][0](scene)
        assert max(counts) <= SIZE, "a node was bought twice"
        assert set(scene.launches().values()) <= {1}

    run_gangs(folder, story)
    return kept[0]


@pytest.mark.parametrize("run", RUNS)
def test_every_write_of_a_gang_is_observed(tmp_path, run):
    record = run_with_faults(tmp_path, run, lambda _scene: WriteRecord())
    assert len(record.writes) >= RUNS[run][1]


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stage", ["request", "reply"])
@pytest.mark.parametrize("run", RUNS)
def test_a_gang_is_whole_or_gone_after_a_kill_at_any_write(tmp_path, run, stage, pytestconfig):
    folder = tmp_path / "run"
    forks = ForkedRuns(folder, drawn_faults(pytestconfig, f"gang {run}", int(stage == "reply")))
    forks.play(
        lambda: run_with_faults(folder, run, lambda scene: KillAtEveryWrite(stage, scene, forks))
    )
    assert len(forks.names) >= RUNS[run][1] - 6


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_a_gang_is_whole_or_gone_after_any_failed_write(tmp_path, way, pytestconfig):
    folder = tmp_path / "run"
    drawn = drawn_faults(pytestconfig, "gang", list(WAYS).index(way))
    forks = ForkedRuns(folder, drawn)

    def is_chosen(op):
        return op.kind == PROVISIONING_REQUESTS or (
            op.kind == NODE_CLAIMS and op.verb in {"create", "delete"}
        )

    def failures(scene):
        return EveryWriteFailure(WAYS[way], scene.cluster.clock, forks, is_chosen)

    forks.play(lambda: run_with_faults(folder, "launched", failures))
    assert len(forks.names) >= 8
