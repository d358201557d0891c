"""A process killed at every await of a whole life, and what its successor makes of it."""

from __future__ import annotations

import asyncio
import json
import os
from unittest.mock import patch

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.invariants import Invariants, unquiet
from karpenter_core.testing.kills import Awaits, shown
from karpenter_provider_kwok.cloud import SimulatedCloud
from tests.controllers.scenes import NODE_CLASS, cloud, deployment, node_pool, play

WITHOUT_ELECTION = "--disable-leader-election"
DOWN_SECONDS = 2.0
"""How long nobody runs between a kill and the next process."""
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


LIVES = {"renewed": (renewed, 128), "refused": (refused, 140)}
"""Each with how many awaits it has come by; fewer would mean that some are not seen."""


def serving(scene):
    return [
        pod
        for pod in scene.pods("Running")
        if pod["metadata"]["labels"]["app"] == "web"
        and not pod["metadata"].get("deletionTimestamp")
    ]


def lived(folder, life, **kill):
    """Live a life, killed where that is wanted; return the awaits that were come by."""
    kept = []

    async def story(scene):
        awaits = Awaits(**kill)
        kept.append(awaits)
        watch = Invariants(scene)

        async def breath(op):
            """Let a process die between the server's answer and what it makes of it."""
            await watch.note_write(op)
            await asyncio.sleep(0)

        def start():
            return scene.start(WITHOUT_ELECTION, faults=breath)

        async def revive(running):
            await awaits.killed.wait()
            await running.kill()
            await scene.cluster.clock.sleep(DOWN_SECONDS)
            start()

        terminate = SimulatedCloud.terminate

        def watched(self, provider_ids):
            watch.note_terminate(provider_ids)
            return terminate(self, provider_ids)

        with patch.object(SimulatedCloud, "terminate", watched):
            reviving = asyncio.create_task(revive(awaits.start(start)))
            await LIVES[life][0](Scene(scene, folder))
            awaits.is_over = True
            reviving.cancel()
        assert watch.breaches == []
        assert awaits.is_dead == bool(kill), "the process did not come by there again"

    folder.mkdir(parents=True)
    play(folder, story, arguments=[f"--kwok-faults-file={folder / 'faults.json'}"])
    return kept[0].seen


SHARES = 12
"""Into how many tests the kills of a life are split, so that they can run side by side."""
EVERY = "KARPENTER_EVERY_KILL"
"""Set it to kill at every occurrence of every await, not only at its first and its last."""

pytestmark = pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning")
"""What was about to begin when the process died."""


def kills(folder, life):
    """Each await with the occurrences at which the process is killed.

    Awaits that an earlier life has come by as well are killed there alone.
    """
    seen = lived(folder / life, life)
    for earlier in () if os.environ.get(EVERY) else LIVES:
        if earlier == life:
            break
        for point in lived(folder / earlier, earlier):
            seen.pop(point, None)
    for point, times in seen.items():
        chosen = range(1, times + 1) if os.environ.get(EVERY) else sorted({1, times})
        yield from ({"kill_at": point, "occurrence": number} for number in chosen)


@pytest.mark.parametrize("life", LIVES)
def test_the_awaits_of_a_life_are_all_seen(tmp_path, life, capsys):
    """As many as ever, as often each time, so that an occurrence means one moment."""
    seen = lived(tmp_path / "first", life)
    with capsys.disabled():
        print(f"\n{life}: {len(seen)} awaits, come by {seen.total()} times")  # noqa: T201
    assert len(seen) >= LIVES[life][1]
    assert list(seen.items()) == list(lived(tmp_path / "second", life).items())


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("life", LIVES)
def test_a_life_ends_well_wherever_the_process_is_killed(tmp_path, life, share):
    failed = []
    for number, kill in enumerate([*kills(tmp_path / "whole", life)][share::SHARES]):
        try:
            lived(tmp_path / str(number), life, **kill)
        except Exception as error:
            failed.append(f"{kill['occurrence']}. {shown(kill['kill_at'])}: {error!r}")
    assert failed == []
