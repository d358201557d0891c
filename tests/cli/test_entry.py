"""The program starts the controller without the libraries of the other commands."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

PROGRAM = """
import json, sys
from karpenter_core.cli.entry import main
try:
    main()
except SystemExit as end:
    code = end.code
{then}
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
UNUSED = {"typer", "click", "rich", "pygments", "highspy", "kubernetes", "textual", "opentelemetry"}


def start(*arguments: str, then: str = "") -> tuple[int, set[str], str]:
    """Return the exit code of a run, the packages that it has loaded, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(then=then), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    *printed, last = done.stderr.splitlines()
    code, modules = json.loads(last)
    return (
        code,
        {name.partition(".")[0] for name in modules},
        "\n".join([done.stdout, *printed]),
    )


def test_a_controller_loads_no_library_of_the_command_line():
    """Neither those of tables and options, nor the solver's until there is something to solve."""
    wiring = "import karpenter_core.operator.process, karpenter_core.operator.wiring, structlog.dev"
    code, packages, printed = start("run", "--providers=kwok", "--log-level=loud", then=wiring)
    assert code == 2
    assert "log-level" in printed
    assert {"structlog", "numpy", "karpenter_provider_kwok"} <= packages
    assert packages & (UNUSED - {"kubernetes"}) == set()


def test_other_commands_and_help_are_those_of_the_whole_program():
    code, packages, printed = start("run", "--help")
    assert code == 0
    assert "--log-level" in printed
    assert "typer" in packages
    assert "karpenter-core" in start("--version")[2]
    assert "Usage" in start()[2]


def test_a_table_can_be_drawn_after_logs_were_imported_without_rich():
    _, packages, printed = start(
        "run",
        "--log-level=loud",
        then="from rich.console import Console\nConsole().print('a table')",
    )
    assert "rich" in packages
    assert "a table" in printed


@pytest.mark.parametrize("name", ["karpenter"])
def test_the_program_starts_here(name):
    (script,) = entry_points(group="console_scripts", name=name)
    assert script.value == "karpenter_core.cli.entry:main"
