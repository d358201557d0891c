"""Prints plans and explanations as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = [
    "NODE_CLAIM_STATES", "NODE_POOL_STATES", "NODE_STATES", "STATES", "counted", "money_text",
    "plain_table", "print_explanation", "print_indented", "print_node_claim_explanation", "print_node_explanation",
    "print_node_pool_explanation", "print_plan",
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
STATES: Final = {
    "bound": "on a node",
    "ended": "done",
    "existing": "goes to an existing node",
    "held": "does not wait for a node",
    "launch": "a node will be launched",
    "refused": "stays pending",
    "unschedulable": "stays pending",
}
"""Texts for the states of a pod."""
_SOURCES: Final = {"CapacityBuffer": "buffer", "ProvisioningRequest": "provisioning request"}
"""Words for the kinds of objects that ask for virtual pods."""
_VERDICTS: Final = {
    "blocked": "blocked",
    "budget": "no budget",
    "chosen": "now",
    "declined": "does not apply",
    "later": "later",
    "refused": "no move",
}
"""Texts for the verdicts of a disruption method."""

NODE_STATES: Final = {
    "budget": "would be disrupted, but its budget allows no more",
    "disrupted": "is disrupted now",
    "going": "is being removed",
    "later": "will be disrupted, if nothing changes",
    "stays": "stays",
    "unmanaged": "is not managed by Karpenter",
}
"""Texts for the states of a node."""
NODE_CLAIM_STATES: Final = {
    "launching": "has no instance yet",
    "leaving": "is being removed",
    "ready": "is ready",
    "registering": "has an instance whose Node has not joined yet",
    "starting": "has a Node that is not ready for pods yet",
}
"""Texts for the states of a NodeClaim."""
NODE_POOL_STATES: Final = {
    "held-back": "launches nothing for now",
    "launching": "launches nodes now",
    "limited": "launches nothing, because a limit is reached",
    "open": "may launch nodes",
    "static": "keeps a number of replicas",
    "unusable": "cannot launch nodes",
}
"""Texts for the states of a NodePool."""


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
        _say(console, _virtual_line(source, found))
    _say(console, _summary(document))
    for entry in document.get("staticNodePools", ()):
        _say(console, _static_pool_line(entry))
    _print_requests(console, document.get("provisioningRequests", ()))
    if before is not None:
        _say(console, f"without the files: {_summary(before)}")


def _print_requests(console: Console, entries: Sequence[JsonMapping]) -> None:
    if entries:
        from karpenter_core.cli.provisioning_requests import request_line

        for entry in entries:
            _say(console, request_line(entry))


def _static_pool_line(entry: JsonMapping) -> str:
    text = (
        f"static NodePool {entry['nodePool']}: {entry['nodeClaims']} of {entry['replicas']} "
        "replicas exist"
    )
    if entry["create"]:
        cheapest = entry["cheapest"]
        text += (
            f"; {entry['create']} to create, from {_price(cheapest)} per hour each"
            f" ({_offering(cheapest)})"
        )
    if entry["delete"]:
        text += f"; to delete: {', '.join(entry['delete'])}"
    if entry["problem"]:
        text += f"; {entry['problem']}"
    return text


def print_explanation(document: JsonMapping) -> None:
    """Print the explanation of one pod."""
    console = Console()
    _say(console, document["answer"])
    pools: dict[str, JsonObject] = document["pools"]
    unusable: dict[str, str] = document["unusablePools"]
    if not pools and not (unusable and document["state"] == "unschedulable"):
        return
    placement: JsonObject | None = document["placement"]
    chosen = "" if placement is None else placement["nodePool"]
    verdicts = {name: _verdict(pool, is_chosen=name == chosen) for name, pool in pools.items()}
    verdicts.update({name: (f"not used: {why}",) for name, why in unusable.items()})
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, verdict in verdicts.items():
        groups.setdefault(verdict, []).append(name)
    for verdict, names in groups.items():
        console.print()
        _print_block(console, ", ".join(names), verdict)


def print_node_explanation(document: JsonMapping) -> None:
    """Print the explanation of one node."""
    console = Console()
    _say(console, document["answer"])
    if document["state"] == "unmanaged":
        return
    _print_node_facts(console, document)


def _move_facts(document: JsonMapping) -> Iterator[str]:
    """Yield what is special about the pods of a node that would move."""
    for pod, refusal in document.get("surgeMoves", {}).items():
        if refusal is None:
            yield f"a rollout may replace pod {pod} before it is evicted (--surge-moves)"
        else:
            yield f"no rollout replaces pod {pod} before it is evicted: {refusal}"
    if "predictedRequests" in document:
        predicted = document["predictedRequests"]
        change = ", ".join(f"{name} {amount}" for name, amount in predicted["change"].items())
        pods = counted(predicted["pods"], "pod")
        yield f"autoscalers change the requests of {pods} by {change or 'nothing in sum'}"


def _print_node_facts(console: Console, document: JsonMapping) -> None:
    facts = [f"{counted(document['pods'], 'pod')} would have to move"]
    facts += _move_facts(document)
    if "virtualPods" in document:
        facts.append(f"room is kept for {counted(document['virtualPods'], 'virtual pod')}")
    if document["nodePool"]:
        facts.insert(0, f"NodePool {document['nodePool']}")
    if document["pricePerHour"] is not None:
        origin = _origin(document, "listPricePerHour")
        facts.append(f"{money_text(document['pricePerHour'])} per hour{origin}")
    if "paidByCommitments" in document:
        paid = money_text(document["paidByCommitments"])
        facts.append(f"of which {paid} is paid by commitments in any case")
    _say(console, ", ".join(facts))
    if "schedule" in document:
        _say(console, document["schedule"])
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, answer in document["methods"].items():
        groups.setdefault(tuple(_node_verdict(answer)), []).append(method)
    for lines, methods in groups.items():
        console.print()
        _print_block(console, ", ".join(methods), lines)


def print_node_claim_explanation(document: JsonMapping) -> None:
    """Print the explanation of one NodeClaim."""
    console = Console()
    _say(console, document["answer"])
    facts = [f"NodePool {document['nodePool']}" if document["nodePool"] else "of no NodePool"]
    if document["node"]:
        facts.append(f"node {document['node']}")
    bought = [document[key] for key in ("instanceType", "zone", "capacityType") if document[key]]
    if bought:
        facts.append(" ".join(bought))
    if document["pricePerHour"] is not None:
        facts.append(f"{money_text(document['pricePerHour'])} per hour")
    facts.append(counted(document["pods"], "pod"))
    _say(console, ", ".join(facts))
    _say(console, _launch_line(document))
    if document["deadline"]:
        _say(console, f"ends in any case at {document['deadline']}")
    if document["conditions"]:
        console.print()
        lines = [_condition_line(each) for each in document["conditions"]]
        _print_block(console, "conditions", lines)
    if document["removal"] is not None:
        console.print()
        console.print(_plain("removal"))
        _print_node_facts(console, document["removal"])


def _launch_line(document: JsonMapping) -> str:
    launched = "launched"
    if document["created"]:
        launched += f" {document['created']}"
    if document["createdFor"]:
        launched += f" {document['createdFor']}"
    if document["decision"]:
        launched += f", decision {document['decision']}"
    if document["decisionCause"]:
        launched += f" ({document['decisionCause']})"
    return launched


def _condition_line(condition: JsonMapping) -> str:
    text = f"{condition['type']}: {condition['status']}"
    if condition["since"]:
        text += f" since {condition['since']}"
    said = condition["message"] or condition["reason"]
    return text if not said or said == condition["type"] else f"{text}: {said}"


def print_node_pool_explanation(document: JsonMapping) -> None:
    """Print the explanation of one NodePool."""
    console = Console()
    _say(console, document["answer"])
    facts = [f"{counted(document['nodes'], 'node')} counted"]
    cheapest = document["cheapest"]
    if cheapest is not None:
        facts.append(
            f"cheapest now: {_offering(cheapest)} at {money_text(cheapest['price'])} per hour"
        )
    if "spotShare" in document:
        facts.append(f"spot share {document['spotShare']}")
    virtual: JsonMapping = document["launches"].get("virtualPods", {})
    facts += [
        f"{count} virtual pod(s) of {source} need new nodes" for source, count in virtual.items()
    ]
    _say(console, ", ".join(facts))
    ceilings: dict[str, JsonMapping] = {"limits": document["limits"]}
    ceilings |= {name: quota["resources"] for name, quota in document["quotas"].items()}
    for name, resources in ceilings.items():
        if resources:
            console.print()
            _print_block(
                console,
                name,
                tuple(
                    f"{resource}: {item['used']} of {item['limit']}, {item['left']} left"
                    for resource, item in resources.items()
                ),
            )


def _node_verdict(answer: JsonMapping) -> list[str]:
    """Return the lines of a method's verdict, and of its command."""
    lines = [f"{_VERDICTS[answer['verdict']]}: {answer['message']}"]
    move: JsonMapping | None = answer["move"]
    if move is not None:
        others = (
            [f"together with: {_some(move['nodes'], _SHOWN_PODS)}"] if move["nodes"][1:] else []
        )
        lines += others
        lines += [
            f"to {name}: {_some(pods, _SHOWN_PODS)}" for name, pods in move["existingNodes"].items()
        ]
        for claim in move["nodeClaims"]:
            cheapest = claim["cheapest"]
            lines.append(
                f"to a new {_offering(cheapest)} at {_full_price(cheapest)}:"
                f" {_some(claim['pods'], _SHOWN_PODS)}"
            )
    budget: Mapping[str, int] | None = answer["budget"]
    if budget is not None and answer["verdict"] in {"chosen", "later"}:
        lines.append(f"budget left: {counted(budget['remaining'], 'node')}")
    return lines


