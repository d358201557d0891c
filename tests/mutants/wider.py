"""Judges survivors again in processes of their own, with the tests that only CI runs besides.

Such a process loads the changed module as an edited one: tests that call the product while they are
collected, as for their parameters, see the change there only.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.mutants.areas import ROOT
from tests.mutants.draw import Mutant
from tests.mutants.order import Record, file_of, nearness
from tests.mutants.process import run_in_process

CLUSTER_RUN: Final = "cluster_runs"
PROPERTY: Final = "properties"
_MOST_RUNS: Final = 12
"""Files of cluster runs for a mutant, the nearest ones."""
_MOST_FILES: Final = 6
"""Test files that judge a mutant in a process of its own."""
_IN_CLUSTERS: Final = ("karpenter_core/", "providers/kwok/")
"""Packages that a cluster run goes through: it is played with the simulated provider."""


def wider_tests(
    mutant: Mutant, reaching: Sequence[str], marks: dict[str, frozenset[str]], record: Record
) -> list[str]:
    """Return the properties that reach a change, then cluster runs: those with a record by it.

    Cluster runs without a record are taken by what their file is about.
    """
    properties = [test for test in reaching if PROPERTY in marks.get(test, ())]
    runs = {test for test, known in marks.items() if CLUSTER_RUN in known}
    recorded = [test for test in reaching if test in runs]
    files = {file_of(test) for test in runs if test not in record}
    own = "/".join(Path(mutant.path).parts[:2])
    near = sorted(
        (-nearness(file, (ROOT / file).read_text("utf-8"), mutant), file)
        for file in files
        if mutant.path.startswith(_IN_CLUSTERS) or file.startswith(own)
    )
    chosen = [file for _, file in near[:_MOST_RUNS]]
    return [*properties, *recorded, *chosen]


def nearest_files(mutant: Mutant, tests: Iterable[str]) -> list[str]:
    """Return the test files that are most about a change, those with few tests first among equals."""
    counts = Counter(map(file_of, tests))
    near = {file: nearness(file, (ROOT / file).read_text("utf-8"), mutant) for file in counts}
    ranked = sorted(counts, key=lambda file: (-near[file], counts[file], file))
    return [file for file in ranked if near[file] > 1][:_MOST_FILES]


def judge_wider(
    mutant: Mutant, source: str, tests: Sequence[str], *, seconds: float, of_ci: bool
) -> str:
    """Return the test that fails on a mutant in a process of its own, and passes without it.

    `of_ci` runs properties and cluster runs, with as many examples as in CI; otherwise the other tests run.
    A run that takes too long has not judged: only a test that fails kills.
    """
    marks = f"{PROPERTY} or {CLUSTER_RUN}"
    only = ["-m", marks if of_ci else f"not ({marks})"]
    examples = {"KARPENTER_PROPERTY_EXAMPLES": ""} if of_ci else {}

    def run(tried: Mutant, chosen: Sequence[str]) -> str:
        return run_in_process(
            tried, source, chosen, seconds=seconds, options=only, environment=examples
        )

    killed_by = run(mutant, tests) if tests else ""
    if not killed_by or killed_by == "time limit":
        return ""
    unchanged = replace(mutant, new=source.encode()[mutant.start : mutant.end].decode())
    if run(unchanged, [killed_by]):
        print(f"fails without a mutant: {killed_by}", flush=True)
        return ""
    return killed_by
