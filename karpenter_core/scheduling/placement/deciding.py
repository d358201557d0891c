"""Planned claims on which a spread constraint may count pods or not: decided when pods wait for that.

A constraint counts only nodes that its owners may run on, say on demand. A claim with pods that it
selects may still become a spot machine: whether they count is open, so that owners are kept out of
every domain in which they could. Upstream takes such pods for not counted, which may be wrong once
the machine is there. Here the claim is narrowed to the cheaper of both, and the owners go on.

Nothing is decided as long as nobody is left over: a claim that may be more is easier to launch.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.topology import Kind
from karpenter_core.scheduling.placement.columns import NO_ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from karpenter_core.scheduling.compiled.topology import Group
    from karpenter_core.scheduling.placement.plan_state import PlanState

__all__ = ["decide_counted"]


def decide_counted(state: PlanState, waiting: Iterable[int]) -> None:
    """Decide for the spread constraints of classes that wait which claims they count."""
    for group in _open_groups(state, waiting):
        placed = [
            pair
            for index, columns, counts in state.nodes.log
            if group in state.compiled.classes[index].counted
            for pair in zip(columns, counts, strict=True)
        ]
        planned = {column for column, _ in placed if column >= state.nodes.existing}
        for column in sorted(planned):
            if state.counts.is_undecided(group, column, state.nodes):
                _decide(state, group, column)
        state.counts.count_anew(group, placed, state.nodes)


def _open_groups(state: PlanState, waiting: Iterable[int]) -> Iterator[Group]:
    """Yield the constraints that are in doubt about some pods, by number."""
    groups = {
        group.index: group
        for index in waiting
        for ties in state.compiled.ties[index]
        for of_axis in ties.zonal.values()
        for group in of_axis
        if group.kind is Kind.SPREAD and group.node_filter is not None
    }
    for _, group in sorted(groups.items()):
        if state.counts.tally(group).perhaps is not None:
            yield group


def _decide(state: PlanState, group: Group, column: int) -> None:
    """Narrow a claim to what it costs least to be; of equals to what is not counted."""
    signatures, number = state.compiled.signatures, state.nodes.signature.item(column)
    alternatives = group.node_filter.alternatives if group.node_filter else None
    if alternatives is None or signatures.claim(number).held:
        return
    choices = signatures.decided(number, alternatives)
    prices = [_price(state, choice, column) for choice in choices]
    cheapest = min(prices, default=inf)
    if cheapest < inf:
        state.turn(column, choices[prices.index(cheapest)])


def _price(state: PlanState, number: int, column: int) -> float:
    """Return what a claim costs that holds what is there; infinite when it cannot."""
    claim, row = state.compiled.signatures.claim(number), state.nodes.row.item(column)
    if row != NO_ROW and not claim.bits >> row & 1:
        return inf
    fitting = claim.fitting(state.nodes.used[:, column])
    if not fitting.any() or claim.min_values_missing(fitting):
        return inf
    return float(claim.prices[fitting].min())
