"""Measures the p95 of a small pass in a controller that has been running.

A hundred mixed pods, the catalogue compiled by an earlier pass, nothing known of the pods. Fifty
problems in one process, each of other pods (slices of one shuffled `diverse-5000`); the first
solve, which compiles, does not count.

    python benchmarks/latency.py diverse-100/real [diverse-100/real/nodes ...]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from dataclasses import asdict, dataclass, replace

from benchmarks.inputs import load, read_pods
from benchmarks.measure import quantile, timed
from benchmarks.mixes import diverse
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache

__all__ = ["PassLatency", "measure"]

PROBLEMS = 50
PODS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLatency:
    """Times of many small passes; `pending` counts pods left in any of them."""

    case: str
    p50_ms: float
    p95_ms: float
    cpu_p95_ms: float
    pending: int


def measure(case: str) -> PassLatency:
    """Solve small problems over the catalogue and nodes of a case, warm."""
    asked = load(case)
    base, cache = asked.problem, CatalogueCache()
    timed(base, asked.options, cache=cache)
    templates = diverse(PROBLEMS * PODS)
    random.Random(1).shuffle(templates)
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    pending = 0
    gc.collect()
    for start in range(0, len(templates), PODS):
        pods = tuple(read_pods(templates[start : start + PODS]))
        plan, took, used, _ = timed(replace(base, pods=pods), asked.options, cache=cache)
        seconds.append(took)
        cpu_seconds.append(used)
        pending += len(plan.unschedulable)
    return PassLatency(
        case=case,
        p50_ms=1000 * quantile(seconds, 0.5),
        p95_ms=1000 * quantile(seconds, 0.95),
        cpu_p95_ms=1000 * quantile(cpu_seconds, 0.95),
        pending=pending,
    )


def main() -> None:
    """Print one JSON object for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", metavar="case")
    for case in parser.parse_args().cases:
        print(json.dumps(asdict(measure(case))))


if __name__ == "__main__":
    main()
