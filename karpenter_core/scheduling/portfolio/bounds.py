"""What no plan for the same pods can be cheaper than, at list prices, fees not counted.

Two bounds, of which the higher counts. The guidance LP takes pods for divisible, but knows every
resource, which machines serve which pods, and what there is room for already. The other takes pods
as whole, but looks at two resources only (`whole_pods`); it is worth its time for some hundred pods
and more, and known only where nothing is there yet that could take any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.packing.guidance import guide
from karpenter_core.scheduling.packing.whole_pods import WholePodsProblem, whole_pods_steps
from karpenter_core.scheduling.portfolio.mix import least_nodes, list_offers, stated

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from karpenter_core.scheduling.arrays import Columns
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.packing.guidance import Guidance
    from karpenter_core.scheduling.placement.columns import OpenNodes
    from karpenter_core.scheduling.placement.engine import Engine
    from karpenter_core.scheduling.portfolio.mix import Offer

__all__ = ["Bound", "bound_of"]

_PODS_PER_ROUND: Final = 100
_MOST_ROUNDS: Final = 7
"""More rounds hardly help; with fewer pods than two rounds' whole pods are not looked at."""

_MOST_SIZES: Final = 64
_MOST_CONTENTS: Final = 1000
_ENTRIES_PER_STEP: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bound:
    """A lower bound, and what is needed to find a closer one."""

    compiled: CompiledProblem
    demands: dict[int, int]
    """Pods by class."""
    offers: Sequence[Offer]
    guidance: Guidance

    @property
    def cost_per_hour(self) -> float:
        """What divisible pods must cost."""
        return max(self.guidance.cost_bound, 0.0)

    def closer_steps(self, nodes: OpenNodes) -> Generator[int, None, float]:
        """Return what whole pods must cost, if that is more; begins with what is on `nodes`."""
        compiled = self.compiled
        rounds = min(sum(self.demands.values()) // _PODS_PER_ROUND, _MOST_ROUNDS)
        if rounds <= 1 or len(compiled.resources) == 1 or (compiled.node_free > 0).any():
            return self.cost_per_hour
        indices = np.array(sorted(self.demands))
        lines = self._scarcest(indices)
        asked = compiled.requests[lines][:, indices]
        of_class = [tuple(size) for size in asked.T.tolist()]
        number_of = {size: number for number, size in enumerate(sorted(set(of_class)))}
        if len(number_of) > _MOST_SIZES or not asked.any(axis=1).all():
            return self.cost_per_hour
        sizes = np.array(list(number_of)).T
        size_of = np.array([number_of[size] for size in of_class])
        counts = np.array([self.demands[index] for index in indices.tolist()])
        count = np.bincount(size_of, weights=counts).astype(np.int64)
        number = np.full(len(compiled.classes), -1, dtype=np.intp)
        number[indices] = size_of
        contents = np.zeros((len(count), nodes.count))
        for done, (index, columns, placed) in enumerate(nodes.log, start=1):
            if number[index] >= 0:
                np.add.at(contents[number[index]], columns, placed)
            if done % _ENTRIES_PER_STEP == 0:
                yield 2
        kept = sizes.any(axis=0)
        problem = WholePodsProblem(
            request=sizes[:, kept],
            count=count[kept],
            room=np.concatenate([offer.shapes.room[lines] for offer in self.offers], axis=1),
            price=np.concatenate([offer.shapes.price for offer in self.offers]),
            nodes=least_nodes(compiled, self.demands, surely=True),
        )
        yield 1
        contents = contents[kept, :: -(-nodes.count // _MOST_CONTENTS) or 1]
        closer = yield from whole_pods_steps(problem, contents, rounds=rounds)
        return max(self.cost_per_hour, closer)

    def _scarcest(self, indices: Columns) -> list[int]:
        """Return the two resources whose demand is worth most."""
        counts = np.array([self.demands[index] for index in indices.tolist()])
        demand = self.compiled.requests[:, indices] @ counts
        worth = self.guidance.unit_price * demand
        return sorted(np.lexsort((-demand, -worth))[:2].tolist())


def bound_of(compiled: CompiledProblem, first_fit: Engine) -> Bound | None:
    """Bound the cost of the pods that first-fit places; None: not known.

    All pools count, whatever their weight; nodes that are there are used up first.
    """
    left = first_fit.left
    counts = {
        index: len(pod_class.members) - left.get(index, 0)
        for index, pod_class in enumerate(compiled.classes)
    }
    demands = {index: count for index, count in counts.items() if count}
    pools = [n for n, signature in enumerate(compiled.pool_signatures) if signature != NO_MATCH]
    if not demands or not all(compiled.pools[pool].catalogue.is_priced for pool in pools):
        return None
    offers = list_offers(compiled, pools, robust=False)
    if not offers or len(offers) < len(pools):
        return None
    there = np.maximum(compiled.node_free, 0).sum(axis=1)
    guidance = guide(stated(compiled, demands, offers, 0.0, there))
    if guidance is None:
        return None
    return Bound(compiled=compiled, demands=demands, offers=offers, guidance=guidance)
