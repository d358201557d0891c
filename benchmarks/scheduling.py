"""How fast and how cheap the solver plans: `python benchmarks/scheduling.py [case …] [--json]`.

Cases are solved cold (nothing compiled, nothing cached), each in a process of its own so that
memory is that case's. Times are CPU seconds of the whole solve; the longest step is how long the
planner keeps its thread before it yields. `mixed-N` are N pods of 50 shapes, `daemons` adds four
DaemonSets, `nodes` solves against 1,000 existing nodes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, ZONE
from karpenter_core.scheduling.problem import Packing, SolveOptions
from karpenter_core.scheduling.solve import solve_steps
from karpenter_core.testing.builders import (
    catalogue,
    daemon,
    existing_node,
    node_pool,
    pods,
    problem,
)
from karpenter_provider_kwok.catalogue import load_catalogue
from karpenter_provider_kwok.catalogue_default import ZONES, default_catalogue_text

if TYPE_CHECKING:
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import Problem

CASES = (
    "plain-50", "plain-500", "plain-3000", "plain-10000",
    "mixed-500", "mixed-5000", "mixed-20000", "daemons-5000", "nodes-5000",
)  # fmt: skip
SHAPES = 50
CPUS = ("100m", "250m", "500m", "1", "1500m", "3")
MEMORIES = ("128Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "12Gi")


def mixed_pods(count: int, seed: int = 42) -> list[PodView]:
    """Make pods of 50 shapes, a third of which choose zone, architecture or capacity type."""
    draw = random.Random(seed)
    selectors: list[dict[str, str]] = [
        {}, {}, {}, {}, {ZONE: ZONES[0]}, {ARCH: "amd64"}, {CAPACITY_TYPE: "on-demand"},
    ]  # fmt: skip
    made: list[PodView] = []
    for number in range(SHAPES):
        made += pods(
            count // SHAPES,
            f"app-{number}",
            cpu=draw.choice(CPUS),
            memory=draw.choice(MEMORIES),
            node_selector=draw.choice(selectors),
        )
    return made


def build(case: str) -> Problem:
    """Build one case over the shipped catalogue."""
    kind, _, count = case.partition("-")
    asked = (
        pods(int(count), cpu="500m", memory="1Gi") if kind == "plain" else mixed_pods(int(count))
    )
    types = load_catalogue(default_catalogue_text(), file="(shipped)")
    made = problem(asked, pools=[node_pool()], catalogue=catalogue(*types))
    if kind == "daemons":
        made = replace(
            made,
            daemons=tuple(daemon(f"agent-{n}", cpu="125m", memory="192Mi") for n in range(4)),
        )
    if kind == "nodes":
        nodes = [
            existing_node(f"node-{n:04d}", available={"cpu": f"{n % 40 * 100}m"})
            for n in range(1000)
        ]
        made = replace(made, nodes=tuple(nodes))
    return made


def measure(case: str) -> dict[str, float | int | str]:
    """Solve one case, cold, and say what came of it."""
    asked = build(case)
    row: dict[str, float | int | str] = {"case": case, "pods": len(asked.pods)}
    for packing in (Packing.FIRST_FIT, Packing.VALUE):
        longest, started = 0.0, time.process_time()
        steps = solve_steps(asked, SolveOptions(packing=packing))
        while True:
            before = time.process_time()
            try:
                next(steps)
            except StopIteration as end:
                plan = end.value
                break
            finally:
                longest = max(longest, time.process_time() - before)
        seconds = time.process_time() - started
    row |= {
        "seconds": round(seconds, 4),
        "pods_per_second": round(len(asked.pods) / seconds),
        "longest_step_ms": round(longest * 1000, 2),
        "nodes": len(plan.claims),
        "pending": len(plan.unschedulable),
        "cost": round(plan.cost.hourly, 4),
        "first_fit_cost": round(plan.cost.first_fit or 0.0, 4),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    return row


def main() -> None:
    """Measure each case in a process of its own and print a table, or JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="case", help=", ".join(CASES))
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measure(arguments.cases[0])))
        return
    header = ""
    for case in arguments.cases:
        ended = subprocess.run(
            [sys.executable, __file__, case, "--inside"], capture_output=True, text=True, check=True
        )
        row = json.loads(ended.stdout)
        if arguments.json:
            print(json.dumps(row), flush=True)
            continue
        if not header:
            header = "  ".join(f"{name:>15}" for name in row)
            print(header)
        print("  ".join(f"{value!s:>15}" for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
