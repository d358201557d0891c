"""Judges mutants of a module's body in a process each, as it runs at import."""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.mutants.areas import AREAS, ROOT, sources
from tests.mutants.draw import Mutant
from tests.mutants.judge import Verdict
from tests.mutants.order import Record, file_of, most_telling_first
from tests.mutants.probes import blocks_of
from tests.mutants.process import run_in_process

_MOST_FILES: Final = 12
_PAGE: Final = "tests/docs/test_timings.py::"
"""Tests of the page that states constants; they read modules, and so reach no function."""


def judge_module(mutant: Mutant, source: str, record: Record, *, budget_seconds: float) -> Verdict:
    """Run the tests that state the changed name or reach functions which mention it, in another process."""
    name = name_at(source, mutant.line)
    tests = [*tests_stating(name, mutant, record), *tests_mentioning(name, mutant, record)]
    chosen: list[str] = []
    spent = 0.0
    files: list[str] = []
    for test in tests:
        known = file_of(test) in files or len(files) < _MOST_FILES
        if known and spent + record[test][0] <= budget_seconds:
            chosen.append(test)
            spent += record[test][0]
            files += [file_of(test)] * (file_of(test) not in files)
    killed_by = run_in_process(mutant, source, chosen) if chosen else ""
    return Verdict(mutant=mutant, killed_by=killed_by, tried=len(chosen), reaching=len(tests))


def tests_stating(name: str, mutant: Mutant, record: Record) -> list[str]:
    """Return the test of the row in docs/reference/timings.md that states a constant, if there is one."""
    rows = (test for test in record if test.startswith(_PAGE) and test.endswith(f":{name}]"))
    return [row for row in rows if mutant.path.endswith(_path_of(row))]


def _path_of(row: str) -> str:
    """Return the end of the path of the module that the name of a row's test has."""
    package, _, path = row.partition("[")[2].rpartition(":")[0].partition("/")
    is_provider = any(area.endswith(f"karpenter_provider_{package}") for area in AREAS)
    return f"karpenter_provider_{package}/{path}" if is_provider else f"/{package}/{path}"


def name_at(source: str, line: int) -> str:
    """Return what the statement of a module's or a class's body at a line defines."""
    result = ""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            match node:
                case ast.Assign(targets=[ast.Name(id=name), *_]):
                    result = name
                case ast.AnnAssign(target=ast.Name(id=name)):
                    result = name
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    result = name
                case ast.ClassDef(name=name) if not result:
                    result = name
                case _:
                    pass
    return result


def tests_mentioning(name: str, mutant: Mutant, record: Record) -> list[str]:
    """Return the tests that reach a block which mentions a name, the likely ones first."""
    word = re.compile(rf"\b{re.escape(name)}\b") if name else None
    texts = {
        path: (ROOT / path).read_text("utf-8")
        for paths in sources(ROOT, tuple(AREAS)).values()
        for path in paths
    }
    tree = ast.parse(texts[mutant.path])
    own = {f"{mutant.path}::{block}" for block, _, _ in blocks_of(tree)}
    # Of a function whose defaults change, also those that call it directly.
    blocks: set[str] = {block for block in own if name and f".{name}#" in block.replace("::", ".")}
    for path, text in texts.items():
        if word is not None and word.search(text):
            lines = text.splitlines()
            for block, numbers, _ in blocks_of(ast.parse(text)):
                if any(word.search(lines[number - 1]) for number in numbers):
                    blocks.add(f"{path}::{block}")
    if not blocks:  # another constant may be made of it
        blocks = own
    reaching = (test for test, (_, ran) in record.items() if not blocks.isdisjoint(ran))
    return most_telling_first(reaching, mutant, record)
