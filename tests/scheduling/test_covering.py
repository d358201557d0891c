"""Covering programs as a library of a command that writes documents to standard output."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from karpenter_core.scheduling.packing.covering import CoveringProgram

_PROGRAM = """
import numpy as np
from karpenter_core.scheduling.packing.covering import CoveringProgram

one = np.ones(1)
assert CoveringProgram(np.ones((1, 1)), one, one, one).solve() is not None
"""


def test_the_lp_library_writes_nothing_to_standard_output() -> None:
    """HiGHS prints its version once per process, so only a new process can show that it does not."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )

    assert run.stdout == ""
    assert run.stderr == ""


def test_a_program_is_solved_again_with_other_costs() -> None:
    """The cheaper of two columns covers the demand, whatever it cost when the program was made."""
    program = CoveringProgram(
        np.ones((1, 2)), np.array([3.0]), np.array([1.0, 2.0]), np.array([np.inf, np.inf])
    )
    program.reprice(np.array([4.0, 2.0]))
    solution = program.solve()
    assert solution is not None
    assert solution.amounts == pytest.approx([0.0, 3.0])
    assert (solution.cost, solution.duals) == (pytest.approx(6.0), pytest.approx([2.0]))
