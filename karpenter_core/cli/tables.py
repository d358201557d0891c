"""Plans and explanations as tables, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["print_plan"]

_SHOWN_PODS: Final = 20


def print_plan(document: dict[str, Any]) -> None:
    """Show the document of a plan."""
    console = Console()
    claims: list[dict[str, Any]] = document["nodeClaims"]
    if claims:
        console.print(_claims_table(claims))
    if document["existingNodes"]:
        console.print(_existing_table(document["existingNodes"]))
    if document["unschedulable"]:
        console.print(_pending_table(document["unschedulable"]))
    cost: dict[str, Any] = document["cost"]
    placed = sum(len(claim["pods"]) for claim in claims)
    kept = sum(len(pods) for pods in document["existingNodes"].values())
    console.print(
        f"{len(claims)} nodes to launch for {placed} pods at {cost['hourly']:.4f} per hour "
        f"(first-fit: {cost['firstFit']:.4f}); {kept} pods on nodes that are there; "
        f"{len(document['unschedulable'])} pods stay pending",
        highlight=False,
        soft_wrap=True,
    )


def _table(title: str, *headings: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for claim in claims:
        cheapest: dict[str, Any] = claim["cheapest"]
        key = (claim["nodePool"], *cheapest.values(), len(claim["instanceTypes"]))
        groups.setdefault(key, []).append(len(claim["pods"]))
    table = _table(
        "Nodes to launch", "pool", "cheapest offering",
        numbers=("types", "nodes", "pods", "price/h", "sum/h"),
    )  # fmt: skip
    for (pool, name, zone, kind, price, types), pods in groups.items():
        offering = _plain(f"{name} {zone} {kind}")
        counts = (types, len(pods), sum(pods))
        sums = (f"{price:.4f}", f"{price * len(pods):.4f}")
        table.add_row(_plain(pool), offering, *map(str, counts), *sums)
    return table


def _existing_table(existing: dict[str, list[str]]) -> Table:
    table = _table("Nodes that are there", "node", numbers=("pods",))
    for name, pods in existing.items():
        table.add_row(_plain(name), str(len(pods)))
    return table


def _pending_table(pending: dict[str, Any]) -> Table:
    reasons: dict[str, list[str]] = {}
    for pod, why in pending.items():
        reasons.setdefault(why["message"], []).append(pod)
    table = _table("Pods that stay pending", "pods", "why")
    for message, pods in reasons.items():
        shown = pods[:_SHOWN_PODS]
        more = len(pods) - len(shown)
        names = [*shown, *([f"and {more} more"] if more else [])]
        table.add_row(_plain("\n".join(names)), _plain(message))
    return table


def _plain(text: str) -> Text:
    """Show text as it is: brackets in it are no markup."""
    return Text(text)
