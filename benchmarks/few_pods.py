"""Measures plans of few pods: CPU time of a pass over a catalogue that is compiled, and the cost.

    python -m benchmarks.few_pods                      plans of 8 to 64 pods
    python -m benchmarks.few_pods --against FOLDER     beside another checkout, in turn, with ratios

Problems are slices of a shuffled `diverse-5000` on the realistic catalogue, and `tangled` ones (pods
whose constraints overlap) of up to 64 pods. Each run is a process of its own that plans them all twice; the
second time counts. Printed are medians over the runs: of the CPU time of the median plan and of the
95th percentile, and the sum of what the plans cost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.inputs import load, read_pods
from benchmarks.measure import quantile, timed
from benchmarks.mixes import diverse, tangled
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache

__all__ = ["FewPodsRun", "main", "measure"]

SIZES: Final = (8, 16, 32, 64)
MOST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FewPodsRun:
    """CPU time and cost of the plans of one process."""

    plans: int
    cpu_p50_ms: float
    cpu_p95_ms: float
    cost: float
    pending: int


def measure(problems: int) -> FewPodsRun:
    """Plan so many problems of each kind and size."""
    asked, cache = load("diverse-8/real"), CatalogueCache()
    templates = diverse(5000)
    random.Random(1).shuffle(templates)
    groups = [
        templates[size * number : size * (number + 1)]
        for size in SIZES
        for number in range(problems)
    ]
    groups += [tangled(MOST, seed=seed)[:MOST] for seed in range(len(SIZES) * problems)]
    times: list[float] = []
    cost, pending = 0.0, 0
    for group in groups:
        problem = replace(asked.problem, pods=tuple(read_pods(group)))
        timed(problem, asked.options, cache=cache)
        plan, _, cpu_seconds, _ = timed(problem, asked.options, cache=cache)
        times.append(1000 * cpu_seconds)
        cost += plan.cost.hourly
        pending += len(plan.unschedulable)
    return FewPodsRun(
        plans=len(times),
        cpu_p50_ms=quantile(times, 0.5),
        cpu_p95_ms=quantile(times, 0.95),
        cost=round(cost, 4),
        pending=pending,
    )


def _run(folder: Path, problems: int) -> FewPodsRun:
    """Measure the product of a checkout by this program."""
    command = [sys.executable, __file__, "--problems", str(problems), "--one-run"]
    path = os.pathsep.join((str(folder), str(Path(__file__).resolve().parents[1])))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    return FewPodsRun(**json.loads(done.stdout))


def _median(runs: list[FewPodsRun]) -> FewPodsRun:
    return replace(
        runs[0],
        cpu_p50_ms=statistics.median(run.cpu_p50_ms for run in runs),
        cpu_p95_ms=statistics.median(run.cpu_p95_ms for run in runs),
    )


def _text(name: str, run: FewPodsRun) -> str:
    return (
        f"{name}: {run.plans} plans, median {run.cpu_p50_ms:.1f} ms CPU, p95 {run.cpu_p95_ms:.1f} ms, "
        f"cost {run.cost:.2f} an hour, {run.pending} pods left"
    )


def main() -> None:
    """Print medians, and ratios if there is another checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=10, help="of each kind and size")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    parser.add_argument("--one-run", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one_run:
        print(json.dumps(asdict(measure(given.problems))))
        return
    here = Path(__file__).resolve().parents[1]
    ours: list[FewPodsRun] = []
    others: list[FewPodsRun] = []
    for _ in range(given.runs):
        ours.append(_run(here, given.problems))
        if given.against is not None:
            others.append(_run(given.against.resolve(), given.problems))
    own = _median(ours)
    print(_text("this checkout", own))
    if others:
        other = _median(others)
        print(_text("the other one", other))
        print(
            f"ratios: median {own.cpu_p50_ms / other.cpu_p50_ms:.2f}, "
            f"p95 {own.cpu_p95_ms / other.cpu_p95_ms:.2f}, cost {own.cost / other.cost:.4f}"
        )


if __name__ == "__main__":
    main()
