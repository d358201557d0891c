"""Writes a rebalance as one HTML page: a chart, and a table of its numbers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.duration_text import duration_text
from karpenter_core.cli.html_page import ChartLine, html_page, html_table, line_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["rebalance_report"]

_NAMED: Final = 5
_NUMBERS: Final = frozenset({"step", "pods", "saves/h", "price/h", "nodes"})


def rebalance_report(document: JsonMapping, answer: str) -> str:
    """Return the page of a rebalance; `answer` is the line that the table begins with."""
    return html_page(
        "Rebalance",
        f"<p>{escape(answer)}</p>\n{_chart(document)}\n<h2>Steps</h2>\n{_steps(document['steps'])}\n"
        f"<h2>Blocked</h2>\n{_blocked(document)}",
    )


def _chart(document: JsonMapping) -> str:
    """Return the price per hour after each step, as a stepped line from 0 up."""
    start: float = document["before"]["pricePerHour"]
    prices = [start, *(step["pricePerHour"] for step in document["steps"])]
    count = len(prices) - 1
    if not count or max(prices) <= 0:
        return ""
    points: list[tuple[float, float]] = []
    for number, price in enumerate(prices):  # each lasts one part of the width, the last too
        points += [(number / len(prices), price), ((number + 1) / len(prices), price)]
    return line_chart(
        [ChartLine("price per hour", points)],
        label=f"Price per hour, from {start:.4f} to {prices[-1]:.4f} after {count} steps",
        ticks=((0.0, "now"), (1.0, f"after {count} steps")),
    )


def _steps(steps: Sequence[JsonObject]) -> str:
    rows = (
        (
            str(number),
            duration_text(step["afterSeconds"]),
            step["method"],
            _names([each["node"] for each in step["nodes"]]),
            ", ".join(
                f"{each['cheapest']['instanceType']} {each['cheapest']['capacityType']}"
                for each in step["nodeClaims"]
            ),
            str(step["podsMoved"]),
            f"{step['savingsPerHour']:.4f}",
            f"{step['pricePerHour']:.4f}",
        )
        for number, step in enumerate(steps, start=1)
    )
    headings = ("step", "after", "method", "removed", "launched", "pods", "saves/h", "price/h")
    return (
        html_table(headings, rows, numbers=_NUMBERS)
        if steps
        else "<p>There is nothing to rebalance.</p>"
    )


def _blocked(document: JsonMapping) -> str:
    rows = [
        (str(each["count"]), each["message"], _names(each["nodes"], each["count"]))
        for each in document["blocked"]
    ]
    text = (
        html_table(("nodes", "what blocks them", "names"), rows, numbers=_NUMBERS)
        if rows
        else "<p>No node.</p>"
    )
    if document["budgetsUsedUp"]:
        names = escape(", ".join(document["budgetsUsedUp"]))
        text += f"<p>The budgets of NodePool {names} allow no disruption at the end.</p>"
    return text


def _names(names: Sequence[str], count: int | None = None) -> str:
    more = (len(names) if count is None else count) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
