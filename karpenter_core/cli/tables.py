"""Plans and explanations as tables, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["counted", "first_name", "heading", "plain", "print_plan", "table"]

_SHOWN_PODS: Final = 20


def print_plan(document: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Show the document of a plan and, if there is one to compare with, what has changed."""
    console = Console()
    if document["nodeClaims"]:
        heading(console, "Nodes to launch")
        console.print(_claims_table(document["nodeClaims"]))
    if document["existingNodes"]:
        heading(console, "Nodes that are there")
        console.print(_existing_table(document["existingNodes"]))
    if document["unschedulable"]:
        heading(console, "Pods that stay pending")
        console.print(_pending_table(document["unschedulable"]))
    _say(console, _summary(document))
    if before is not None:
        _say(console, f"without the files: {_summary(before)}")


def heading(console: Console, text: str) -> None:
    """Print the heading of a table, however narrow the table is."""
    console.print(Text(text, style="bold"))


def table(*headings: str, numbers: Sequence[str] = ()) -> Table:
    """Return a table with text columns and, on their right, columns of numbers."""
    made = Table(box=box.SIMPLE, pad_edge=False)
    for name in headings:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def plain(text: str) -> Text:
    """Show text as it is: brackets in it are no markup."""
    return Text(text)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_name(names: Sequence[str]) -> str:
    """Write the first name and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _say(console: Console, line: str) -> None:
    console.print(plain(line), highlight=False, soft_wrap=True)


def _summary(document: Mapping[str, Any]) -> str:
    claims: list[dict[str, Any]] = document["nodeClaims"]
    cost: dict[str, float | None] = document["cost"]
    placed = sum(len(claim["pods"]) for claim in claims)
    kept = sum(len(pods) for pods in document["existingNodes"].values())
    compared = [
        f"{name}: {amount:.4f}"
        for name, amount in (("first-fit", cost["firstFit"]), ("at least", cost["lowerBound"]))
        if amount is not None
    ]
    left = len(document["unschedulable"])
    return (
        f"{counted(len(claims), 'node')} to launch for {counted(placed, 'pod')} at "
        f"{cost['hourly']:.4f} per hour ({', '.join(compared)}); "
        f"{counted(kept, 'pod')} on nodes that are there; "
        f"{counted(left, 'pod')} stay{'s' if left == 1 else ''} pending"
    )


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for claim in claims:
        key = (claim["nodePool"], *claim["cheapest"].values(), len(claim["instanceTypes"]))
        groups.setdefault(key, []).append(claim)
    made = table("pool", "cheapest offering", "pods", numbers=("nodes", "types", "price/h"))
    for (pool, name, zone, kind, price, types), members in groups.items():
        pods = [pod for claim in members for pod in claim["pods"]]
        offering = plain(f"{name} {zone} {kind}")
        numbers = (str(len(members)), str(types), f"{price:.4f}")
        made.add_row(plain(pool), offering, plain(first_name(pods)), *numbers)
    return made


def _existing_table(existing: dict[str, list[str]]) -> Table:
    made = table("node", "pods")
    for name, pods in existing.items():
        made.add_row(plain(name), plain(first_name(pods)))
    return made


def _pending_table(pending: dict[str, Any]) -> Table:
    """Show each reason once, with the pods that it holds back."""
    reasons: dict[str, list[str]] = {}
    for pod, why in pending.items():
        reasons.setdefault(_reason(why), []).append(pod)
    made = table("pods", "why")
    for reason, pods in reasons.items():
        more = len(pods) - _SHOWN_PODS
        names = [*pods[:_SHOWN_PODS], *([f"and {more} more"] if more > 0 else [])]
        made.add_row(plain("\n".join(names)), plain(reason))
    return made


def _reason(why: dict[str, Any]) -> str:
    """Write a line for each pool, or what holds for all of them."""
    pools: dict[str, dict[str, str]] = why["pools"]
    if len({pool["detail"] for pool in pools.values()}) < len(pools) or not pools:
        return why["message"]
    return "\n".join(
        f"{name}: {pool['constraint']}: {pool['detail']}" for name, pool in pools.items()
    )
