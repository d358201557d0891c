"""A controller may die between any two steps: nothing is lost, leaked or launched twice."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.testing.gateway import Gateway, Moment, Write
from karpenter_core.testing.runner import World
from karpenter_core.testing.scenarios import Count, Deployment, Expectation, Given, NodePool, Pods
from tests.e2e.kwok import KwokCloud

if TYPE_CHECKING:
    from karpenter_core.testing.beds import Bed
    from karpenter_core.testing.controller import ControllerProcess

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

MAX_STEPS: Final = 60
"""More writes than any launch or termination of one node has; a bound, should counting fail."""
STOPPED_SECONDS: Final = 30.0
ONE: Final = Count(at_least=1, at_most=1)
LAUNCHED: Final = Expectation(
    within=timedelta(seconds=60),
    pods=Pods(running=ONE),
    nodes=ONE,
    ready_nodes=ONE,
    node_claims=ONE,
    instances=ONE,
    consistent=True,
    node_taints_absent=["karpenter.sh/unregistered"],
)
STEADY: Final = LAUNCHED.model_copy(update={"hold": timedelta(seconds=2)})
GONE: Final = Expectation(within=timedelta(seconds=60), nothing_left=True)


class Assassin:
    """Kills the controller at one write of a phase; says whether it came to that."""

    def __init__(self, controller: ControllerProcess, number: int, moment: Moment) -> None:
        self._controller = controller
        self._target = (number, moment)
        self.struck: Write | None = None

    async def __call__(self, write: Write, moment: Moment) -> bool:
        if self.struck is None and (write.number, moment) == self._target:
            self.struck = write
            await self._controller.process.kill()
        return self.struck is None


@pytest.mark.parametrize("moment", list(Moment))
async def test_killed_at_any_write_of_launch_and_termination(
    bed: Bed, moment: Moment, tmp_path: Path
):
    """Before a write reaches the API server, and after it was done but not yet known.

    The phases are played again and again, the kill one write later each time, until neither phase
    has a write left to be killed at.
    """
    struck: list[str] = []
    async with (
        World(bed, KwokCloud(), tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        given = Given(node_pools=[NodePool(name="general")], deployments=[Deployment(name="web")])
        for manifest in given.objects():
            await world.create(manifest)
        controller = world.add_controller(
            kubeconfig=gateway.kubeconfig,
            options={"providers": "kwok", "disable-leader-election": "true"},
        )
        await controller.start()
        for number in range(1, MAX_STEPS):
            before = len(struck)
            for replicas, done, settled in ((1, LAUNCHED, STEADY), (0, GONE, GONE)):
                assassin = Assassin(controller, number, moment)
                gateway.watch_writes(assassin)
                await world.scale("web", replicas)
                await world.expect_or(done, lambda: assassin.struck is not None)  # noqa: B023
                gateway.watch_writes(None)
                if assassin.struck is not None:
                    struck.append(f"{replicas}: {assassin.struck}")
                    await controller.start()
                await world.expect(settled, where=f"{moment} write {number}, {assassin.struck}")
            if len(struck) == before:
                break

    launches = [step for step in struck if step.startswith("1:")]
    terminations = [step for step in struck if step.startswith("0:")]
    assert any("POST" in step and "nodeclaims" in step for step in launches), launches
    assert any("POST" in step and step.endswith("/nodes") for step in launches), launches
    assert any("DELETE" in step and "nodeclaims" in step for step in terminations), terminations
    assert len(launches) >= 4, launches
    assert len(terminations) >= 3, terminations


async def test_leader_killed_between_claim_and_launch_leaves_one_claim(bed: Bed, tmp_path: Path):
    """The standby takes the claim over; the pods that still wait get no second one."""
    async with (
        World(bed, KwokCloud(), tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        given = Given(
            node_pools=[NodePool(name="general")],
            deployments=[Deployment(name="web", replicas=5)],
        )
        leader = world.add_controller(
            "leader", kubeconfig=gateway.kubeconfig, options={"providers": "kwok"}
        )
        standby = world.add_controller("standby", options={"providers": "kwok"})
        await leader.start()
        await world.expect_leader()
        await standby.start()

        async def kill_after_claim(write: Write, moment: Moment) -> bool:
            claimed = write.method == "POST" and write.path.endswith("/nodeclaims")
            if claimed and moment is Moment.AFTER:
                await leader.process.kill()
            return leader.process.is_running

        gateway.watch_writes(kill_after_claim)
        for manifest in given.objects():
            await world.create(manifest)
        await world.expect(
            Expectation(
                within=timedelta(seconds=90),
                hold=timedelta(seconds=5),
                pods=Pods(running=Count(at_least=5, at_most=5)),
                launched=ONE,
                instances=ONE,
                consistent=True,
            ),
            where="after the standby took over",
        )
        assert leader.process.exit_code == -signal.SIGKILL


async def test_leader_stopped_for_half_a_minute_launches_and_terminates_nothing(
    bed: Bed, tmp_path: Path
):
    """It is stopped in the middle of a launch; when it goes on, another one leads and has done it."""
    cloud = KwokCloud()
    async with (
        World(bed, cloud, tmp_path, crds=CRDS) as world,
        Gateway(world.client, tmp_path / "gateway.kubeconfig") as gateway,
    ):
        given = Given(
            node_pools=[NodePool(name="general")],
            deployments=[Deployment(name="web", replicas=5)],
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

        async def stop_after_claim(write: Write, moment: Moment) -> bool:
            nonlocal stopped
            claimed = write.method == "POST" and write.path.endswith("/nodeclaims")
            if claimed and moment is Moment.AFTER and not stopped:
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
                pods=Pods(running=Count(at_least=5, at_most=5)),
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
        more = Expectation(pods=Pods(running=Count(at_least=40, at_most=40)), consistent=True)
        await world.expect(more, where="after the old leader went on")
        await world.scale("web", 0)
        await world.expect(GONE, where="after the old leader went on")

        calls = (await cloud.dump(tmp_path))["calls"]
        by_old = [call for call in calls if call["process"] == old.process.pid]
        touched = [call for call in by_old if call["operation"] in ("launch", "terminate")]
        assert touched == []
        assert {call["process"] for call in calls} >= {standby.process.pid}
