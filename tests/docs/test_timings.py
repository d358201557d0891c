"""docs/reference/timings.md has the fixed periods, limits and waits of the code, with their values."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/timings.md").read_text("utf-8")
ROW = re.compile(
    r"^\| (?P<value>[^|]+) \| .* \| (?P<source>[^|]+) \| `(?P<path>\S+) (?P<name>\w+)` \|$"
)
NUMBER = re.compile(r"(?P<number>[\d,.]+)(?: (?P<unit>ms|s|min|h|d)\b)?")
SECONDS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}
CLOUDS = ("aws", "azure", "alibabacloud", "kwok")
ROWS = [found for line in PAGE.splitlines() if (found := ROW.match(line))]

PARTS = ("controllers", "disruption", "kube", "lifecycle", "state")
"""Packages of the core with timings that an operator meets."""
KINDS = re.compile(r"SECONDS|CONCURRENCY|ATTEMPTS|BATCH|BURST|QPS|AT_ONCE")
TIME = re.compile(r"timedelta\(|Backoff\(")
UNMET = [
    line
    for line in (ROOT / "tests/docs/unmet_timings.txt").read_text("utf-8").splitlines()
    if not line.startswith("# ")
]
"""Constants of these kinds that no operator meets, by the reason."""


def module_name(path: str) -> str:
    """Return the module of a path as the page has it."""
    first, _, rest = path.removesuffix(".py").partition("/")
    if first in CLOUDS:
        return f"karpenter_provider_{first}.{rest.replace('/', '.')}"
    return f"karpenter_core.{first}.{rest}".replace("/", ".")


def amounts(value: object) -> list[float]:
    """Return what a constant holds, durations in seconds."""
    if isinstance(value, timedelta):
        return [value.total_seconds()]
    if isinstance(value, tuple):
        return [amount for each in value for amount in amounts(each)]
    if hasattr(value, "base_seconds"):
        return [value.base_seconds, value.maximum_seconds]
    return [float(value)]


def stated(text: str) -> list[float]:
    """Return the amounts of a cell, durations in seconds."""
    return [
        float(found["number"].replace(",", "")) * SECONDS.get(found["unit"], 1)
        for found in NUMBER.finditer(text)
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['path']}:{row['name']}")
def test_each_row_has_the_value_of_its_constant(row):
    constant = getattr(import_module(module_name(row["path"])), row["name"])
    assert stated(row["value"]) == pytest.approx(amounts(constant))


def test_each_row_has_a_value_with_a_unit_and_a_source():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    assert [line for line in rows if not ROW.match(line)] == []
    for row in ROWS:
        is_time = re.search("SECONDS", row["name"]) is not None
        assert not is_time or re.search(r" (ms|s|min|h|d)\b", row["value"]), row[0]
        assert len(row["source"].removeprefix("own: ")) > 3, row[0]


def declared() -> list[str]:
    """Return the constants of these kinds, as the page names them."""
    places = [(ROOT / "karpenter_core" / part, f"{part}/") for part in PARTS]
    places += [
        (ROOT / "providers" / one / f"karpenter_provider_{one}", f"{one}/") for one in CLOUDS
    ]
    found: list[str] = []
    for folder, prefix in places:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text("utf-8")
            if "timedelta" not in text and not KINDS.search(text) and "Backoff" not in text:
                continue
            for each in ast.parse(text).body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    name, value = each.target.id, ast.unparse(each.value) if each.value else ""
                    is_number = re.fullmatch(r"[\d_.e\-*() +,]+", value) is not None
                    is_time = TIME.search(value) is not None and "=timedelta" not in value
                    if name.isupper() and (is_time or (KINDS.search(name) and is_number)):
                        found.append(f"{prefix}{path.relative_to(folder)} {name}")
    return found


def test_constants_of_these_kinds_are_on_the_page():
    """A user who waits for something finds here for how long; add a row, with its source."""
    rows = {f"{row['path']} {row['name']}" for row in ROWS}
    names = declared()
    assert [name for name in names if name not in rows and name not in UNMET] == []
    assert [name for name in UNMET if name not in names or name in rows] == []


def test_amounts_are_read_with_their_units():
    assert stated("1,000 to 5,000") == [1000, 5000]
    assert stated("0.05 s to 0.2 s") == [0.05, 0.2]
    assert stated("90 min") == [5400]
    assert amounts(timedelta(days=1)) == [86400]
