"""Covering programs as a library of a command that writes documents to standard output."""

from __future__ import annotations

import subprocess
import sys

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
