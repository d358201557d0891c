"""Rollouts replace the pods of draining nodes before these are evicted, in whole runs.

At each write of the run, where it leaves the process, the process forks, and in the child that write
fails, or the controller dies there and another one is started: never is the only pod away, and no node
is launched twice for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from karpenter_core.api.rollouts import RESTARTED_AT
from karpenter_core.errors import ApiError
from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from tests.controllers.test_every_write import (
    ROOMY,
    budget,
    empty,
    names,
    serving,
    total,
    whole,
)
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

ON = ("--disable-leader-election", "--surge-moves=true")
LEAST = 28
"""Writes that the run has had at least; fewer: some are not seen."""


def single(*, annotation="true", **strategy):
    """A Deployment of one pod, which its budget never lets go."""
    built = deployment("web", 1)
    metadata = built["spec"]["template"]["metadata"]
    metadata["annotations"] = {"karpenter.sh/surge-move": annotation}
    if strategy:
        built["spec"]["strategy"] = strategy
    return built


def restarted_at(scene):
    (found,) = scene.cluster.server.registry.objects(DEPLOYMENTS)
    return found["spec"]["template"]["metadata"].get("annotations", {}).get(RESTARTED_AT)


def reasons(scene):
    return {event["reason"] for event in scene.events()}


async def live(scene, folder):
    """Delete the node of the only pod, which must always be there, and then the Deployment's pods."""
    scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), budget(), single()])
    await scene.settle(lambda: whole(scene, folder, 1), seconds=400)
    (first,) = names(scene.claims())
    available = []
    stop = scene.cluster.server.registry.store.listen(
        PODS, lambda _change: available.append(len(ready(scene)))
    )
    scene.cluster.delete(NODE_CLAIMS, first)
    await scene.settle(
        lambda: first not in names(scene.claims()) and whole(scene, folder, 1), seconds=900
    )
    stop()
    assert min(available) == 1, "the only pod was away"
    assert restarted_at(scene)
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: empty(scene, folder), seconds=900)


def ready(scene):
    return [
        pod
        for pod in serving(scene)
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", ())
        )
    ]


def play(folder, faults, *, scenario=live, arguments=ON, is_delayed=False):
    """Play a run; `faults` makes the faults of the first process, given clock and processes.

    A drain that is delayed begins after the empty node for its pod was removed again.
    """

    async def run(scene):
        running = []
        running.append(scene.start(*arguments, faults=faults(scene.cluster.clock, running)))
        keeper = asyncio.create_task(keep_running(scene, running))
        await scenario(scene, folder)
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        assert set(cloud(scene, folder)["launches"].values()) == {1}
        launched = len(cloud(scene, folder)["launches"])
        assert launched == 2 or (is_delayed and launched > 2), "one node each for the two pods"
        if len(running) == 1:
            assert total(running[0], "karpenter_pods_surge_moves") <= 2

    folder.mkdir()
    run_controller(folder, run)


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


def test_the_only_pod_is_replaced_before_its_eviction(tmp_path):
    """Although a budget allows no eviction at all."""
    record = WriteRecord()

    play(tmp_path / "run", lambda _clock, _running: record)

    assert ("patch", "Deployment", "", "web") in record.writes
    assert not [write for write in record.writes if write[0] == "evict"]
    assert len(record.writes) >= LEAST


def test_replaced_pods_are_counted_by_outcome(tmp_path):
    processes, counted = [], {}

    async def scenario(scene, folder):
        await live(scene, folder)
        ((running,),) = processes
        for outcome in ("restarted", "replaced", "refused", "expired"):
            series = f'karpenter_pods_surge_moves_total{{outcome="{outcome}"}}'
            counted[outcome] = running.metric(series)

    play(tmp_path / "run", lambda _clock, running: processes.append(running), scenario=scenario)

    assert counted == {"restarted": 1, "replaced": 1, "refused": 0, "expired": 0}


