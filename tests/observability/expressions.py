"""Reads the expressions of dashboards and alert rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ALERTS",
    "DASHBOARDS",
    "alert_rules",
    "dashboards",
    "documented_metrics",
    "panel_expressions",
    "variable_queries",
]

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = tuple(sorted((ROOT / "charts" / "karpenter" / "alerts").glob("*.yaml")))
DASHBOARDS: Final = tuple(sorted((ROOT / "charts" / "karpenter" / "dashboards").glob("*.json")))
METRICS_PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
INTERVALS: Final = {"$__rate_interval": "30s", "$__range": "5m"}
VARIABLES: Final = ("cluster", "nodepool", "provider")
SUFFIXES: Final = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def dashboards() -> dict[str, dict[str, Any]]:
    """Return every dashboard by its title."""
    documents = [json.loads(path.read_text()) for path in DASHBOARDS]
    return {document["title"]: document for document in documents}


def panel_expressions() -> Iterator[tuple[str, str]]:
    """Yield the title and each expression of every panel, with "All" chosen for each variable."""
    for title, document in dashboards().items():
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield f"{title}: {panel['title']}", _substituted(target["expr"])


def variable_queries() -> Iterator[tuple[str, str, str]]:
    """Yield name, selector and label of the query of every variable."""
    for title, document in dashboards().items():
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                query = _substituted(variable["query"]["query"])
                match = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
                assert match is not None, query
                yield f"{title}: {variable['name']}", match[1], match[2]


def alert_rules() -> dict[str, dict[str, Any]]:
    """Return every alert rule by its name."""
    rules: dict[str, dict[str, Any]] = {}
    for path in ALERTS:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                assert rule["alert"] not in rules, rule["alert"]
                rules[rule["alert"]] = rule
    return rules


def documented_metrics() -> dict[str, frozenset[str]]:
    """Return the labels of each series that the reference documents, by the name of the series.

    Tests compare the reference with the code; several clouds may have one metric.
    """
    found: dict[str, frozenset[str]] = {}
    for line in METRICS_PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not cells[0].startswith("`"):
            continue
        name, labels = cells[0].strip("`"), set(re.findall(r"`(\w+)`", cells[2]))
        for suffix in SUFFIXES.get(cells[1], ("",)):
            extra = {"le"} if suffix == "_bucket" else set()
            extra |= {"quantile"} if cells[1] == "summary" and not suffix else set()
            found[name + suffix] = frozenset({*labels, *extra})
    return found


def _substituted(expression: str) -> str:
    for name, value in INTERVALS.items():
        expression = expression.replace(name, value)
    for name in VARIABLES:
        expression = expression.replace(f"${name}", ".*")
    assert "$" not in expression, expression
    return expression
