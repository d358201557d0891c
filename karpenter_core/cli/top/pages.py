"""Lays out the page of one table line: node, pod, decision; and the notes."""

from __future__ import annotations

from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING

from karpenter_core.cli.tables import counted
from karpenter_core.cli.top.text import (
    Line,
    TextSpan,
    Tone,
    age_text,
    amount_text,
    clipped,
    price_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.cli.top.view import ClusterView, DecisionRow, NodeRow, PendingPod

__all__ = ["decision_lines", "node_lines", "note_lines", "pod_lines"]


def node_lines(row: NodeRow, view: ClusterView, *, width: int | None) -> tuple[Line, ...]:
    """Return everything about one node: its fields, its use, and its pods."""
    facts = (
        ("NodeClaim", row.node_claim or "none"),
        ("NodePool", row.pool or "none"),
        ("type", row.instance_type or "-"),
        ("zone", row.zone or "-"),
        ("capacity", row.capacity_type or "-"),
        ("age", age_text(row.age_seconds)),
        ("state", f"{row.state.value}{f' ({row.reason})' if row.reason else ''}"),
        *((("price", f"{price_text(row.price_per_hour)} {view.currency} per hour"),)
          if view.has_prices else ()),
        *(
            (name, f"{amount_text(name, use.requested)} of {amount_text(name, use.allocatable)}")
            for name, use in row.uses.items()
        ),
    )  # fmt: skip
    titles = max(len(title) for title, _ in facts)
    pods = sorted(row.pods, key=lambda pod: pod.key)
    return tuple(
        clipped(line, width)
        for line in (
            (TextSpan(row.name, Tone.HEADING),),
            *((TextSpan(f"{title:<{titles}}  {text}"),) for title, text in facts),
            (),
            (TextSpan(counted(len(pods), "pod"), Tone.HEADING),),
            *((TextSpan(f"{pod.key}  {pod.phase}"),) for pod in pods),
        )
    )


def pod_lines(pod: PendingPod, *, width: int) -> tuple[Line, ...]:
    """Return everything about a pod without a node: its state, its reason, and what each NodePool lacks."""
    texts = [f"state  {pod.state.value}", f"age    {age_text(pod.age_seconds)}", "", pod.message]
    for name, facts in pod.pools.items():
        texts += ("", f"NodePool {name}", *(f"{fact}: {said}" for fact, said in facts.items()))
    return _page(pod.key, texts, width)


def decision_lines(decision: DecisionRow, *, width: int) -> tuple[Line, ...]:
    """Return everything about a decision."""
    texts = [
        f"age    {age_text(decision.age_seconds)}",
        f"count  {decision.count}",
        "",
        decision.message,
        "",
        *decision.objects,
    ]
    return _page(f"{decision.title}  {decision.reason}", texts, width)


def note_lines(notes: Sequence[str], *, width: int) -> tuple[Line, ...]:
    """Return notes as lines, wrapped to the width."""
    wrapped = (wrap(note, width, initial_indent="- ", subsequent_indent="  ") for note in notes)
    return tuple((TextSpan(line),) for lines in wrapped for line in lines)


def _page(title: str, texts: Sequence[str], width: int) -> tuple[Line, ...]:
    """Return a heading and texts that are wrapped to the width."""
    wrapped = chain.from_iterable(wrap(text, width) or [""] for text in texts)
    return ((TextSpan(title, Tone.HEADING),), *((TextSpan(line),) for line in wrapped))
