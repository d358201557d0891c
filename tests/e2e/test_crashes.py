"""A controller may die between any two steps: nothing is lost, leaked or launched twice."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.support.gateway import Gateway, HookMoment, ObservedWrite
from tests.support.runner import NODE_CLAIMS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.controller import ControllerProcess
    from tests.support.local_clusters import LocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

STEPS_OF: Final = frozenset({"nodeclaims", "nodes", "pods", "status", "eviction"})
"""Parts of a path that make up a step. A write to a NodePool is no step of a node's life."""
TRIES: Final = 2
"""Number of waits for a step; a step may come twice in one run and once in the next."""
MAX_ROUNDS: Final = 40
"""More than there are steps; a bound, should counting fail."""
STOPPED_SECONDS: Final = 30.0
ONE: Final = CountBounds(at_least=1, at_most=1)
LAUNCHED: Final = Expectation(
    within=timedelta(seconds=60),
    pods=ExpectedPods(running=ONE),
    nodes=ONE,
    ready_nodes=ONE,
    node_claims=ONE,
    instances=ONE,
    consistent=True,
    node_taints_absent=["karpenter.sh/unregistered"],
    hold=timedelta(seconds=1),
)
GONE: Final = Expectation(within=timedelta(seconds=60), nothing_left=True)


class ControllerKiller:
    """Kills the controller at one step of a phase; writes down every step it sees.

    A step is a write with the objects' names left out, and which one of its kind it is:
    `PATCH nodeclaims/status 2`.
    """

    def __init__(
        self,
        controller: ControllerProcess,
        target: str | None,
        moment: HookMoment,
        steps: list[str],
    ) -> None:
        self._controller = controller
        self._target = target
        self._moment = moment
        self._steps = steps
        self._seen: Counter[str] = Counter()
        self._of_write: dict[int, str] = {}
        self._at_work = False
        self._struck = asyncio.Event()

    @property
    def has_struck(self) -> bool:
        """Whether the controller is dead by now."""
        return self._struck.is_set()

    async def __call__(self, write: ObservedWrite, moment: HookMoment) -> bool:
        if moment is HookMoment.BEFORE:
            self._of_write[write.number] = self._next_step(write)
        step = self._of_write.get(write.number)
        if step is not None and (step, moment) == (self._target, self._moment):
            self._at_work = True
            await self._controller.process.kill()
            self._struck.set()
        return not self._at_work

    async def leave(self) -> None:
        """Wait until a started fault is done: what it interrupts may have its result first."""
        if self._at_work:
            await self._struck.wait()

    def _next_step(self, write: ObservedWrite) -> str:
        parts = write.path.split("/")
        kind = f"{write.method} {'/'.join(part for part in parts if part in STEPS_OF)}"
        self._seen[kind] += 1
        step = f"{kind} {self._seen[kind]}"
        if "nodepools" not in parts and step not in self._steps:
            self._steps.append(step)
        return step


async def need_a_node(world: ScenarioWorld) -> None:
    """Create a pod that no controller would replace.

    It tolerates the taint of nodes that are not registered yet: Kubernetes' own taint eviction may
    look at a stale node and delete a pod that was bound just after the taint had gone.
    """
    key = "karpenter.sh/unregistered"
    toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    template = ScenarioDeployment(name="web", pod={"tolerations": [toleration]}).manifest()
    manifest = template["spec"]["template"]
    metadata = {**manifest["metadata"], "name": "web"}
    await world.create({**manifest, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})


async def need_it_no_more(world: ScenarioWorld) -> None:
    """Delete the NodeClaim: its node is tainted, drained and terminated."""
    for claim in world.mirror.objects(NODE_CLAIMS):
        await world.client.delete(NODE_CLAIMS, claim["metadata"]["name"])


