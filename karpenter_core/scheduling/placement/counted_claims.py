"""Decides on which planned claims a spread constraint counts pods.

A constraint counts only nodes that its owners may run on, for example on-demand ones. A claim with
pods that it selects may still become a spot node: whether they count is open, so owners are kept
out of every domain in which they might count. Upstream does not count such pods, which may be wrong
once the node exists. Here the claim is narrowed to the cheaper of both, and the owners are placed.
Nothing is decided as long as no owner is left over: a less narrow claim is easier to launch.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.claim_restrictions import decided_alternatives
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.open_nodes import NO_ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.placement.plan_state import PlanState

__all__ = ["decide_counted_claims"]


def decide_counted_claims(state: PlanState, waiting: Iterable[int]) -> None:
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
        state.counts.recount(group, placed, state.nodes)


def _open_groups(state: PlanState, waiting: Iterable[int]) -> Iterator[TopologyGroup]:
    """Yield the constraints that count some pods only possibly, by number."""
    groups = {
        group.index: group
        for index in waiting
        for topology in state.compiled.topologies[index]
        for of_axis in topology.zonal.values()
        for group in of_axis
        if group.kind is TopologyKind.SPREAD and group.node_filter is not None
    }
    for _, group in sorted(groups.items()):
        if state.counts.domain_counts(group).possible_counts is not None:
            yield group


def _decide(state: PlanState, group: TopologyGroup, column: int) -> None:
    """Narrow a claim to its cheapest signature; among equals to one that does not count."""
    signatures, number = state.compiled.signatures, state.nodes.signature.item(column)
    alternatives = group.node_filter.alternatives if group.node_filter else None
    if alternatives is None or signatures.claim(number).held:
        return
    possible = signatures.possible_labels(number, alternatives)
    choices = decided_alternatives(signatures, number, possible)
    prices = [_price(state, choice, column) for choice in choices]
    cheapest = min(prices, default=inf)
    if cheapest < inf:
        state.set_signature(column, choices[prices.index(cheapest)])


def _price(state: PlanState, number: int, column: int) -> float:
    """Return the price of a claim for its pods; infinite when none of its rows holds them."""
    claim, row = state.compiled.signatures.claim(number), state.nodes.row.item(column)
    if row != NO_ROW and not claim.bits >> row & 1:
        return inf
    fitting = claim.fitting(state.nodes.used[:, column])
    if not fitting.any() or claim.missing_min_values(fitting):
        return inf
    return float(claim.prices[fitting].min())
