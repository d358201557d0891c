"""Runs cases of the scheduling benchmark, each in a process of its own, and the peer's."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from benchmarks import peer
from benchmarks.inputs import load
from benchmarks.measure import DEFAULT_WORK_UNITS, CaseResult
from karpenter_core.scheduling.problem import PackingPolicy

__all__ = ["SolverBench", "median", "read_peer"]

PROGRAM: Final = Path(__file__).with_name("scheduling.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverBench:
    """Folders of inputs, and commands of solvers."""

    trace: Path | None = None
    prices: Path | None = None
    daemons: bool = False
    packing: PackingPolicy = PackingPolicy.VALUE
    verify: bool = False

    def named(self, case: str) -> str:
        """Return the case with the options that all cases have."""
        return f"{case}/daemons" if self.daemons and "daemons" not in case.split("/") else case

    def ours(self, case: str, *, runs: int = 1, work_units: int = DEFAULT_WORK_UNITS) -> CaseResult:
        """Run our solver and return the run of median time.

        Raises:
            RuntimeError: a run failed, or two runs made different plans.
        """
        return _one_plan([self._one(case, work_units) for _ in range(runs)])

    def pairs(
        self, case: str, *, runs: int = 1, work_units: int = DEFAULT_WORK_UNITS
    ) -> tuple[CaseResult, list[CaseResult]]:
        """Run ours and the peer in turn; return our run of median time and all of theirs.

        Raises:
            RuntimeError: a run failed, or two of ours made different plans.
        """
        ours: list[CaseResult] = []
        theirs: list[CaseResult] = []
        for _ in range(runs):
            ours.append(self.ours(case, work_units=work_units))
            theirs += self.peers(case)
        return _one_plan(ours), theirs

    def peers(self, case: str, *, runs: int = 1) -> list[CaseResult]:
        """Run the peer, a process each, and return all rows: its plans differ from run to run."""
        asked = load(case, trace=self.trace, prices=self.prices)
        return [read_peer(answer) for _ in range(runs) for answer in peer.run([asked])]

    def _one(self, case: str, work_units: int) -> CaseResult:
        command = [sys.executable, str(PROGRAM), "--inside", case, "--packing", self.packing]
        command += ["--work-units", str(work_units), *(["--verify"] if self.verify else [])]
        command += ["--trace", str(self.trace)] if self.trace else []
        command += ["--prices", str(self.prices)] if self.prices else []
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"{case}: {ended.stderr.strip()}")
        return CaseResult(**json.loads(ended.stdout))


def _one_plan(rows: list[CaseResult]) -> CaseResult:
    if len({row.digest for row in rows}) > 1:
        raise RuntimeError(f"{rows[0].case}: runs of one problem made different plans")
    return median(rows)


def median(rows: list[CaseResult]) -> CaseResult:
    """Return the row of median time (of two, the faster)."""
    return sorted(rows, key=lambda row: row.seconds)[(len(rows) - 1) // 2]


def read_peer(answer: dict[str, Any]) -> CaseResult:
    """Read a row of the peer, which knows more and less than ours."""
    known = {field.name for field in fields(CaseResult)}
    return CaseResult(**{key: value for key, value in answer.items() if key in known})
