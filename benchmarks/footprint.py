"""Weighs and times a whole controller beside a large cluster that stands already.

The cluster is listed and streamed by an API server of its own (benchmarks.standing), so that minutes
are enough for five thousand nodes. Measured are the start, one whole disruption pass (every method
looks at every node, and none finds anything), a scrape, the CPU time while nothing happens, and the
same figures while twenty pods a second are replaced. Figures that depend on the load of the machine
are CPU time where the goal is about work.

    python -m benchmarks.footprint                  1,000 nodes, 30,000 pods
    python -m benchmarks.footprint --size large     5,000 nodes, 100,000 pods
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final
from urllib.request import urlopen

from benchmarks.standing import ClusterSize, StandingServer
from tests.support.controller import ControllerProcess
from tests.support.image_runs import image_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GOALS", "SIZES", "Footprint", "Goal", "judge", "measure", "pass_figures"]

LIMIT_SECONDS: Final = 300.0
PODS_PER_SECOND: Final = 20.0
SCRAPES: Final = 5
PIECE_BYTES: Final = 2**20
_PASS: Final = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"
_LAST_METHOD: Final = 'consolidation_type="single"'

SIZES: Final = {
    "tiny": ClusterSize(20, 400),
    "small": ClusterSize(1_000, 30_000),
    "large": ClusterSize(5_000, 100_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Needs of one controller; seconds are wall time unless the name says otherwise."""

    nodes: int
    pods: int
    ready_seconds: float
    """From the start of the process until it says that it is ready."""
    ready_cpu_seconds: float
    resident_mib: float
    """After the first pass, while nothing happens."""
    peak_mib: float
    """The most that it ever held, VmHWM of Linux, churn included."""
    idle_cores: float
    """CPU time for each second in which nothing happens in the cluster."""
    first_pass_seconds: float
    """The first disruption pass: nothing of the cluster is known yet."""
    scrape_seconds: float
    """Wall time of a scrape, read by a client that throws it away."""
    scrape_cpu_seconds: float
    """CPU time of the controller for a scrape, what it does meanwhile included."""
    churn_cores: float
    """CPU time for each second while pods are replaced."""
    churn_pass_seconds: float
    """Mean of the disruption passes while pods are replaced."""
    churn_passes: int


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of a figure at five thousand nodes and a hundred thousand pods."""

    figure: str
    below: float


GOALS: Final = (
    Goal("ready_seconds", 60.0),
    Goal("peak_mib", 1024.0),
    Goal("idle_cores", 0.5),
    Goal("first_pass_seconds", 10.0),
    Goal("churn_pass_seconds", 10.0),
    Goal("scrape_seconds", 0.5),
)


def judge(found: Footprint) -> list[tuple[Goal, float, bool]]:
    """Return each goal with the figure and whether it is met."""
    values = asdict(found)
    return [(goal, values[goal.figure], values[goal.figure] < goal.below) for goal in GOALS]


def pass_figures(metrics: str) -> tuple[float, int]:
    """Return the seconds of all disruption passes so far and their number, from a scrape."""
    seconds, passes = 0.0, 0
    for labels, value in re.findall(rf"^{_PASS}_sum\{{(.*)\}} (\S+)$", metrics, re.MULTILINE):
        del labels
        seconds += float(value)
    for labels, value in re.findall(rf"^{_PASS}_count\{{(.*)\}} (\S+)$", metrics, re.MULTILINE):
        if _LAST_METHOD in labels:
            passes += int(float(value))
    return seconds, passes


async def measure(size: ClusterSize, idle_seconds: float) -> Footprint:
    """Start a controller beside a standing cluster and look at it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        cluster = await stack.enter_async_context(
            StandingServer(size, pods_per_second=PODS_PER_SECOND)
        )
        controller = ControllerProcess(
            "karpenter",
            kubeconfig=cluster.kubeconfig,
            folder=folder,
            options={
                "providers": "kwok",
                "disable-leader-election": "true",
                "kwok-state-file": str(folder / "cloud.sqlite3"),
            },
            environment={**os.environ, **image_environment()},
        )
        started = time.monotonic()
        await controller.start(wait=False)
        stack.push_async_callback(controller.process.stop)
        process = controller.process
        await process.ready(controller.is_ready, seconds=LIMIT_SECONDS)
        ready, ready_cpu = time.monotonic() - started, process.cpu_seconds()
        first, _ = await _passes(controller, at_least=1)
        await asyncio.sleep(idle_seconds)
        cpu_before, before = process.cpu_seconds(), time.monotonic()
        await asyncio.sleep(idle_seconds)
        idle = (process.cpu_seconds() - cpu_before) / (time.monotonic() - before)
        resident = process.memory_bytes()
        cpu_before = process.cpu_seconds()
        scrapes = [
            await asyncio.to_thread(_scrape_seconds, controller.metrics_url) for _ in range(SCRAPES)
        ]
        scrape_cpu = (process.cpu_seconds() - cpu_before) / SCRAPES
        seconds_before, passes_before = await _passes(controller, at_least=1)
        cluster.start_churn()
        cpu_before, before = process.cpu_seconds(), time.monotonic()
        await asyncio.sleep(idle_seconds)
        churn = (process.cpu_seconds() - cpu_before) / (time.monotonic() - before)
        seconds, passes = await _passes(controller, at_least=passes_before + 2)
        return Footprint(
            nodes=cluster.nodes,
            pods=cluster.pods,
            ready_seconds=ready,
            ready_cpu_seconds=ready_cpu,
            resident_mib=resident / 2**20,
            peak_mib=process.peak_memory_bytes() / 2**20,
            idle_cores=idle,
            first_pass_seconds=first,
            scrape_seconds=median(scrapes),
            scrape_cpu_seconds=scrape_cpu,
            churn_cores=churn,
            churn_pass_seconds=(seconds - seconds_before) / (passes - passes_before),
            churn_passes=passes - passes_before,
        )


async def _passes(controller: ControllerProcess, *, at_least: int) -> tuple[float, int]:
    """Wait until so many passes have ended; return their seconds and number."""
    found = (0.0, 0)

    async def ended() -> bool:
        nonlocal found
        found = pass_figures(await controller.metrics())
        await asyncio.sleep(1.0)  # a scrape of a large cluster is not for nothing
        return found[1] >= at_least

    await controller.process.ready(ended, seconds=LIMIT_SECONDS)
    return found


def _scrape_seconds(url: str) -> float:
    """Read all metrics and keep none: to decode and join 80 MiB takes longer than to write them."""
    started = time.monotonic()
    with urlopen(url, timeout=LIMIT_SECONDS) as answer:
        while answer.read(PIECE_BYTES):
            pass
    return time.monotonic() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print every figure with its goal; return 1 when one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to look at it, each time")
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(SIZES[options.size], options.idle))
    print(json.dumps(asdict(found), indent=2))
    verdicts = judge(found)
    for goal, value, is_met in verdicts:
        verdict = "met" if is_met else "MISSED"
        print(f"{goal.figure:20} {value:10.2f}  goal < {goal.below:8.2f}  {verdict}")
    return 0 if all(is_met for _, _, is_met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
