"""Merges node contents onto fewer, larger nodes at about the same price.

Where prices are linear in size, many plans of one price differ only in how many nodes they have.
Fewer are better: each costs its fee, its addresses and its DaemonSets. Contents are merged as long
as the larger node costs hardly more than the smaller ones together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.packing.patterns import NodePattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.scheduling.packing.patterns import PatternProblem

__all__ = ["merge_patterns"]

_TRIFLE: Final = 1.005
"""Highest price of one larger node, relative to the nodes that it replaces."""

_EXTRA_SHARE: Final = 0.005
"""Highest extra cost of all merges together, relative to the total price."""

_MAX_PAIRS: Final = 400
_MAX_PATTERNS: Final = 64
"""Of more patterns than that only the cheapest nodes are tried in pairs."""


def merge_patterns(
    problem: PatternProblem, patterns: Iterable[NodePattern]
) -> tuple[NodePattern, ...]:
    """Merge contents: the same pods on fewer nodes, for about half a percent more at most."""
    merger = _PatternMerger(problem)
    multiples = [part for pattern in patterns for part in merger.with_itself(pattern)]
    return tuple(merger.in_pairs(multiples))


@final
@dataclass(frozen=True, slots=True)
class _PatternMerger:
    problem: PatternProblem

    def with_itself(self, pattern: NodePattern) -> list[NodePattern]:
        """Put several nodes of one pattern on one."""
        parts: list[NodePattern] = []
        remaining = pattern
        while remaining.nodes > 1:
            shape, times = self._largest(remaining)
            if times < 2:  # noqa: PLR2004
                break
            whole, rest = divmod(remaining.nodes, times)
            parts.append(NodePattern(shape=shape, content=remaining.content * times, nodes=whole))
            remaining = replace(remaining, nodes=rest)
        return [*parts, remaining] if remaining.nodes else parts

    def _largest(self, pattern: NodePattern) -> tuple[int, int]:
        """Return a shape that holds a content most often at its price, and how often that is."""
        need = self.problem.request @ pattern.content
        is_requested = need > 0
        times = np.minimum.reduce(
            self.problem.capacity[is_requested] // need[is_requested, None], axis=0
        )
        np.minimum(times, pattern.nodes, out=times)
        each = self.problem.price / np.maximum(times, 1)
        good = np.flatnonzero((times >= 1) & (each <= self.problem.price[pattern.shape] * _TRIFLE))
        best = int(good[np.lexsort((each[good], -times[good]))[0]])
        return best, int(times[best])

    def in_pairs(self, patterns: Sequence[NodePattern]) -> list[NodePattern]:
        """Put nodes of different patterns together, those that save most first."""
        price = self.problem.price
        ranked = sorted(patterns, key=lambda p: float(price[p.shape]))
        parts, rest = ranked[:_MAX_PATTERNS], ranked[_MAX_PATTERNS:]
        extra = _EXTRA_SHARE * fsum(float(price[part.shape]) * part.nodes for part in ranked)
        for _ in range(_MAX_PAIRS):
            pair = self._pair(parts)
            if pair is None:
                break
            first, second, shape = pair
            dearer = float(price[shape] - price[parts[first].shape] - price[parts[second].shape])
            nodes = min(parts[first].nodes, parts[second].nodes)
            if dearer > 0:
                nodes = min(nodes, int(extra / dearer))
                extra -= dearer * nodes
            if not nodes:
                break
            content = parts[first].content + parts[second].content
            remaining = [
                replace(parts[number], nodes=parts[number].nodes - nodes)
                for number in (first, second)
                if parts[number].nodes > nodes
            ]
            kept = [part for number, part in enumerate(parts) if number not in (first, second)]
            parts = [*kept, *remaining, NodePattern(shape=shape, content=content, nodes=nodes)]
        return [*parts, *rest]

    def _pair(self, parts: Sequence[NodePattern]) -> tuple[int, int, int] | None:
        """Return the two that cost least together, of what they cost now, and on which shape."""
        if len(parts) < 2:  # noqa: PLR2004
            return None
        request, capacity, price = self.problem.request, self.problem.capacity, self.problem.price
        needs = np.stack([request @ part.content for part in parts], axis=1)
        now = price[[part.shape for part in parts]]
        both = needs[:, :, None] + needs[:, None, :]
        holds = np.logical_and.reduce(both[:, :, :, None] <= capacity[:, None, None, :])
        cost = np.where(holds, price, np.inf)
        shapes = cost.argmin(axis=2)
        best = np.take_along_axis(cost, shapes[:, :, None], axis=2)[:, :, 0]
        before = now[:, None] + now[None, :]
        free = np.where(best > 0, np.inf, 0.0)  # nodes that cost nothing: the fewer the better
        ratio = np.divide(best, before, out=free, where=before > 0)
        ratio[np.tril_indices(len(parts))] = np.inf
        first, second = divmod(int(ratio.argmin()), len(parts))
        if not np.isfinite(ratio[first, second]):
            return None
        return first, second, int(shapes[first, second])
