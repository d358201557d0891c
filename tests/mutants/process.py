"""Runs tests on a mutant in a process of its own, in which the changed module is loaded from a copy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.areas import ROOT
from tests.mutants.draw import Mutant
from tests.mutants.lifetime import run_in_group

_SECONDS: Final = 900.0
_NOTHING_RAN: Final = 5
"""Pytest's code where it collected no test."""


def run_in_process(
    mutant: Mutant,
    source: str,
    tests: Sequence[str],
    *,
    seconds: float = _SECONDS,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = {},
) -> str:
    """Return the first test that fails; "time limit", or what pytest says where it names none."""
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "changed.py"
        changed.write_text(mutant.apply(source), "utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.replace", "-x", "-q"]
        command += ["--assert=plain", "-n", "0", "-p", "no:cacheprovider", "--tb=no"]
        # Folders of other processes are theirs: pytest clears the oldest of what it shares.
        command += ["--hypothesis-seed=0", f"--basetemp={folder}/base", *options, *tests]
        variables = {**os.environ, **environment, "KARPENTER_MUTANT": f"{mutant.path}={changed}"}
        try:
            code, output, errors = run_in_group(
                command, folder=str(ROOT), environment=variables, seconds=seconds
            )
        except subprocess.TimeoutExpired:
            return "time limit"
    if code in (0, _NOTHING_RAN):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
    if not failed:
        return f"::{output[-300:]} {errors[-300:]}"
    return failed[1]
