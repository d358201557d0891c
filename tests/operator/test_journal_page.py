"""/debug/decisions answers with documented fields."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from karpenter_core.api.decisions import Decision, decision_document
from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.errors import BadInputError
from karpenter_core.operator.journal_page import PATH, decisions_page
from karpenter_core.operator.servers import HttpServers
from tests.operator.test_servers import fetch, registry  # noqa: F401 - a fixture

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "decisions.md"


def decision(number, *, kind="disrupt"):
    at = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return Decision(id=f"id-{number}", cause="test", kind=kind, at=at, summary="")


@pytest.fixture
async def journal():
    made = DecisionJournal()
    for number in range(200):
        await made.record(decision(number, kind="disrupt" if number % 2 else "provision"))
    return made


def ids(journal, **query):
    body = json.loads(decisions_page(journal, query))
    return [item["id"] for item in body["decisions"]]


async def test_the_newest_come_first_and_a_hundred_by_default(journal):
    """The limit cuts the oldest."""
    assert ids(journal) == [f"id-{n}" for n in range(199, 99, -1)]
    assert ids(journal, limit="2") == ["id-199", "id-198"]
    assert ids(journal, limit="0") == []


@pytest.mark.parametrize("limit", ["0200", "9" * 20, "9" * 5000])
async def test_a_limit_may_be_larger_than_any_number_of_decisions(journal, limit):
    """Python reads no number of thousands of digits, and counts no more than a machine word."""
    assert len(ids(journal, limit=limit)) == 200


async def test_one_kind_may_be_selected(journal):
    """The limit counts what is shown."""
    assert ids(journal, limit="2", kind="provision") == ["id-198", "id-196"]


async def test_the_comparisons_of_an_observer_may_be_selected(journal):
    """`karpenter run --observe` records them as a kind of their own."""
    await journal.record(decision(200, kind="observe"))

    assert ids(journal, kind="observe") == ["id-200"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"limit": "-1"}, 'limit: "-1" is not a number of zero or more'),
        ({"limit": "many"}, 'limit: "many" is not a number of zero or more'),
        ({"kind": "x"}, 'kind: "x" is none of disrupt, observe, provision'),
        ({"limits": "1"}, 'unknown parameter "limits"; known: kind, limit'),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query, said):
    """The message names the parameter."""
    with pytest.raises(BadInputError, match=f"^{re.escape(said)}$"):
        decisions_page(DecisionJournal(), query)


async def test_decisions_are_served_beside_the_metrics(registry, journal):  # noqa: F811
    """A bad query is the caller's mistake."""
    both = HttpServers(
        registry=registry,
        checks=(),
        address="127.0.0.1",
        metrics_port=0,
        probe_port=0,
        json_routes={PATH: lambda query: decisions_page(journal, query)},
    )
    await both.start()
    try:
        status, text = await fetch(both.metrics_port, f"{PATH}?limit=1")
        refused, why = await fetch(both.metrics_port, f"{PATH}?limit=x")
    finally:
        await both.stop()

    assert (status, [item["id"] for item in json.loads(text)["decisions"]]) == (200, ["id-199"])
    assert (refused, why) == (400, 'limit: "x" is not a number of zero or more\n')


def test_every_field_is_documented():
    """And none that does not exist."""
    table = PAGE.read_text().partition("| field | meaning |")[2]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert documented == list(decision_document(decision(1)))
