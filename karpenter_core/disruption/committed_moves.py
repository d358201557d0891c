"""Replaces a node by one that an unused commitment pays for, if cheaper.

A what-if of one node needs at most one claim, which lists every instance type that holds the pods,
whatever it costs. So the same what-if tells which nodes of a commitment could take its place.

What a commitment covers counts as saved nowhere, and its price counts in full here. So every such move
lowers the bill, and no node is replaced in turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    MoveRefusal,
    evaluate_move,
    price_limits,
)

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.method import DisruptionPass

__all__ = ["evaluate_single_move"]


def evaluate_single_move(
    disruption_pass: DisruptionPass, candidate: Candidate
) -> DisruptionMove | MoveRefusal:
    """Return the best move that removes one node, or why none is possible."""
    listed = evaluate_move(disruption_pass, (candidate,))
    if not disruption_pass.prices.has_unused_commitments:
        return listed
    if isinstance(listed, DisruptionMove) and not listed.replacements:
        return listed
    committed = _committed_move(disruption_pass, candidate)
    if committed is None:
        return listed
    if isinstance(listed, DisruptionMove) and listed.savings_per_hour >= committed.savings_per_hour:
        return listed
    return committed


def _committed_move(disruption_pass: DisruptionPass, candidate: Candidate) -> DisruptionMove | None:
    """Return the move to a node of a commitment that certainly costs less; None without one."""
    prices = disruption_pass.prices
    limits = price_limits(disruption_pass, (candidate,))
    if limits.below <= 0 or prices.missing_rates_message((candidate.price.currency,)):
        return None
    verdict = disruption_pass.simulation.evaluate((candidate,), max_claims=1)
    if not verdict.is_possible or not verdict.claims:
        return None
    if disruption_pass.simulation.unready_destination(verdict):
        return None
    (planned,) = verdict.claims
    if planned.min_values_relaxed:
        return None
    replacement = prices.limited_to_commitment(planned, below_price=limits.below)
    if replacement is None:
        return None
    return DisruptionMove(
        candidates=(candidate,),
        verdict=verdict,
        replacements=(replacement,),
        savings_per_hour=limits.price - replacement.cheapest.price_per_hour,
    )
