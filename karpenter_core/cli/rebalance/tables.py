"""Prints disruptions and rebalances as tables of at most 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from karpenter_core.cli.duration_text import duration_text
from karpenter_core.cli.tables import counted, money_text, plain_table, print_indented

if TYPE_CHECKING:
    from rich.table import Table

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["answer_line", "print_disruption", "print_rebalance"]

_SHOWN_STEPS: Final = 20
_SHOWN_OBSTACLES: Final = 10


def print_rebalance(document: JsonMapping) -> None:
    """Print the answer, the steps, and what keeps nodes where they are."""
    console = Console()
    _say(console, answer_line(document))
    if document["steps"]:
        console.print()
        console.print(_steps(document["steps"]))
        more = len(document["steps"]) - _SHOWN_STEPS
        if more > 0:
            _say(console, f"and {counted(more, 'more step')}; -o json has all of them")
    _print_obstacles(console, document)


def print_disruption(document: JsonMapping, launches_per_hour: float) -> None:
    """Print the commands of this pass below a plan, and the price per hour with its launches."""
    console = Console()
    if document["steps"]:
        console.print()
        console.print(Text("Nodes to remove", style="bold"), end="\n\n")
        console.print(_removals(document["steps"]))
    before = document["before"]["pricePerHour"]
    after = document["after"]["pricePerHour"] + launches_per_hour
    console.print()
    _say(
        console,
        f"price per hour: {money_text(before)} before, {money_text(after)} after this plan "
        f"({counted(document['nodesRemoved'], 'node')} removed, "
        f"{counted(document['podsMoved'], 'pod')} moved){_unknown(document)}",
    )
    _print_obstacles(console, document)


def answer_line(document: JsonMapping) -> str:
    """Return the answer in one line: what is saved, by how many steps, of what."""
    before, after = document["before"], document["after"]
    price = before["pricePerHour"]
    if not document["steps"]:
        return (
            f"nothing to rebalance: {counted(before['nodes'], 'node')} at {money_text(price)} per hour "
            f"stay{_launched(document)}{_unknown(document)}"
        )
    saved = document["savingsPerHour"]
    share = f" ({saved / price:.0%})" if price else ""
    text = (
        f"{counted(len(document['steps']), 'step')} save {money_text(saved)} per hour{share}: "
        f"{counted(before['nodes'], 'node')} at {money_text(price)} become {after['nodes']} at "
        f"{money_text(after['pricePerHour'])}; {counted(document['podsMoved'], 'pod')} move"
    )
    text += _launched(document)
    if not document["complete"]:
        text += "; there may be more, later than in this preview"
    return text + _unknown(document)


def _launched(document: JsonMapping) -> str:
    return "".join(
        f"; {counted(launched['nodes'], 'node')} at {money_text(launched['pricePerHour'])} for {name} pods"
        for name in ("pending", "evicted")
        if (launched := document[f"launchedFor{name.title()}Pods"])["nodes"]
    )


def _unknown(document: JsonMapping) -> str:
    count = document["before"]["nodesWithoutPrice"]
    return f"; {counted(count, 'node')} of unknown price not counted" if count else ""


def _steps(steps: list[JsonObject]) -> Table:
    made = plain_table(
        "step", "after", "method", numbers=("nodes", "new", "pods", "saves/h", "price/h")
    )
    for number, step in enumerate(steps[:_SHOWN_STEPS], start=1):
        made.add_row(
            str(number),
            duration_text(step["afterSeconds"]),
            step["method"],
            str(len(step["nodes"])),
            str(len(step["nodeClaims"])),
            str(step["podsMoved"]),
            money_text(step["savingsPerHour"]),
            money_text(step["pricePerHour"]),
        )
    return made


def _removals(steps: list[JsonObject]) -> Table:
    made = plain_table("method", "nodes", numbers=("new", "pods", "saves/h"))
    for step in steps[:_SHOWN_STEPS]:
        names = [each["node"] for each in step["nodes"]]
        more = len(names) - 1
        made.add_row(
            step["method"],
            Text(names[0] + (f" and {more} more" if more else "")),
            str(len(step["nodeClaims"])),
            str(step["podsMoved"]),
            money_text(step["savingsPerHour"]),
        )
    return made


def _print_obstacles(console: Console, document: JsonMapping) -> None:
    lines = [
        f"{_names(each)}: {each['message']}" for each in document["blocked"][:_SHOWN_OBSTACLES]
    ]
    more = len(document["blocked"]) - _SHOWN_OBSTACLES
    if more > 0:
        lines.append(f"and {counted(more, 'more obstacle')}; -o json has all of them")
    if document["budgetsUsedUp"]:
        lines.append(
            f"the budgets of NodePool {', '.join(document['budgetsUsedUp'])} allow no disruption now"
        )
    if not lines:
        return
    console.print()
    _say(console, "blocked:")
    for line in lines:
        print_indented(console, line)


def _names(entry: JsonMapping) -> str:
    names: list[str] = entry["nodes"]
    if entry["count"] == 1:
        return names[0]
    return f"{counted(entry['count'], 'node')} ({names[0]}, ...)"


def _say(console: Console, line: str) -> None:
    console.print(Text(line), highlight=False)
