"""Judges survivors again with the tests that only CI runs: properties and runs of whole clusters."""

from __future__ import annotations

from collections.abc import Sequence
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


def judge_wider(
    mutant: Mutant, source: str, tests: Sequence[str], *, seconds: float, as_is: bool = False
) -> str:
    """Return the property or cluster run that fails on a mutant, with as many examples as in CI.

    A run that takes too long has not judged: only a test that fails kills. `as_is` runs the same tests on
    the module without the change.
    """
    if as_is:
        mutant = replace(mutant, new=source.encode()[mutant.start : mutant.end].decode())
    only = ["-m", f"{PROPERTY} or {CLUSTER_RUN}"]
    examples = {"KARPENTER_PROPERTY_EXAMPLES": ""}
    killed_by = run_in_process(
        mutant, source, tests, seconds=seconds, options=only, environment=examples
    )
    return "" if killed_by == "time limit" else killed_by
