"""Lets two controllers run for an hour on the real control plane, and looks for leaks.

Sixty to three hundred pods come and go. In the first part the leader is killed again and again; then
one pair of processes lives until the end. The API server is killed and started again throughout. Each
round begins with the most pods and ends with the fewest, so that the rounds are alike in their peak and
where they are measured. There the load stands still until pods, nodes, claims and instances agree, no
node comes or goes any more, and unused connections are closed; then memory, tasks and open files of
both are measured. In the end everything has to be gone. A figure leaks if it rises steadily over the
last leader's life (tests.support.trends); the containers that rise with it are named.

What a controller keeps for the sake of the past is bounded, but some of these bounds need hours to be
full: they are lowered, so that only what has no bound can rise. --production-bounds leaves them.

The C heap of a leader rises by about 0.09 MiB a round at first, all of it bounded. Of 265 KiB by which the
allocations that were alive grew in ten minutes, 87 KiB were pages that SQLite keeps of the file of the simulated
cloud (2 MiB at most), and 133 KiB two tables that doubled as pods came and went (removed objects, which are
forgotten after ten minutes, and pods that have started). A connection over TLS has 100 KiB until it is closed.

    .venv/bin/python -m tests.e2e.soak                 an hour
    .venv/bin/python -m tests.e2e.soak --minutes 10
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from karpenter_core.testing.cluster import ClusterError
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.support.image_runs import image_environment
from tests.support.local_clusters import RealLocalCluster
from tests.support.runner import ScenarioWorld
from tests.support.trends import Trend, trend_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.controller import ControllerProcess
    from tests.support.local_clusters import LocalCluster

CRDS: Final = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
ROUND_SECONDS: Final = 90.0
PAUSE_SECONDS: Final = 4.0
"""Time between two changes of the load."""
REST_SECONDS: Final = 600.0
STEADY_SECONDS: Final = 40.0
"""Time without a change of the nodes after which consolidation is done with them."""
STEADY_LIMIT_SECONDS: Final = 240.0
IDLE_SECONDS: Final = 20.0
"""Longer than connections are kept: each holds a quarter of a megabyte of buffers."""
ANSWER_SECONDS: Final = 30.0
KILLING_SHARE: Final = 0.35
API_RESTART_ROUNDS: Final = 3
"""The API server is restarted in every third round."""
WARM_UP_SHARE: Final = 0.25
APPS: Final = {"web": "200m", "api": "700m", "jobs": "1500m", "cache": "3"}
PODS: Final = (60, 300)
LEAST_RISE: Final = {
    "resident_mib": 6.0,
    "blocks": 20.0,
    "c_heap_mib": 3.0,
    "tasks": 5.0,
    "open_files": 5.0,
}
LEAST_SHARE: Final = 0.03
MOST_NAMED: Final = 40
TASKS: Final = "karpenter_core_asyncio_tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Needs of a process at rest."""

    pid: int
    minutes: float
    resident_mib: float
    tasks: float
    open_files: float
    blocks: float
    """Blocks that Python's allocator has handed out, in thousands."""
    c_heap_mib: float
    """Bytes in use that the C library has handed out."""
    held: Mapping[str, int]
    """Items of containers, by name."""
    pods: int
    nodes: int