def _verdict(pool: JsonMapping, *, is_chosen: bool) -> tuple[str, ...]:
    """Return the lines of a NodePool's result for a pod: an offering, or the required change."""
    if pool["fits"]:
        verdict = "takes it" if is_chosen else "could take it as the only NodePool"
        offer = f"{_offering(pool['cheapest'])} at {_full_price(pool['cheapest'])}"
        return (f"{verdict}: {offer}",)
    lines = [f"{pool['constraint']}: {pool['detail']}"]
    if pool["closest"]:
        lines.append(f"closest: {pool['closest']}")
    return (*lines, f"would help: {pool['remedy']}")


def _print_block(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print(_plain(title))
    for line in lines:
        print_indented(console, line)


def print_indented(console: Console, text: str) -> None:
    """Print a text that is wrapped within a margin, without spaces at the ends of lines."""
    for line in _plain(text).wrap(console, max(console.width - len(_MARGIN), _LEAST_NAMES)):
        line.rstrip()
        console.print(Text(_MARGIN).append_text(line), soft_wrap=True)


def _offering(cheapest: JsonMapping) -> str:
    return f"{cheapest['instanceType']} {cheapest['zone']} {cheapest['capacityType']}"


def _price(cheapest: JsonMapping) -> str:
    return money_text(cheapest["price"])


def _full_price(cheapest: JsonMapping) -> str:
    """Return the price of an offering and, if it is another one, its list price."""
    return f"{_price(cheapest)} per hour{_origin(cheapest, 'listPrice')}"


def _origin(document: JsonMapping, list_price: str) -> str:
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
        made.add_row(*map(_plain, cells))
    return made


def _plain(text: str) -> Text:
    """Return text without markup, so that brackets stay."""
    return Text(text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say(console: Console, line: str) -> None:
    """Print a sentence: on a terminal wrapped between words, else in one line, which can be searched."""
    console.print(_plain(line), highlight=False, soft_wrap=not console.is_terminal)


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
        groups.setdefault((claim["nodePool"], cheapest["price"], _offering(cheapest)), []).append(
            claim
        )
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
        _print_block(console, _some(pods, _SHOWN_PODS), lines)
        console.print()
    rest = list(groups.values())[_SHOWN_REASONS:]
    if rest:
        more = f"and {counted(sum(map(len, rest)), 'more pod')} for {counted(len(rest), 'more reason')}"
        console.print(_plain(f"{more}: --output json has them all"), end="\n\n")


def _reasons(why: JsonObject) -> list[str]:
    """Return a line for each reason, with the NodePools that it applies to."""
    pools: dict[str, dict[str, str]] = why["pools"]
    reasons: dict[str, list[str]] = {}
    for name, pool in pools.items():
        reasons.setdefault(f"{pool['constraint']}: {pool['detail']}", []).append(name)
    lines = [f"{_some(names, _SHOWN_POOLS)}: {reason}" for reason, names in reasons.items()]
    return lines or [why["message"]]


def _some(names: Sequence[str], most: int) -> str:
    """Return names, and the number of further names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