def test_without_the_setting_the_pod_is_evicted(tmp_path):
    record = WriteRecord()

    async def evicted(scene, folder):
        scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), single()])
        await scene.settle(lambda: whole(scene, folder, 1), seconds=400)
        (first,) = names(scene.claims())
        scene.cluster.delete(NODE_CLAIMS, first)
        await scene.settle(
            lambda: first not in names(scene.claims()) and whole(scene, folder, 1), seconds=900
        )
        assert restarted_at(scene) is None

    play(
        tmp_path / "run",
        lambda _clock, _running: record,
        scenario=evicted,
        arguments=("--disable-leader-election",),
    )
    assert len([write for write in record.writes if write[0] == "evict"]) == 1


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (single(type="Recreate"), "permits no pod more"),
        (
            single(type="RollingUpdate", rollingUpdate={"maxSurge": 1, "maxUnavailable": 1}),
            "maxUnavailable is not 0",
        ),
    ],
    ids=["recreate", "unavailable"],
)
def test_a_rollout_that_would_not_help_is_refused_with_the_reason(tmp_path, built, text):
    record = WriteRecord()

    async def refused(scene, folder):
        scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), built])
        await scene.settle(lambda: whole(scene, folder, 1), seconds=400)
        (first,) = names(scene.claims())
        scene.cluster.delete(NODE_CLAIMS, first)
        await scene.settle(
            lambda: first not in names(scene.claims()) and whole(scene, folder, 1), seconds=900
        )
        messages = [e["message"] for e in scene.events() if e["reason"] == "RolloutRestartRefused"]
        assert len(messages) == 1
        assert text in messages[0]
        assert restarted_at(scene) is None

    play(tmp_path / "run", lambda _clock, _running: record, scenario=refused)


def test_a_replacement_that_never_comes_up_is_not_waited_for_without_end(tmp_path):
    """The pod is evicted after ten minutes, and is planned for again."""

    async def hopeless(scene, folder):
        scene.cluster.apply([NODE_CLASS, node_pool(template=ROOMY), single()])
        await scene.settle(lambda: whole(scene, folder, 1), seconds=400)
        (first,) = names(scene.claims())
        (old,) = names(scene.pods())
        gate = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}}}
        scene.cluster.patch(DEPLOYMENTS, "web", gate, namespace="default")
        begin = scene.cluster.clock.now()
        scene.cluster.delete(NODE_CLAIMS, first)
        await scene.settle(lambda: first not in names(scene.claims()), seconds=1200)
        waited = (scene.cluster.clock.now() - begin).total_seconds()
        assert 600 <= waited < 700
        assert old not in names(scene.pods())
        assert {"RolloutRestartInProgress", "RolloutRestartRefused"} <= reasons(scene)
        assert restarted_at(scene) is None
        # A second launch, which the other runs have too.
        scene.cluster.apply([deployment("other", 1)])
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=400)

    play(tmp_path / "run", lambda _clock, _running: WriteRecord(), scenario=hopeless)


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_the_only_pod_stays_after_any_failed_write(tmp_path, way, pytestconfig):
    folder = tmp_path / "run"
    drawn = drawn_faults(pytestconfig, "surge", list(WAYS).index(way))
    forks = ForkedRuns(folder, drawn)
    failures = lambda clock, _: EveryWriteFailure(WAYS[way], clock, forks)  # noqa: E731
    forks.play(lambda: play(folder, failures, is_delayed=way == "timed-out"))
    assert len(forks.names) >= LEAST


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stage", ["request", "reply"])
def test_the_only_pod_stays_after_a_kill_at_any_write(tmp_path, stage, pytestconfig):
    """Before the write, and after it was done without an answer."""
    folder = tmp_path / "run"
    forks = ForkedRuns(folder, drawn_faults(pytestconfig, "surge kills", int(stage == "reply")))
    forks.play(lambda: play(folder, lambda _, running: KillAtEveryWrite(stage, running, forks)))
    assert len(forks.names) >= LEAST
