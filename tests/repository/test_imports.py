"""Importing the package is cheap, and layers import downwards only."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE_PACKAGES = ("api", "scheduling", "state", "lifecycle", "disruption")
HEAVY = ("pydantic", "numpy", "highspy", "kubernetes", "aiohttp", "msgspec", "cel", "structlog")


def modules_after(code: str) -> set[str]:
    """Return the top-level names of all modules that are loaded after running some code."""
    program = f"{code}\nimport json, sys\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr)}


def test_importing_the_package_loads_nothing_heavy():
    """`import karpenter_core` is for version checks and type hints: it must cost nothing."""
    assert modules_after("import karpenter_core") & set(HEAVY) == set()


def test_help_loads_no_solver_and_no_client():
    """Shell completion and `--help` answer at once."""
    code = (
        "from karpenter_core.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
    )

    assert modules_after(code) & {"numpy", "highspy", "kubernetes", "boto3"} == set()


def test_rules_load_no_command_line_of_their_library():
    """It brings a toolkit for terminals; who wants it can still load it."""
    code = "from karpenter_core.api.cel import compile_rule\nassert compile_rule('self > 1').evaluate(2)\n"
    toolkit = {"prompt_toolkit", "pygments"}

    assert modules_after(code) & toolkit == set()
    assert (
        modules_after(f"{code}import cel.cli\nassert callable(cel.cli.main)\n") & toolkit == toolkit
    )


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_decisions_read_no_clock_and_draw_no_lots(package: str):
    """The same snapshot gives the same plan, in any process: no now, no uuid4, no hash()."""
    folder = ROOT / "karpenter_core" / package
    results = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_impure(ast.unparse(node.func))
    ]

    assert results == []


def is_impure(call: str) -> bool:
    last = call.rpartition(".")[2]
    return (
        call == "hash"
        or last in {"utcnow", "today", "uuid1", "uuid4", "urandom", "getenv"}
        or call in {"datetime.now", "dt.datetime.now", "datetime.datetime.now"}
        or call.startswith(("time.", "random.", "secrets."))
    )


def test_layers_hold():
    """Imports point downwards only; the contracts stand in .importlinter."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
