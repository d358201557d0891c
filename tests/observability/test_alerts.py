"""Alert rules are complete: severity, text, a runbook, and metrics that the controller has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.observability.expressions import alert_rules, documented_metrics
from tests.observability.late_series import LATE_SERIES

GUIDE = Path(__file__).parents[2] / "docs" / "observability.md"
RULES = alert_rules()
OURS = ("karpenter_", "operator_", "client_go_", "aws_sdk_go_", "leader_election_")
FOREIGN = {"process_start_time_seconds", "process_resident_memory_bytes"}


@pytest.mark.parametrize("name", RULES)
def test_an_alert_has_a_severity_summary_description_and_runbook(name):
    """In whole sentences, and its severity is one that routes know."""
    rule = RULES[name]
    annotations = rule["annotations"]

    assert re.fullmatch(r"Karpenter[A-Z][A-Za-z]+", name)
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(annotations) == {"summary", "description", "runbook"}
    assert annotations["summary"].endswith((".", ")."))
    assert annotations["description"].endswith(".")
    assert "\n" not in annotations["description"]


@pytest.mark.parametrize("name", RULES)
def test_an_alert_links_to_its_own_runbook(name):
    """The section of the guide has the alert's name as its heading."""
    headings = re.findall(r"^#+ (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert name in headings
    assert RULES[name]["annotations"]["runbook"] == f"docs/observability.md#{name.lower()}"


def test_every_runbook_belongs_to_an_alert():
    headings = re.findall(r"^### (Karpenter\w+)$", GUIDE.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(RULES)


@pytest.mark.parametrize("name", RULES)
def test_the_metrics_of_an_alert_are_documented(name):
    """So are the labels it selects by; other tests compare the reference with the code."""
    documented = documented_metrics()
    expression = RULES[name]["expr"]
    used = set(re.findall(r"\b\w+_\w+\b", strip(expression)))
    assert {name for name in used if name.startswith(OURS)} <= set(documented)
    assert used & (set(documented) | FOREIGN), expression
    for metric, matchers in re.findall(r"\b(\w+)\s*\{([^}]*)\}", expression):
        assert metric in documented, metric
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= documented[metric]


def strip(expression: str) -> str:
    """Return an expression without its strings and label lists."""
    without_strings = re.sub(r'"[^"]*"', "", expression)
    return re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", without_strings)


SOURCE = "".join(
    path.read_text()
    for folder in ("karpenter_core", "providers")
    for path in sorted((GUIDE.parents[1] / folder).rglob("*.py"))
    if "tests" not in path.parts
)


@pytest.mark.parametrize("selector", LATE_SERIES)
def test_a_series_that_no_healthy_run_has_is_declared_by_the_code(selector):
    """With the labels that are selected; values are words that the code has."""
    name, _, matchers = selector.partition("{")
    selected = re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers)

    assert {label for label, _ in selected} <= documented_metrics()[name]
    for label, values in selected:
        if label != "code":
            words = [value.replace("_", "") for value in values.split("|")]
            found = SOURCE.lower().replace("_", "")
            assert [word for word in words if word.lower() not in found] == []
