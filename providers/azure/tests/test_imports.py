"""Tests what the packages of the provider import, and when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
loaded = {name.partition(".")[0] for name in sys.modules} & {"azure", "msal", "requests"}
assert not loaded, loaded
"""


@pytest.mark.parametrize(
    "code",
    [
        "import karpenter_core.cli.main, karpenter_core.operator.wiring",  # case 132
        COMMAND.format(arguments=["--help"]),
        COMMAND.format(arguments=["run", "--help"]),
        COMMAND.format(arguments=["crds", "--provider", "azure"]),
        COMMAND.format(arguments=["rbac", "--provider", "azure"]),
        RUNNING,
    ],
    ids=["core", "help", "help of run", "crds", "rbac", "provider"],
)
def test_no_sdk_is_loaded_before_a_call(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"{code}\n{CHECK}"], check=True, capture_output=True)