@pytest.mark.parametrize(
    ("local_cluster", "moment"),
    [
        ("embedded", HookMoment.BEFORE),  # no API server sees such a write
        ("real", HookMoment.AFTER),
    ],
    indirect=["local_cluster"],
)
async def test_killed_at_any_step_of_launch_and_termination(
    local_cluster: LocalCluster, moment: HookMoment, tmp_path: Path
):
    """Before a write reaches the API server, and after it was done but not yet known.

    Launch and termination are played again and again, with a kill at a step that has not had one,
    until there is none left; new steps join as they are seen.
    """
    phases = {"launch": (need_a_node, LAUNCHED), "termination": (need_it_no_more, GONE)}
    steps: dict[str, list[str]] = {phase: [] for phase in phases}
    struck: dict[str, list[str]] = {phase: [] for phase in phases}
    async with (
        ScenarioWorld(local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        never = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        for manifest in InitialObjects(
            node_pools=[ScenarioNodePool(name="general", disruption=never)]
        ).objects():
            await world.create(manifest)
        controller = world.add_controller(
            kubeconfig=gateway.kubeconfig,
            options={"providers": "kwok", "disable-leader-election": "true"},
        )
        await controller.start()
        tried: Counter[tuple[str, str]] = Counter()
        for _ in range(MAX_ROUNDS):
            for phase, (act, result) in phases.items():
                open_steps = [
                    step
                    for step in steps[phase]
                    if step not in struck[phase] and tried[phase, step] < TRIES
                ]
                target = open_steps[0] if open_steps else None
                if target is not None:
                    tried[phase, target] += 1
                killer = ControllerKiller(controller, target, moment, steps[phase])
                gateway.watch_writes(killer)
                await act(world)
                await world.expect_or(result, lambda: killer.has_struck)  # noqa: B023 - done here
                gateway.watch_writes(None)
                await killer.leave()
                if killer.has_struck and target is not None:
                    struck[phase].append(target)
                    await controller.start()
                await world.expect(result, where=f"{phase}, killed {moment} {target}")
            if all(tried[phase, step] for phase in phases for step in steps[phase]):
                break
        await world.expect(GONE.model_copy(update={"hold": timedelta(seconds=5)}), where="the end")

    assert "POST nodeclaims 1" in struck["launch"], struck
    assert "POST nodes 1" in struck["launch"], struck
    assert "PATCH nodeclaims/status 1" in struck["launch"], struck
    assert "POST pods/eviction 1" in struck["termination"], struck
    assert any(step.startswith("PATCH nodes") for step in struck["termination"]), struck
    assert any(step.startswith("PATCH nodeclaims") for step in struck["termination"]), struck


async def test_leader_killed_between_claim_and_launch_leaves_one_claim(
    real_local_cluster: LocalCluster, tmp_path: Path
):
    """The standby takes the claim over; the pods that still wait get no second one."""
    async with (
        ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        given = InitialObjects(
            node_pools=[ScenarioNodePool(name="general")],
            deployments=[ScenarioDeployment(name="web", replicas=1)],
        )
        leader = world.add_controller(
            "leader", kubeconfig=gateway.kubeconfig, options={"providers": "kwok"}
        )
        standby = world.add_controller("standby", options={"providers": "kwok"})
        await leader.start()
        await world.expect_leader()
        await standby.start()

        async def kill_after_claim(write: ObservedWrite, moment: HookMoment) -> bool:
            claimed = write.method == "POST" and write.path.endswith("/nodeclaims")
            if claimed and moment is HookMoment.AFTER:
                await leader.process.kill()
            return leader.process.is_running

        gateway.watch_writes(kill_after_claim)
        for manifest in given.objects():
            await world.create(manifest)
        await world.expect(
            Expectation(
                within=timedelta(seconds=90),
                hold=timedelta(seconds=5),
                pods=ExpectedPods(running=ONE),
                launched=ONE,
                instances=ONE,
                consistent=True,
            ),
            where="after the standby took over",
        )
        assert leader.process.exit_code == -signal.SIGKILL


async def test_a_leader_suspended_for_half_a_minute_launches_and_terminates_nothing(
    embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """It is stopped in the middle of a launch; when it goes on, another one leads and has done it."""
    cloud = KwokCloud()
    async with (
        ScenarioWorld(embedded_local_cluster, cloud, tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        given = InitialObjects(
            node_pools=[ScenarioNodePool(name="general")],
            deployments=[ScenarioDeployment(name="web", replicas=1)],
        )
        old = world.add_controller(
            "old", kubeconfig=gateway.kubeconfig, options={"providers": "kwok"}
        )
        standby = world.add_controller("standby", options={"providers": "kwok"})
        # It may end when it finds that it no longer leads, or stand by: both are right.
        world.expendable.add("old")
        await old.start()
        await world.expect_leader()
        await standby.start()

        stopped = False

        async def stop_after_claim(write: ObservedWrite, moment: HookMoment) -> bool:
            nonlocal stopped
            claimed = write.method == "POST" and write.path.endswith("/nodeclaims")
            if claimed and moment is HookMoment.AFTER and not stopped:
                stopped = True
                old.process.signal(signal.SIGSTOP)
            return True

        gateway.watch_writes(stop_after_claim)
        for manifest in given.objects():
            await world.create(manifest)
        begun = await world.expect(
            Expectation(
                within=timedelta(seconds=90),
                hold=timedelta(seconds=1),
                pods=ExpectedPods(running=ONE),
                launched=ONE,
                consistent=True,
            ),
            where="while the old leader is stopped",
        )
        await asyncio.sleep(max(0.0, STOPPED_SECONDS - begun))
        assert stopped
        old.process.signal(signal.SIGCONT)

        # Something to do for whoever believes to lead: more pods, then none.
        await world.scale("web", 40)
        more = Expectation(
            pods=ExpectedPods(running=CountBounds(at_least=40, at_most=40)), consistent=True
        )
        await world.expect(more, where="after the old leader went on")
        await world.scale("web", 0)
        await world.expect(GONE, where="after the old leader went on")

        calls = (await cloud.dump(tmp_path))["calls"]
        by_old = [call for call in calls if call["process"] == old.process.pid]
        touched = [call for call in by_old if call["operation"] in ("launch", "terminate")]
        assert touched == []
        assert {call["process"] for call in calls} >= {standby.process.pid}
