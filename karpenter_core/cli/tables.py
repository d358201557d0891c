"""Prints plans as tables, and the texts that other tables have too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from karpenter_core.cli.name_lists import some_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = [
    "counted", "full_price_text", "money_text", "offering_text", "origin_text", "plain_table", "plain_text",
    "print_block", "print_indented", "print_plan", "print_sentence",
]  # fmt: skip

_SHOWN_NODES: Final = 20
_SHOWN_PODS: Final = 5
_SHOWN_POOLS: Final = 5
_SHOWN_REASONS: Final = 20
_COLUMN_GAP: Final = 2
_MARGIN: Final = "  "
_LEAST_NAMES: Final = 10
"""Minimum width of a column of names."""
_SMALL: Final = 0.00005
"""Prices below this would be zero with four decimals."""
_SOURCES: Final = {"CapacityBuffer": "buffer", "ProvisioningRequest": "provisioning request"}
"""Words for the kinds of objects that ask for virtual pods."""


def print_plan(document: JsonMapping, before: JsonMapping | None = None) -> None:
    """Print the document of a plan and, if there is one to compare with, the changes."""
    console = Console()
    if document["nodeClaims"]:
        _heading(console, "Nodes to launch")
        console.print(_claims_table(document["nodeClaims"], console.width))
        console.print()
    if document["existingNodes"]:
        _heading(console, "Existing nodes")
        console.print(_existing_table(document["existingNodes"], console.width))
        console.print()
    if document["unschedulable"]:
        _heading(console, "Pods that stay pending")
        _print_pending(console, document["unschedulable"])
    for source, found in document.get("virtualPods", {}).items():
        print_sentence(console, _virtual_line(source, found))
    print_sentence(console, _summary(document))
    for entry in document.get("staticNodePools", ()):
        print_sentence(console, _static_pool_line(entry))
    _print_requests(console, document.get("provisioningRequests", ()))
    if before is not None:
        print_sentence(console, f"without the files: {_summary(before)}")


def _print_requests(console: Console, entries: Sequence[JsonMapping]) -> None:
    if entries:
        from karpenter_core.cli.provisioning_requests import request_line

        for entry in entries:
            print_sentence(console, request_line(entry))


def _static_pool_line(entry: JsonMapping) -> str:
    text = (
        f"static NodePool {entry['nodePool']}: {entry['nodeClaims']} of {entry['replicas']} "
        "replicas exist"
    )
    if entry["create"]:
        cheapest = entry["cheapest"]
        text += (
            f"; {entry['create']} to create, from {_price(cheapest)} per hour each"
            f" ({offering_text(cheapest)})"
        )
    if entry["delete"]:
        text += f"; to delete: {', '.join(entry['delete'])}"
    if entry["problem"]:
        text += f"; {entry['problem']}"
    return text


def print_block(console: Console, title: str, lines: Sequence[str]) -> None:
    """Print lines below a title, within a margin."""
    console.print(plain_text(title))
    for line in lines:
        print_indented(console, line)


def print_indented(console: Console, text: str) -> None:
    """Print a text that is wrapped within a margin, without spaces at the ends of lines."""
    for line in plain_text(text).wrap(console, max(console.width - len(_MARGIN), _LEAST_NAMES)):
        line.rstrip()
        console.print(Text(_MARGIN).append_text(line), soft_wrap=True)


def offering_text(cheapest: JsonMapping) -> str:
    """Return the name of an offering."""
    return f"{cheapest['instanceType']} {cheapest['zone']} {cheapest['capacityType']}"


def _price(cheapest: JsonMapping) -> str:
    return money_text(cheapest["price"])


def full_price_text(cheapest: JsonMapping) -> str:
    """Return the price of an offering and, if it is another one, its list price."""
    return f"{_price(cheapest)} per hour{origin_text(cheapest, 'listPrice')}"


def origin_text(document: JsonMapping, list_price: str) -> str:
    """Return the list price and the source of a price that is another one; else nothing."""
    source: str = document.get("priceSource", "")
    return f" (list price {money_text(document[list_price])}; {source})" if source else ""


def money_text(amount: float) -> str:
    """Return an amount of money with four decimals, a very small one with two digits."""
    return f"{amount:.4f}" if amount == 0 or abs(amount) >= _SMALL else f"{amount:.2g}"


def _heading(console: Console, text: str) -> None:
    """Print the heading of a table without wrapping."""
    console.print(Text(text, style="bold"), end="\n\n")


def plain_table(*headings: str, numbers: Sequence[str] = ()) -> Table:
    """Return a table with text columns and right-aligned number columns."""
    made = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in headings:
        made.add_column(name, overflow="fold", min_width=len(name))
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def _with_names(made: Table, rows: Sequence[Sequence[str]], title: str, width: int) -> Table:
    """Add rows to a table; truncate the last cells, which are names, to the width."""
    columns = list(zip(*rows, strict=True))[:-1]
    used_width = sum(
        _COLUMN_GAP + max(map(len, (str(column.header), *cells)))
        for column, cells in zip(made.columns, columns, strict=True)
    )
    room = width - used_width
    if room >= _LEAST_NAMES:
        made.add_column(title, no_wrap=True)
    for *cells, name in rows:
        if room >= _LEAST_NAMES:
            cells.append(name if len(name) <= room else f"{name[: room - 3]}...")
        made.add_row(*map(plain_text, cells))
    return made


def plain_text(text: str) -> Text:
    """Return text without markup, so that brackets stay."""
    return Text(text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_sentence(console: Console, line: str) -> None:
    """Print a sentence: on a terminal wrapped between words, else in one line, which can be searched."""
    console.print(plain_text(line), highlight=False, soft_wrap=not console.is_terminal)


def _summary(document: JsonMapping) -> str:
    claims: list[JsonObject] = document["nodeClaims"]
    cost: dict[str, float | None] = document["cost"]
    kept_count = sum(len(pods) for pods in document["existingNodes"].values())
    pending_count = len(document["unschedulable"])
    parts: list[str] = []
    if claims:
        compared = [
            f"{name}: {money_text(amount)}"
            for name, amount in (("first-fit", cost["firstFit"]), ("at least", cost["lowerBound"]))
            if amount is not None
        ]
        placed = sum(len(claim["pods"]) for claim in claims)
        parts.append(
            f"{counted(len(claims), 'node')} to launch for {counted(placed, 'pod')} at "
            f"{money_text(document['cost']['hourly'])} per hour ({', '.join(compared)})"
        )
    elif kept_count or pending_count:
        parts.append("no node to launch")
    if kept_count:
        parts.append(f"{counted(kept_count, 'pod')} on existing nodes")
    if pending_count:
        parts.append(
            f"{counted(pending_count, 'pod')} stay{'s' if pending_count == 1 else ''} pending"
        )
    return "; ".join(parts) or "no pod waits for a node"


def _virtual_line(source: str, found: JsonMapping) -> str:
    """Return the line of an object that asks for virtual pods, such as a buffer."""
    kind, _, name = source.partition(" ")
    text = f"{_SOURCES.get(kind, kind)} {name}: {found['existingNodes']} of {found['wanted']} fit on existing nodes"
    if found["newNodes"]:
        text += f", {found['newNodes']} on nodes to launch"
    if found["unschedulable"]:
        text += f", {found['unschedulable']} have no place: {found['message']}"
    return text


def _claims_table(claims: list[JsonObject], width: int) -> Table:
    """Group nodes of one NodePool and one cheapest offering in one row."""
    groups: dict[tuple[str, float, str], list[JsonObject]] = {}
    for claim in claims:
        cheapest = claim["cheapest"]
        groups.setdefault(
            (claim["nodePool"], cheapest["price"], offering_text(cheapest)), []
        ).append(claim)
    rows: list[tuple[str, ...]] = []
    for (pool, _, offering), members in sorted(groups.items()):
        types = sorted({len(claim["instanceTypes"]) for claim in members})
        rows.append(
            (
                pool,
                offering,
                str(len(members)),
                str(sum(len(claim["pods"]) for claim in members)),
                str(types[0]) if len(types) == 1 else f"{types[0]}-{types[-1]}",
                _price(members[0]["cheapest"]),
                _first_pod(members),
            )
        )
    made = plain_table("pool", "cheapest offering", numbers=("nodes", "pods", "types", "price/h"))
    return _with_names(made, rows, "first pod", width)


def _first_pod(claims: Sequence[JsonMapping]) -> str:
    """Return the first pod of claims, or for whose virtual pods they are."""
    pods = next((claim["pods"] for claim in claims if claim["pods"]), None)
    if pods is not None:
        return str(pods[0])
    return next(iter(claims[0].get("virtualPods", {})), "")


def _existing_table(existing: dict[str, list[str]], width: int) -> Table:
    rows = [(name, str(len(pods)), pods[0]) for name, pods in existing.items()]
    rest = list(existing.values())[_SHOWN_NODES:]
    if rest:
        more = f"and {counted(len(rest), 'more node')}"
        rows = [*rows[:_SHOWN_NODES], (more, str(sum(map(len, rest))), "")]
    return _with_names(plain_table("node", numbers=("pods",)), rows, "first pod", width)


def _print_pending(console: Console, pending: JsonObject) -> None:
    """Print each reason once, below its pods."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for pod, why in pending.items():
        groups.setdefault(tuple(_reasons(why)), []).append(pod)
    for lines, pods in list(groups.items())[:_SHOWN_REASONS]:
        print_block(console, some_names(pods, _SHOWN_PODS), lines)
        console.print()
    rest = list(groups.values())[_SHOWN_REASONS:]
    if rest:
        more = f"and {counted(sum(map(len, rest)), 'more pod')} for {counted(len(rest), 'more reason')}"
        console.print(plain_text(f"{more}: --output json has them all"), end="\n\n")


def _reasons(why: JsonObject) -> list[str]:
    """Return a line for each reason, with the NodePools that it applies to."""
    pools: dict[str, dict[str, str]] = why["pools"]
    reasons: dict[str, list[str]] = {}
    for name, pool in pools.items():
        reasons.setdefault(f"{pool['constraint']}: {pool['detail']}", []).append(name)
    lines = [f"{some_names(names, _SHOWN_POOLS)}: {reason}" for reason, names in reasons.items()]
    return lines or [why["message"]]
