"""The types of product code say what values are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "karpenter_core",
    "providers/*/karpenter_*",
    "providers/*/simulated/karpenter_*",
    "providers/*/tools",
    "examples/*/karpenter_*",
    "images",
    "typings",
)
MAY_HAVE_ANY = {
    "karpenter_core/api/json_objects.py": "schemas describe JSON objects, and no type of Python does",
    "karpenter_core/kube/wire/": "a codec is chosen by the kind that it decodes, when the program runs",
}


def product_files():
    return sorted(
        path
        for pattern in PRODUCT
        for folder in ROOT.glob(pattern)
        for path in folder.rglob("*.py*")
        if path.suffix in {".py", ".pyi"} and "tests" not in path.relative_to(folder).parts
    )


def lines_with_any(source):
    """Return the lines that import `Any`, or name it in `typing`."""
    if not re.search(r"\bAny\b", source):
        return
    for node in ast.walk(ast.parse(source)):
        imported = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
        if "Any" in imported or (isinstance(node, ast.Attribute) and node.attr == "Any"):
            yield node.lineno


def test_any_is_only_where_a_reason_says_why():
    """Elsewhere a value of unknown type is an `object`, or a library has types in typings/."""
    found = [
        f"{name}:{line}"
        for path in product_files()
        if not (name := str(path.relative_to(ROOT))).startswith(tuple(MAY_HAVE_ANY))
        for line in lines_with_any(path.read_text())
    ]

    assert found == []


@pytest.mark.parametrize("place", MAY_HAVE_ANY)
def test_every_exception_is_needed(place):
    """One that is not would hide the next `Any`."""
    files = [path for path in product_files() if str(path.relative_to(ROOT)).startswith(place)]

    assert any(True for path in files for _ in lines_with_any(path.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "from typing import Any",
        "import typing\nx: typing.Any",
        "import typing as t\nx: 't' = t.Any",
    ],
)
def test_every_way_to_name_it_is_seen(source):
    """Of this test itself."""
    assert list(lines_with_any(source))
