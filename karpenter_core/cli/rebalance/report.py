"""Writes a rebalance as one HTML page that needs nothing else: no script, no font, no other file.

The page refuses every resource by its own Content-Security-Policy, is drawn in light and dark, and has the
numbers of its chart as a table.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["rebalance_report"]

_WIDTH: Final = 760
_HEIGHT: Final = 240
_LEFT: Final = 70
_BOTTOM: Final = 30
_NAMED: Final = 5

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rebalance</title>
<style>
:root {{ color-scheme: light dark; --line: #0b6e99; --grid: #8888; }}
@media (prefers-color-scheme: dark) {{ :root {{ --line: #6cc5f0; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .25rem .5rem; border-bottom: 1px solid var(--grid); vertical-align: top; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font-size: 12px; fill: currentColor; }}
</style>
</head>
<body>
<h1>Rebalance</h1>
<p>{answer}</p>
{chart}
<h2>Steps</h2>
{steps}
<h2>Blocked</h2>
{blocked}
</body>
</html>
"""


def rebalance_report(document: JsonMapping, answer: str) -> str:
    """Return the page of a rebalance; `answer` is the line that the table begins with."""
    return _PAGE.format(
        answer=escape(answer),
        chart=_chart(document),
        steps=_steps(document["steps"]),
        blocked=_blocked(document),
    )


def _chart(document: JsonMapping) -> str:
    """Return the price per hour after each step, as a stepped line from 0 up."""
    start: float = document["before"]["pricePerHour"]
    prices = [start, *(step["pricePerHour"] for step in document["steps"])]
    highest = max(prices)
    if len(prices) == 1 or highest <= 0:
        return ""
    points: list[str] = []
    for number, price in enumerate(prices):
        x, y = _x(number, len(prices)), _y(price, highest)
        if number:
            points.append(f"{x:.1f},{_y(prices[number - 1], highest):.1f}")
        points.append(f"{x:.1f},{y:.1f}")
    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{_y(level, highest):.1f}" '
        f'y2="{_y(level, highest):.1f}" stroke="var(--grid)"/>'
        f'<text x="{_LEFT - 8}" y="{_y(level, highest) + 4:.1f}" text-anchor="end">{level:.2f}</text>'
        for level in (0.0, highest / 2, highest)
    )
    label = f"Price per hour, from {start:.4f} to {prices[-1]:.4f} after {len(prices) - 1} steps"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{marks}'
        f'<polyline fill="none" stroke="var(--line)" stroke-width="2" points="{" ".join(points)}"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">now</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 8}" text-anchor="end">after {len(prices) - 1} steps</text>'
        "</svg>"
    )


def _x(number: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT) * number / (count - 1)


def _y(price: float, highest: float) -> float:
    return 10 + (_HEIGHT - _BOTTOM - 10) * (1 - price / highest)


def _steps(steps: Sequence[JsonObject]) -> str:
    rows = (
        (
            str(number),
            f"{step['afterSeconds']} s",
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
    return _table(headings, rows) if steps else "<p>There is nothing to rebalance.</p>"


def _blocked(document: JsonMapping) -> str:
    rows = [
        (str(each["count"]), each["message"], _names(each["nodes"], each["count"]))
        for each in document["blocked"]
    ]
    text = _table(("nodes", "what blocks them", "names"), rows) if rows else "<p>No node.</p>"
    if document["budgetsUsedUp"]:
        names = escape(", ".join(document["budgetsUsedUp"]))
        text += f"<p>The budgets of NodePool {names} allow no disruption at the end.</p>"
    return text


def _names(names: Sequence[str], count: int | None = None) -> str:
    more = (len(names) if count is None else count) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    numbers = {"step", "pods", "saves/h", "price/h", "nodes"}

    def cell(tag: str, heading: str, text: str) -> str:
        kind = ' class="n"' if heading in numbers else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{kind}>{escape(text)}</{tag}>"

    head = "".join(cell("th", heading, heading) for heading in headings)
    body = "".join(
        "<tr>"
        + "".join(cell("td", heading, text) for heading, text in zip(headings, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
