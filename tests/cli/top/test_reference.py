"""`docs/reference/top.md` documents options, states and JSON of the command."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from karpenter_core.cli.top.command import top
from karpenter_core.cli.top.document import view_document
from karpenter_core.cli.top.order import Column
from karpenter_core.cli.top.view import DecisionRow, NodeState, PendingState
from tests.cli.inputs import option_names
from tests.cli.top.clusters import read_view

PAGE = (Path(__file__).parents[3] / "docs/reference/top.md").read_text()


def rows(heading, column=1):
    """Return what stands in backticks in a column of the table with this heading."""
    lines = PAGE.partition(heading)[2].splitlines()[2:]
    table = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return {name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[column])}


def test_every_option_is_in_the_table():
    """And none that does not exist."""
    options = option_names(top)

    assert rows("| option | meaning |") == options


def test_every_state_is_in_its_table():
    assert rows("| `state` of a node | meaning |") == set(NodeState)
    assert rows("| `state` of a pod | meaning |") == set(PendingState)


def test_every_column_is_named():
    (sentence,) = re.findall(r"Nodes are sorted by (.*?)\.", PAGE, re.DOTALL)

    assert set(re.findall(r"`(\w+)`", sentence)) == set(Column)


async def test_every_key_of_the_json_is_in_the_table(tmp_path):
    decision = DecisionRow(
        title="Node/a", objects=("Node/a",), reason="r", message="m", is_warning=False, count=1,
        at=datetime(2026, 5, 1, tzinfo=UTC), age_seconds=1,
    )  # fmt: skip
    view = replace(await read_view(tmp_path), decisions=(decision,))
    document = view_document(view, view.nodes)
    contents = {key: value[0] if isinstance(value, list) else value
                for key, value in document.items() if value}  # fmt: skip

    assert rows("| key | contents |") == set(document)
    named = rows("| key | contents |", 2)
    assert named == {
        name
        for key in ("totals", "nodes", "nodePools", "pendingPods", "decisions")
        for name in contents[key]
    }