@dataclass(slots=True)
class SoakRecord:
    """Measurements of the leader and of the standby, and what happened."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    launched: int = 0
    breaches: list[str] = field(default_factory=list)

    def last_life(self, name: str) -> list[Sample]:
        """Return the samples of the process that lives at the end, without its warm-up."""
        samples = self.samples.get(name, [])
        own = [each for each in samples if each.pid == samples[-1].pid]
        return own[round(WARM_UP_SHARE * len(own)) :]

    def trends(self) -> dict[tuple[str, str], Trend]:
        """Return the trend of each figure by controller; none without three samples."""
        lives = {name: self.last_life(name) for name in self.samples}
        return {
            (name, figure): trend_of([getattr(each, figure) for each in life])
            for name, life in lives.items()
            if len(life) > 2
            for figure in LEAST_RISE
        }

    def rising(self, name: str) -> list[tuple[str, Trend]]:
        """Return the containers that rise most steadily, the steepest first."""
        life = self.last_life(name)
        names = {held for each in life for held in each.held} if len(life) > 2 else ()
        trends = [(held, trend_of([each.held.get(held, 0) for each in life])) for held in names]
        found = [(held, trend) for held, trend in trends if trend.exceeds(rise=5.0, p_value=0.01)]
        return sorted(found, key=lambda each: -each[1].rise)

    def leaks(self) -> list[str]:
        """Describe each figure that rises steadily."""
        return [
            f"{figure} of {name} grows: {trend.first:.1f} -> {trend.last:.1f}, p = {trend.p_value:.1g}"
            for (name, figure), trend in self.trends().items()
            if trend.exceeds(rise=LEAST_RISE[figure], share=LEAST_SHARE, p_value=0.01)
        ]


class Soak:
    """One cluster under a load that changes all the time."""

    def __init__(
        self,
        world: ScenarioWorld,
        record: SoakRecord,
        *,
        folder: Path,
        seed: int,
        has_small_bounds: bool,
    ) -> None:
        self._world = world
        self._folder = folder
        self._record = record
        self._random = random.Random(seed)
        self._bounds = "small" if has_small_bounds else ""
        self._replicas = dict.fromkeys(APPS, PODS[0] // len(APPS))
        self._started = time.monotonic()

    async def begin(self) -> None:
        """Create everything and start both controllers."""
        disruption = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "15s",
            "budgets": [{"nodes": "100%"}],
        }
        given = InitialObjects(
            node_pools=[ScenarioNodePool(name="general", disruption=disruption)],
            deployments=[
                ScenarioDeployment(name=name, replicas=self._replicas[name], cpu=cpu)
                for name, cpu in APPS.items()
            ],
        )
        for manifest in given.objects():
            await self._world.create(manifest)
        for name in ("first", "second"):
            controller = self._world.add_controller(
                name,
                options={"providers": "kwok"},
                command=(sys.executable, "-m", "tests.e2e.soak_process", "run"),
                environment={
                    **os.environ,
                    **image_environment(),
                    "KARPENTER_SOAK_FILE": str(self._memory_file(name)),
                    "KARPENTER_SOAK_BOUNDS": self._bounds,
                },
            )
            self._world.expendable.add(name)  # it ends when it loses the lease, as in a pod
            await controller.start()

    async def live(self, minutes: float, *, least_rounds: int) -> None:
        """Live through rounds for a time, and through a number of them; end with an empty cluster."""
        until = self._started + 60 * minutes
        number = 0
        while (now := time.monotonic()) < until or number < least_rounds:
            number += 1
            is_killing = now < self._started + 60 * minutes * KILLING_SHARE
            await self._play_round(is_killing=is_killing, number=number)
            await self._rest(sum(self._replicas.values()))
            await self._measure()
        for name in APPS:
            await self._scale(name, 0)
        gone = Expectation(within=timedelta(seconds=REST_SECONDS), nothing_left=True)
        await self._await(gone, "the end")

    async def _play_round(self, *, is_killing: bool, number: int) -> None:
        until = time.monotonic() + ROUND_SECONDS
        disturb_at = time.monotonic() + self._random.uniform(0.2, 0.6) * ROUND_SECONDS
        is_disturbed = False
        await self._scale_all(PODS[1])
        while time.monotonic() < until:
            await self._change_load()
            await asyncio.sleep(PAUSE_SECONDS)
            await self._supervise()
            if not is_disturbed and time.monotonic() >= disturb_at:
                is_disturbed = True
                if is_killing:
                    await self._kill_leader()
                if number % API_RESTART_ROUNDS == 0:
                    self._note("API server killed")
                    await self._world.local_cluster.restart_api_server()
        await self._scale_all(PODS[0])

    async def _scale_all(self, pods: int) -> None:
        for name in APPS:
            await self._scale(name, pods // len(APPS))

    async def _change_load(self) -> None:
        name = self._random.choice(list(APPS))
        others = sum(self._replicas.values()) - self._replicas[name]
        least, most = PODS
        await self._scale(
            name, self._random.randint(max(0, least - others), min(most // 2, most - others))
        )

    async def _scale(self, name: str, replicas: int) -> None:
        self._note("load changed")
        self._replicas[name] = replicas
        while True:  # the API server may be on its way back
            with contextlib.suppress(aiohttp.ClientError, ClusterError, OSError):
                return await self._world.scale(name, replicas)
            await asyncio.sleep(1.0)

    async def _supervise(self) -> None:
        """Start what has ended again, as a kubelet does."""
        for name, controller in self._world.controllers.items():
            if not controller.process.is_running:
                self._note(f"{name} ended with {controller.process.exit_code}")
                await controller.start(wait=False)

    async def _kill_leader(self) -> None:
        async with asyncio.timeout(REST_SECONDS):
            while (leader := await self._leader()) is None:  # starting, or between two leaders
                await asyncio.sleep(1.0)
                await self._supervise()
        self._note("leader killed")
        await leader.process.kill()

    async def _leader(self) -> ControllerProcess | None:
        for controller in self._world.controllers.values():
            if await _series(controller, "leader_election_master_status") == 1:
                return controller
        return None

    async def _rest(self, pods: int) -> None:
        exactly = CountBounds(at_least=pods, at_most=pods)
        expected = Expectation(
            within=timedelta(seconds=REST_SECONDS),
            pods=ExpectedPods(running=exactly),
            consistent=True,
        )
        await self._await(expected, f"after {(time.monotonic() - self._started) / 60:.0f} min")
        await self._until_nodes_stay()

    async def _until_nodes_stay(self) -> None:
        """Wait until no node has come or gone for a while; not for ever, consolidation may go on."""
        began = changed = time.monotonic()
        nodes: set[str] = set()
        while time.monotonic() < min(changed + STEADY_SECONDS, began + STEADY_LIMIT_SECONDS):
            there = {each["metadata"]["name"] for each in self._world.observe().nodes}
            if there != nodes:
                nodes, changed = there, time.monotonic()
            await asyncio.sleep(1.0)
            await self._supervise()

    async def _await(self, expected: Expectation, where: str) -> None:
        """Wait for something; what ends meanwhile, as without its lease on a busy host, is started again."""

        async def supervise() -> None:
            while True:
                await self._supervise()
                await asyncio.sleep(PAUSE_SECONDS)

        supervisor = asyncio.create_task(supervise())
        try:
            await self._world.expect(expected, where=where)
        finally:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor

    def _memory_file(self, name: str) -> Path:
        return self._folder / f"{name}.memory"

    async def _ask(self, name: str) -> dict[str, Any]:
        """Return what a process holds; nothing if it ends or hangs meanwhile."""
        file = self._memory_file(name)
        file.unlink(missing_ok=True)
        process = self._world.controllers[name].process
        process.signal(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while process.is_running and not file.exists():  # noqa: ASYNC110 - a child writes it
                    await asyncio.sleep(0.2)
        return json.loads(file.read_text()) if file.exists() else {}

    async def _measure(self) -> None:
        await asyncio.sleep(IDLE_SECONDS)
        leader = await self._leader()
        seen = self._world.observe()
        for name, controller in self._world.controllers.items():
            if not controller.process.is_running or not await controller.is_ready():
                continue  # SIGUSR1 ends a process that starts
            if not (in_use := await self._ask(name)):
                continue
            sample = Sample(
                pid=controller.process.pid,
                minutes=(time.monotonic() - self._started) / 60,
                resident_mib=controller.process.memory_bytes() / 2**20,
                tasks=await _series(controller, TASKS) or 0.0,
                open_files=controller.process.open_files(),
                blocks=in_use["blocks"] / 1000,
                c_heap_mib=in_use["c_heap_mib"],
                held=in_use["held"],
                pods=len(seen.pods),
                nodes=len(seen.nodes),
            )
            self._record.samples.setdefault(name, []).append(sample)
            print(  # noqa: T201
                f"{sample.minutes:6.1f} min {name:7} {'leads' if controller is leader else '':6}"
                f"{sample.resident_mib:7.1f} MiB {sample.blocks:6.1f}k blocks {sample.c_heap_mib:5.1f} MiB "
                f"in C {sample.tasks:5.0f} tasks {sample.open_files:4.0f} "
                f"files {sample.pods:4} pods {sample.nodes:3} nodes",
                flush=True,
            )

    def _note(self, what: str) -> None:
        self._record.happened[what] += 1


async def _series(controller: ControllerProcess, name: str) -> float | None:
    """Return the value of a metric with one series; None if the process does not answer."""
    try:
        text = await controller.metrics()
    except (aiohttp.ClientError, OSError):
        return None
    found = re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


async def soak(
    cluster: LocalCluster,
    folder: Path,
    *,
    minutes: float,
    seed: int = 0,
    least_rounds: int = 1,
    has_small_bounds: bool = True,
) -> SoakRecord:
    """Live on a cluster that stands, and return what was measured.

    Raises:
        ScenarioFailedError: the cluster did not come to rest, or was not empty in the end.
    """
    record, cloud = SoakRecord(), KwokCloud()
    async with ScenarioWorld(cluster, cloud, folder, crds=CRDS) as world:
        living = Soak(world, record, folder=folder, seed=seed, has_small_bounds=has_small_bounds)
        await living.begin()
        await living.live(minutes, least_rounds=least_rounds)
        launches = (await cloud.account(folder)).launches
        record.launched = sum(launches.values())
        twins = [token for token, count in launches.items() if count != 1]
        record.breaches += [f"token {token} launched again" for token in twins]
        for name, controller in world.controllers.items():
            lost = re.findall(r".*never retrieved.*", controller.process.log_text())
            record.breaches += [f"{name}: {line[:300]}" for line in lost]
    return record


async def _run(options: argparse.Namespace) -> SoakRecord:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        async with RealLocalCluster(options.kubernetes) as cluster:
            return await soak(
                cluster,
                Path(folder),
                minutes=options.minutes,
                seed=options.seed,
                has_small_bounds=not options.production_bounds,
            )


def main() -> None:
    """Live for a while, print the trends; the exit code is 1 when anything leaks or broke."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kubernetes", default="1.36", help="minor version of the control plane")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--production-bounds", action="store_true", help="leave bounds that need hours to be full"
    )
    record = asyncio.run(_run(parser.parse_args()))
    for (name, figure), trend in record.trends().items():
        print(  # noqa: T201
            f"{name:7} {figure:13} {trend.first:8.1f} -> {trend.last:8.1f}   {trend.slope:+.3f} a "
            f"round (95 %: {trend.slope_bounds[0]:+.3f} to {trend.slope_bounds[1]:+.3f})   "
            f"p {trend.p_value:.3f}   ({len(record.last_life(name))} samples)"
        )
    for name in record.samples:
        for held, trend in record.rising(name)[:MOST_NAMED]:
            print(f"{name:7} {trend.first:8.0f} -> {trend.last:8.0f}   {held}")  # noqa: T201
    print(f"{record.launched} instances launched; {dict(record.happened)}")  # noqa: T201
    wrong = [*record.breaches, *record.leaks()]
    print(*(wrong or ["nothing leaks, nothing broke"]), sep="\n")  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
