"""Tests what the packages of the provider import, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "karpenter_provider_azure"
RUNNING = "; ".join(
    "import " + ".".join(("karpenter_provider_azure", *path.with_suffix("").parts))
    for path in sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
)
"""Imports every module of the provider."""
COMMAND = """
from karpenter_core.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code
"""
CHECK = """
import sys
loaded = {{name.partition(".")[0] for name in sys.modules}} & {{"azure", "msal", "requests"}}
assert not loaded, ({step!r}, loaded)
"""
STEPS = {
    "core": "import karpenter_core.cli.main, karpenter_core.operator.wiring",  # case 132
    "help": COMMAND.format(arguments=["--help"]),
    "help of run": COMMAND.format(arguments=["run", "--help"]),
    "crds": COMMAND.format(arguments=["crds", "--provider", "azure"]),
    "rbac": COMMAND.format(arguments=["rbac", "--provider", "azure"]),
    "provider": RUNNING,
}


def test_no_sdk_is_loaded_before_a_call() -> None:
    """One process takes all steps, each followed by the check: a module that is loaded stays loaded."""
    code = "\n".join(f"{code}\n{CHECK.format(step=step)}" for step, code in STEPS.items())
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )

    assert ended.returncode == 0, ended.stderr
