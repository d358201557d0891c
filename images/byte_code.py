"""Compiles the Python files of a layer, and writes the program's start script."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from images.layer import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "SCRIPT",
    "STANDARD_LIBRARY",
    "compile_packages",
    "compile_standard_library",
    "write_script",
]

STANDARD_LIBRARY: Final = Path("usr/lib/python3.13")
SCRIPT: Final = Path("usr/local/bin/karpenter")

_SCRIPT: Final = """\
#!/usr/bin/python3.13 -sPXno_debug_ranges
import sys

from karpenter_core.cli.entry import main

sys.exit(main())
"""
_SOURCE: Final = Path(__file__).resolve().parents[1]
_NEVER_USED: Final = (
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "tkinter",
    "turtledemo",
)
"""Parts of the standard library without use in a container that has no terminal and no pip."""


def compile_packages(output: Path, *, python: str, environment: Mapping[str, str]) -> None:
    """Compile the packages of a layer; the byte code names files as they are in the container."""
    _compile(output / PACKAGES, output, python=python, environment=environment)


def compile_standard_library(
    source: Path, output: Path, *, python: str, environment: Mapping[str, str]
) -> None:
    """Put the byte code of the base's standard library into the layer.

    The base comes without, and nothing can be written there later: each start would compile the
    modules of the standard library that it imports.
    """
    with tempfile.TemporaryDirectory(prefix="byte-code-") as name:
        root = Path(name)
        copied = root / STANDARD_LIBRARY
        shutil.copytree(source, copied, ignore=_ignored)
        _compile(copied, root, python=python, environment=environment)
        for folder in copied.rglob("__pycache__"):
            target = output / folder.relative_to(root)
            shutil.copytree(folder, target)


def write_script(output: Path) -> None:
    """Write the program that the container starts."""
    script = output / SCRIPT
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPT)


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return what of a folder is not compiled; links lead out of the standard library."""
    links = {name for name in names if (Path(folder) / name).is_symlink()}
    return links | ({*_NEVER_USED, "__pycache__", "lib-dynload"} & set(names))


def _compile(folder: Path, root: Path, *, python: str, environment: Mapping[str, str]) -> None:
    command = [
        python,
        "-X",
        "no_debug_ranges",
        "-m",
        "images.compile_files",
        str(folder),
        str(root),
    ]
    subprocess.run(command, check=True, env=dict(environment), cwd=_SOURCE)
