"""Prints simulations as tables of at most 80 columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from karpenter_core.cli.duration_text import duration_text
from karpenter_core.cli.tables import counted, money_text, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = [
    "answer_line", "failed_runs", "figures", "print_simulations", "print_sweep", "sweep_line", "sweep_rows",
    "time_text",
]  # fmt: skip

_MINUTE: Final = 60
_WIDTH: Final = 80
_NAMED: Final = 4


def print_simulations(document: JsonMapping) -> None:
    """Print the answer and the figures, one column for each configuration."""
    simulations: list[JsonObject] = document["simulations"]
    console = Console(width=_WIDTH)
    console.print(Text(answer_line(document)), highlight=False)
    console.print()
    names = [_column_name(each["name"], len(simulations)) for each in simulations]
    made = plain_table("", numbers=names)
    for title, values in figures(simulations):
        made.add_row(title, *values)
    console.print(made)
    for each in simulations:
        unpriced = each["cost"]["nodesWithoutPrice"]
        if unpriced:
            line = f"{each['name']}: {counted(unpriced, 'node')} of unknown price not counted"
            console.print(Text(line), highlight=False)


def answer_line(document: JsonMapping) -> str:
    """Return the answer in one line."""
    first, *others = document["simulations"]
    hours = time_text(first["durationSeconds"])
    if not others:
        cost, pending = first["cost"], first["pendingSeconds"]
        return (
            f"{hours} cost {money_text(cost['total'])} {cost['currency']}, "
            f"{money_text(cost['perHour'])} per hour on {first['nodes']['mean']:.1f} nodes; "
            f"95 % of {counted(pending['count'], 'pod')} waited at most {time_text(pending['p95'])}"
        )
    difference = document["difference"]
    share = difference["costShare"]
    word = "more" if share > 0 else "less"
    if not share:
        return (
            f"{hours}: both cost {money_text(first['cost']['total'])} {first['cost']['currency']}"
        )
    return (
        f"{others[0]['name']} costs {abs(share):.1%} {word} than {first['name']} in {hours}: "
        f"{money_text(others[0]['cost']['total'])} instead of {money_text(first['cost']['total'])} "
        f"{first['cost']['currency']}"
    )


def figures(simulations: Sequence[JsonMapping]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table: a title, and a text for each simulation."""

    def row(title: str, *path: str, form: str = "") -> tuple[str, list[str]]:
        *sections, last = path
        holders = [reduce(_field, sections, each) for each in simulations]
        return title, [_text(holder[last], form) for holder in holders]

    reasons = sorted({reason for each in simulations for reason in each["disruptions"]})
    return [
        row("cost", "cost", "total", form="money"),
        row("cost per hour", "cost", "perHour", form="money"),
        row("cost per pod and hour", "cost", "perPodHour", form="money"),
        row("nodes, mean", "nodes", "mean", form="mean"),
        row("nodes, peak", "nodes", "peak"),
        row("nodes launched", "nodes", "launched"),
        *(
            (
                f"nodes removed: {reason}",
                [str(each["disruptions"].get(reason, 0)) for each in simulations],
            )
            for reason in reasons
        ),
        row("pods, mean", "pods", "mean", form="mean"),
        row("pods evicted", "pods", "evicted"),
        row("pods lost with a node", "pods", "lost"),
        row("pods that waited for a node", "pendingSeconds", "count"),
        row("wait, median", "pendingSeconds", "p50", form="time"),
        row("wait, 95 %", "pendingSeconds", "p95", form="time"),
        row("wait, 99 %", "pendingSeconds", "p99", form="time"),
        row("wait, longest", "pendingSeconds", "max", form="time"),
        row("until running, 95 %", "startupSeconds", "p95", form="time"),
        row("still waiting at the end", "waiting", "count"),
        row("cpu requested of allocatable", "utilisation", "cpu", form="share"),
        row("memory requested of allocatable", "utilisation", "memory", form="share"),
        row("spot reclaims", "cloud", "spotReclaims"),
        row("stock-outs", "cloud", "stockOuts"),
    ]


def print_sweep(document: JsonMapping) -> None:
    """Print the runs of a sweep, the cheapest first."""
    console = Console(width=_WIDTH)
    console.print(Text(sweep_line(document)), highlight=False)
    console.print()
    headings, rows = sweep_rows(document)
    made = plain_table(headings[0], numbers=headings[1:])
    for values, *cells in rows:
        made.add_row(Text(values), *cells)
    console.print(made)
    if document["failed"]:
        console.print()
    for values, error in failed_runs(document):
        console.print(Text(f"failed: {values}: {error}"), highlight=False)


def failed_runs(document: JsonMapping) -> list[tuple[str, str]]:
    """Return the values of each run that failed, and its error."""
    return [
        (" ".join(f"{key}={value}" for key, value in run["values"].items()), run["error"])
        for run in document["failed"]
    ]


def sweep_line(document: JsonMapping) -> str:
    """Return the answer of a sweep in one line."""
    runs: list[JsonObject] = document["runs"]
    cheapest, dearest = runs[0]["cost"], runs[-1]["cost"]
    failed = f", and {len(document['failed'])} that failed" if document["failed"] else ""
    return (
        f"{counted(len(runs), 'run')} of {time_text(document['durationSeconds'])}{failed}: the cheapest costs "
        f"{money_text(cheapest['total'])}, the dearest {money_text(dearest['total'])} "
        f"{cheapest['currency']}"
    )


def sweep_rows(document: JsonMapping) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headings and the rows of a sweep; all but the first column are numbers."""
    headings = ("values", "cost", "nodes", "evicted", "wait 95 %", "cpu")
    rows = [
        (
            "\n".join(f"{key}={value}" for key, value in run["values"].items()),
            money_text(run["cost"]["total"]),
            f"{run['nodes']['mean']:.1f}",
            str(run["pods"]["evicted"]),
            time_text(run["pendingSeconds"]["p95"]),
            f"{run['utilisation']['cpu']:.0%}",
        )
        for run in document["runs"]
    ]
    return headings, rows


def time_text(seconds: float) -> str:
    """Return a time with its two largest units."""
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    return duration_text(round(seconds))


def _field(holder: JsonMapping, name: str) -> JsonMapping:
    return holder[name]


def _text(value: object, form: str) -> str:
    if not isinstance(value, int | float):
        return str(value)
    match form:
        case "money":
            return money_text(value)
        case "mean":
            return f"{value:.1f}"
        case "time":
            return time_text(value)
        case "share":
            return f"{value:.1%}"
        case _:
            return f"{value:g}"


def _column_name(name: str, count: int) -> str:
    room = 40 // count
    return name if len(name) <= room else f"{name[: room - 3]}..."
