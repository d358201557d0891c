"""Prints explanations of pods, nodes, NodeClaims and NodePools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console

from karpenter_core.cli.name_lists import some_names
from karpenter_core.cli.tables import (
    counted,
    full_price_text,
    money_text,
    offering_text,
    origin_text,
    plain_text,
    print_block,
    print_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = [
    "NODE_CLAIM_STATES", "NODE_POOL_STATES", "NODE_STATES", "STATES", "print_explanation",
    "print_node_claim_explanation", "print_node_explanation", "print_node_pool_explanation",
]  # fmt: skip

_SHOWN_PODS: Final = 5
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


def print_explanation(document: JsonMapping) -> None:
    """Print the explanation of one pod."""
    console = Console()
    print_sentence(console, document["answer"])
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
        print_block(console, ", ".join(names), verdict)


def print_node_explanation(document: JsonMapping) -> None:
    """Print the explanation of one node."""
    console = Console()
    print_sentence(console, document["answer"])
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
        origin = origin_text(document, "listPricePerHour")
        facts.append(f"{money_text(document['pricePerHour'])} per hour{origin}")
    if "paidByCommitments" in document:
        paid = money_text(document["paidByCommitments"])
        facts.append(f"of which {paid} is paid by commitments in any case")
    print_sentence(console, ", ".join(facts))
    if "schedule" in document:
        print_sentence(console, document["schedule"])
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, answer in document["methods"].items():
        groups.setdefault(tuple(_node_verdict(answer)), []).append(method)
    for lines, methods in groups.items():
        console.print()
        print_block(console, ", ".join(methods), lines)


def print_node_claim_explanation(document: JsonMapping) -> None:
    """Print the explanation of one NodeClaim."""
    console = Console()
    print_sentence(console, document["answer"])
    facts = [f"NodePool {document['nodePool']}" if document["nodePool"] else "of no NodePool"]
    if document["node"]:
        facts.append(f"node {document['node']}")
    bought = [document[key] for key in ("instanceType", "zone", "capacityType") if document[key]]
    if bought:
        facts.append(" ".join(bought))
    if document["pricePerHour"] is not None:
        facts.append(f"{money_text(document['pricePerHour'])} per hour")
    facts.append(counted(document["pods"], "pod"))
    print_sentence(console, ", ".join(facts))
    print_sentence(console, _launch_line(document))
    if document["deadline"]:
        print_sentence(console, f"ends in any case at {document['deadline']}")
    if document["conditions"]:
        console.print()
        lines = [_condition_line(each) for each in document["conditions"]]
        print_block(console, "conditions", lines)
    if document["removal"] is not None:
        console.print()
        console.print(plain_text("removal"))
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
    print_sentence(console, document["answer"])
    facts = [f"{counted(document['nodes'], 'node')} counted"]
    cheapest = document["cheapest"]
    if cheapest is not None:
        facts.append(
            f"cheapest now: {offering_text(cheapest)} at {money_text(cheapest['price'])} per hour"
        )
    if "spotShare" in document:
        facts.append(f"spot share {document['spotShare']}")
    virtual: JsonMapping = document["launches"].get("virtualPods", {})
    facts += [
        f"{count} virtual pod(s) of {source} need new nodes" for source, count in virtual.items()
    ]
    print_sentence(console, ", ".join(facts))
    ceilings: dict[str, JsonMapping] = {"limits": document["limits"]}
    ceilings |= {name: quota["resources"] for name, quota in document["quotas"].items()}
    for name, resources in ceilings.items():
        if resources:
            console.print()
            print_block(
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
            [f"together with: {some_names(move['nodes'], _SHOWN_PODS)}"]
            if move["nodes"][1:]
            else []
        )
        lines += others
        lines += [
            f"to {name}: {some_names(pods, _SHOWN_PODS)}"
            for name, pods in move["existingNodes"].items()
        ]
        for claim in move["nodeClaims"]:
            cheapest = claim["cheapest"]
            lines.append(
                f"to a new {offering_text(cheapest)} at {full_price_text(cheapest)}:"
                f" {some_names(claim['pods'], _SHOWN_PODS)}"
            )
    budget: Mapping[str, int] | None = answer["budget"]
    if budget is not None and answer["verdict"] in {"chosen", "later"}:
        lines.append(f"budget left: {counted(budget['remaining'], 'node')}")
    return lines


def _verdict(pool: JsonMapping, *, is_chosen: bool) -> tuple[str, ...]:
    """Return the lines of a NodePool's result for a pod: an offering, or the required change."""
    if pool["fits"]:
        verdict = "takes it" if is_chosen else "could take it as the only NodePool"
        offer = f"{offering_text(pool['cheapest'])} at {full_price_text(pool['cheapest'])}"
        return (f"{verdict}: {offer}",)
    lines = [f"{pool['constraint']}: {pool['detail']}"]
    if pool["closest"]:
        lines.append(f"closest: {pool['closest']}")
    return (*lines, f"would help: {pool['remedy']}")
