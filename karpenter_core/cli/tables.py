"""Plans and explanations as tables, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "STATES",
    "amount_text",
    "counted",
    "first_name",
    "heading",
    "plain",
    "print_explanation",
    "print_plan",
    "table",
]

_SHOWN_PODS: Final = 20
_SMALL: Final = 0.00005
"""Prices below this would show as nothing with four decimals."""
STATES: Final = {
    "bound": "on a node",
    "ended": "done",
    "existing": "goes to a machine that is there",
    "held": "waits, and not for a node",
    "launch": "a node will be launched",
    "unschedulable": "stays pending",
}
"""What can become of a pod, and how people are told."""


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


def print_explanation(document: Mapping[str, Any]) -> None:
    """Show what is to be said of one pod."""
    console = Console()
    _say(console, f"{document['pod']}: {STATES[document['state']]}")
    pools: dict[str, dict[str, Any]] = document["pools"]
    if document["state"] != "unschedulable" or not pools:
        _say(console, document["message"])
    unusable: dict[str, str] = document["unusablePools"]
    if not pools and not (unusable and document["state"] == "unschedulable"):
        return
    made = table("NodePool", "verdict")
    for name, pool in pools.items():
        made.add_row(plain(name), plain(_verdict(pool)))
    for name, why in unusable.items():
        made.add_row(plain(name), plain(f"not used: {why}"))
    console.print(made)


def _verdict(pool: Mapping[str, Any]) -> str:
    """Write what a pool says of a pod: what it would launch, or what to change."""
    if pool["fits"]:
        return (
            f"could take it: {_offering(pool['cheapest'])} at {_price(pool['cheapest'])} per hour"
        )
    lines = [f"{pool['constraint']}: {pool['detail']}"]
    if pool["closest"]:
        lines.append(f"closest: {pool['closest']}")
    return "\n".join([*lines, f"would help: {pool['remedy']}"])


def _offering(cheapest: Mapping[str, Any]) -> str:
    return f"{cheapest['instanceType']} {cheapest['zone']} {cheapest['capacityType']}"


def _price(cheapest: Mapping[str, Any]) -> str:
    return amount_text(cheapest["price"])


def amount_text(amount: float) -> str:
    """Write an amount of money with four decimals, a very small one with two digits."""
    return f"{amount:.4f}" if amount == 0 or amount >= _SMALL else f"{amount:.2g}"


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
        f"{name}: {amount_text(amount)}"
        for name, amount in (("first-fit", cost["firstFit"]), ("at least", cost["lowerBound"]))
        if amount is not None
    ]
    left = len(document["unschedulable"])
    return (
        f"{counted(len(claims), 'node')} to launch for {counted(placed, 'pod')} at "
        f"{amount_text(document['cost']['hourly'])} per hour ({', '.join(compared)}); "
        f"{counted(kept, 'pod')} on nodes that are there; "
        f"{counted(left, 'pod')} stay{'s' if left == 1 else ''} pending"
    )


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for claim in claims:
        key = (claim["nodePool"], *claim["cheapest"].values(), len(claim["instanceTypes"]))
        groups.setdefault(key, []).append(claim)
    made = table("pool", "cheapest offering", "pods", numbers=("nodes", "types", "price/h"))
    for members in groups.values():
        claim = members[0]
        pods = [pod for member in members for pod in member["pods"]]
        made.add_row(
            plain(claim["nodePool"]),
            plain(_offering(claim["cheapest"])),
            plain(first_name(pods)),
            str(len(members)),
            str(len(claim["instanceTypes"])),
            _price(claim["cheapest"]),
        )
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
    """Write a line for each reason, with the pools that it holds for."""
    pools: dict[str, dict[str, str]] = why["pools"]
    reasons: dict[str, list[str]] = {}
    for name, pool in pools.items():
        reasons.setdefault(f"{pool['constraint']}: {pool['detail']}", []).append(name)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines) or why["message"]
