"""The tests that docs/design/tests-that-fail.md names for each rule exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/tests-that-fail.md"
TEST = re.compile(r"`([\w/.-]+\.py)::([\w:]+)`")


def rows() -> dict[str, list[tuple[str, str]]]:
    """Return the tests of each rule, by file and by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        rule, _, tests = line.strip("| ").partition(" | ")
        if line.startswith("| ") and rule != "rule":
            found[rule] = TEST.findall(tests)
    return found


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file, those of a class after its name."""
    names: set[str] = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(names)


@pytest.mark.parametrize("rule", rows())
def test_every_rule_names_tests_that_exist(rule):
    tests = rows()[rule]
    assert tests
    for file, name in tests:
        assert name in names_in(file), f"{file} has no {name}"


def test_the_page_has_rules():
    assert len(rows()) >= 21
