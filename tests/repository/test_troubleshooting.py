"""The page of symptoms names conditions, Events, metrics, options and annotations that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from karpenter_core.scheduling.problem import PoolConstraint

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(
    r"(?<![\w/.-])(--[a-z][a-z-]+|karpenter\.sh/[a-z-]+|karpenter_[a-z_]+|[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+)"
)
"""Options, annotations, metrics, and names of several words."""
OF_KUBERNETES = {
    "DaemonSet",
    "PodScheduled",
    "ScheduleAnyway",
}


@cache
def sources() -> str:
    folders = (ROOT / "karpenter_core", *(ROOT / "providers").glob("*/karpenter_provider_*"))
    return "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))


def names() -> list[str]:
    found = {name for text in CODE.findall(PAGE.read_text()) for name in NAME.findall(text)}
    return sorted(found - OF_KUBERNETES)


@pytest.mark.parametrize("name", names())
def test_a_name_on_the_page_is_used_in_the_code(name: str):
    if name.startswith("karpenter_"):  # metrics are declared without the prefix
        name = name.removeprefix("karpenter_").removesuffix("_total")
    assert name.removeprefix("--") in sources()


def test_names_of_every_kind_are_looked_for():
    found = " ".join(names())
    for name in ("--launch-timeout", "karpenter.sh/do-not-disrupt", "FailedDraining", "karpenter_"):
        assert name in found
    assert len(names()) > 40


@pytest.mark.parametrize("constraint", PoolConstraint)
def test_every_constraint_of_an_explanation_has_a_row(constraint):
    assert re.search(rf"^\| constraint[^|]*`{constraint}`", PAGE.read_text(), re.MULTILINE)


def test_commands_on_the_page_exist():
    """And their options, which are among the code's."""
    from karpenter_core.cli.main import build_app

    app = build_app()
    known = {each.name for each in (*app.registered_commands, *app.registered_groups)}
    used = set(re.findall(r"`karpenter ([a-z]+)", PAGE.read_text()))
    assert used
    assert used <= known
