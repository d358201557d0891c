"""Explains rejections by limits of NodePools, quotas and the node limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from karpenter_core.api.labels import NODES, PRICE_PER_HOUR
from karpenter_core.api.quantities import LARGEST_AMOUNT, format_amount
from karpenter_core.scheduling.compiled.claim_restrictions import (
    restricted_to_limits,
    restricted_to_quotas,
)
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.explain.options import ClaimOption
from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection

if TYPE_CHECKING:
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.explain.options import NarrowingResult, PoolExplanation

__all__ = ["narrow_by_limits"]


def narrow_by_limits(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the rows that fit within the rest of the pool's limits."""
    pool, remaining, catalogue = explanation.pool, explanation.remaining, explanation.pool.catalogue
    nodes_left = explanation.engine.nodes_left
    if nodes_left is not None and nodes_left <= 0:
        return PoolRejection(
            constraint=PoolConstraint.LIMIT,
            detail="the cluster's nodes and those of this plan reach the limit of nodes in the cluster "
            "(--max-nodes-total)",
            closest=explanation.cheapest(options),
            remedy="raise --max-nodes-total",
        )
    if remaining.get(NODES, 1) <= 0:
        return PoolRejection(
            constraint=PoolConstraint.LIMIT,
            detail=f"node limits have been exhausted for nodepool ({NODES}: "
            f"{pool.limits[NODES]} allowed)",
            closest=explanation.cheapest(options),
            remedy=f"raise spec.limits.{NODES} of the nodepool",
        )
    if not pool.limited or pool.has_ample_limits(remaining, 1):
        return options
    narrowed = (_within_limits(explanation, option) for option in options)
    options_left = tuple(option for option in narrowed if option is not None)
    if options_left:
        if explanation.union(options_left) != explanation.union(options):
            explanation.remarks.append("limits of the nodepool rule out other instance types")
        return options_left
    rows, requirements = (
        np.flatnonzero(catalogue.mask(explanation.union(options))),
        options[0].requirements,
    )
    counted = {name: pool.counted_against_limits(name, requirements)[rows] for name in pool.limited}
    limits = {name: line.limit for name, line in pool.quota_lines.items()} | dict(pool.limits)
    over = np.stack(
        [
            np.where(
                (counted[name] > 0) | (name not in pool.quota_lines),
                counted[name] - remaining[name],
                0,
            )
            for name in pool.limited
        ]
    )
    share = np.maximum(over, 0) / np.maximum(np.array([[limits[name]] for name in pool.limited]), 1)
    best = int(share.sum(axis=0).argmin())
    short = {
        name: int(over[line, best])
        for line, name in enumerate(pool.limited)
        if over[line, best] > 0
    }
    closest = catalogue.names[int(rows[best])]
    unpriced = [
        name for name in short if counted[name][best] >= LARGEST_AMOUNT and _is_price(pool, name)
    ]
    shortages = [
        f"the price of {closest} is not known"
        if name in unpriced
        else pool.quota_lines[name].shortage(remaining[name])
        if name in pool.quota_lines
        else f"{name}: {format_amount(name, max(remaining[name], 0))} of "
        f"{format_amount(name, limits[name])} left"
        for name in short
    ]
    raised = [
        _raised(pool, name, limits[name] + amount)
        for name, amount in short.items()
        if name not in unpriced
        and not (name in pool.quota_lines and pool.quota_lines[name].is_refusal)
    ]
    return PoolRejection(
        constraint=PoolConstraint.LIMIT,
        detail=explanation.with_remarks(
            "all available instance types exceed limits for nodepool "
            f"({', '.join(dict.fromkeys(shortages))})"
        ),
        closest=closest,
        remedy=f"raise {', '.join(raised)} or more" if raised else "",
    )


def _within_limits(explanation: PoolExplanation, option: ClaimOption) -> ClaimOption | None:
    """Return what is left of an option within limits, or where no exhausted quota counts it."""
    signatures, remaining = explanation.compiled.signatures, explanation.remaining
    number = explanation.claim(option)
    for choice in (number, restricted_to_quotas(signatures, number, remaining)):
        limited = (
            NO_MATCH if choice == NO_MATCH else restricted_to_limits(signatures, choice, remaining)
        )
        if limited != NO_MATCH:
            claim = signatures.claim(limited)
            return ClaimOption(claim.requirements, claim.bits)
    return None


def _is_price(pool: CompiledPool, name: str) -> bool:
    line = pool.quota_lines.get(name)
    return (name if line is None else line.resource) == PRICE_PER_HOUR


def _raised(pool: CompiledPool, name: str, amount: int) -> str:
    """Return the field to raise, and to how much."""
    line = pool.quota_lines.get(name)
    if line is None:
        return f"spec.limits.{name} to {format_amount(name, amount)}"
    return (
        f"spec.limits.resources.{line.resource} of {line.quota.name} to "
        f"{format_amount(line.resource, amount)}"
    )
