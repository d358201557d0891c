"""Writes simulations as one HTML page with plots over time."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.html_page import ChartLine, html_page, html_table, line_chart
from karpenter_core.cli.simulate.tables import (
    answer_line,
    failed_runs,
    figures,
    sweep_line,
    sweep_rows,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["simulation_report", "sweep_report"]

_CHARTS: Final = (
    ("pricePerHour", "Cost per hour", 2),
    ("nodes", "Nodes", 1),
    ("pods", "Pods", 0),
    ("pendingPods", "Pods without a node", 1),
    ("cpuUtilisation", "CPU: requested of allocatable", 0),
    ("memoryUtilisation", "Memory: requested of allocatable", 0),
)
_SHARES: Final = frozenset({"cpuUtilisation", "memoryUtilisation"})
_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_LISTED: Final = 10


def simulation_report(document: JsonMapping) -> str:
    """Return the page of one or two simulations."""
    simulations: list[JsonObject] = document["simulations"]
    parts = [f"<p>{escape(answer_line(document))}</p>", _legend(simulations)]
    parts += [_chart(simulations, name, title, digits) for name, title, digits in _CHARTS]
    names = [each["name"] for each in simulations]
    headings = ["figure", *names]
    rows = [(title, *values) for title, values in figures(simulations)]
    parts += ["<h2>Figures</h2>", html_table(headings, rows, numbers=names)]
    parts += [_instance_types(each) for each in simulations]
    return html_page("Simulation", "\n".join(parts))


def sweep_report(document: JsonMapping) -> str:
    """Return the page of a sweep."""
    headings, rows = sweep_rows(document)
    table = html_table(headings, rows, numbers=headings[1:])
    failed = "".join(
        f"<li>{escape(values)}: {escape(error)}</li>" for values, error in failed_runs(document)
    )
    more = f"\n<h2>Failed runs</h2>\n<ul>{failed}</ul>" if failed else ""
    return html_page("Sweep", f"<p>{escape(sweep_line(document))}</p>\n{table}{more}")


def _legend(simulations: Sequence[JsonMapping]) -> str:
    if len(simulations) == 1:
        return ""
    keys = [
        f'<span class="key{" other" if number else ""}"></span> {escape(each["name"])}'
        for number, each in enumerate(simulations)
    ]
    return f"<p>{' &#160; '.join(keys)}</p>"


def _chart(simulations: Sequence[JsonMapping], series: str, title: str, digits: int) -> str:
    """Return the plot of a series, one line for each simulation, stepped as its means are."""
    lines = [ChartLine(each["name"], _points(each, series)) for each in simulations]
    duration = simulations[0]["durationSeconds"]
    highest = "; ".join(
        f"{each['name']}: at most {max(each['series'][series], default=0.0):.{digits or 2}f}"
        for each in simulations
    )
    chart = line_chart(
        lines,
        label=f"{title} over {time_text(duration)}; {highest}",
        ticks=[(share, time_text(share * duration) if share else "0") for share in _QUARTERS],
        digits=digits,
        percent=series in _SHARES,
    )
    return f"<h2>{escape(title)}</h2>\n{chart}"


def _points(simulation: JsonMapping, series: str) -> list[tuple[float, float]]:
    values: list[float] = simulation["series"][series]
    step, duration = simulation["series"]["stepSeconds"], simulation["durationSeconds"]
    points: list[tuple[float, float]] = []
    for number, value in enumerate(values):
        points.append((min(number * step / duration, 1.0), value))
        points.append((min((number + 1) * step / duration, 1.0), value))
    return points


def _instance_types(simulation: JsonMapping) -> str:
    costs: dict[str, float] = simulation["cost"]["byInstanceType"]
    total = simulation["cost"]["total"]
    rows = [
        (name, f"{cost:.4f}", f"{cost / total:.1%}" if total else "")
        for name, cost in list(costs.items())[:_LISTED]
    ]
    more = len(costs) - _LISTED
    title = f"<h2>Instance types: {escape(simulation['name'])}</h2>"
    table = html_table(("instance type", "cost", "share"), rows, numbers=("cost", "share"))
    return title + table + (f"<p>and {more} more</p>" if more > 0 else "")
