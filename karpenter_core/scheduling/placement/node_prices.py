"""Computes a pod's lowest node price, ignoring limits and reservations."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.signatures import NO_MATCH

if TYPE_CHECKING:
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.compiled.signatures import DomainPin

__all__ = ["lowest_node_price"]


def lowest_node_price(
    compiled: CompiledProblem, task: PlacementTask, pins: tuple[DomainPin, ...] = ()
) -> float:
    """Return the price per hour of the cheapest node for a pod where pins allow; infinite: none."""
    signatures, lowest = compiled.signatures, inf
    for signature in compiled.pool_signatures:
        if signature == NO_MATCH:
            continue
        joined = signatures.join(signature, task.node_constraints, pins)
        if joined == NO_MATCH:
            continue
        claim = signatures.claim(joined)
        prices = claim.prices[claim.fitting(task.request)]
        if len(prices):
            lowest = min(lowest, float(prices[0]))
    return lowest
