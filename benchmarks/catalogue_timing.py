"""Times the steps of a provider's catalogue, and prints their figures; for the catalogue benchmarks."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["medians_ms", "run_benchmark"]


def medians_ms(run: Callable[[], object], *, runs: int) -> tuple[float, float]:
    """Return the medians of some runs by the clock on the wall and by CPU time."""
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(runs):
        gc.collect()
        gc.disable()
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        run()
        wall.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.thread_time() - cpu_begun) * 1000)
        gc.enable()
    return statistics.median(wall), statistics.median(cpu)


def run_benchmark(
    description: str,
    measure: Callable[[Path], dict[str, Any]],
    gate: Callable[[dict[str, Any]], tuple[bool, str]],
) -> int:
    """Print the figures of `measure`; return 1 if a gate fails.

    `gate` returns whether the gates hold, and the line that tells it.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    holds, verdict = gate(found)
    if arguments.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key:18} {value if isinstance(value, int) else format(value, '.2f')}")
        print(verdict)
    return int(not holds)
