"""Computes a lower bound of what any plan for the same pods costs.

At list prices, without fees. It is the higher of two bounds. The guidance LP treats pods as
divisible, but includes every resource, the shapes that each pod may use, and free capacity on
existing nodes. The other treats pods as whole, but only two resources (`whole_pods`); it pays off
from some hundred pods, and needs a problem in which no existing node could take any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.packing.guidance import solve_guidance
from karpenter_core.scheduling.packing.whole_pods import WholePodsProblem, whole_pods_steps
from karpenter_core.scheduling.portfolio.purchase_mix import (
    guidance_problem,
    list_pool_shapes,
    minimum_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from karpenter_core.scheduling.arrays import Columns
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.packing.guidance import Guidance
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes
    from karpenter_core.scheduling.portfolio.purchase_mix import PoolShapes

__all__ = ["CostBound", "find_cost_bound"]

_PODS_PER_ROUND: Final = 100
_MAX_ROUNDS: Final = 7
"""More rounds hardly help; with pods for fewer than two rounds, whole pods are not considered."""

_MAX_SIZES: Final = 64
_MAX_CONTENTS: Final = 1000
_ENTRIES_PER_STEP: Final = 500


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostBound:
    """A lower bound, and what is needed to find a closer one."""

    compiled: CompiledProblem
    demands: dict[int, int]
    """Pods by class."""
    pool_shapes: Sequence[PoolShapes]
    guidance: Guidance

    @property
    def cost_per_hour(self) -> float:
        """The bound for divisible pods."""
        return max(self.guidance.cost_bound, 0.0)

    def closer_steps(self, nodes: OpenNodes) -> Generator[int, None, float]:
        """Return the bound for whole pods, if it is higher; begins with the contents of `nodes`."""
        compiled = self.compiled
        rounds = min(sum(self.demands.values()) // _PODS_PER_ROUND, _MAX_ROUNDS)
        if rounds <= 1 or len(compiled.resources) == 1 or (compiled.node_free > 0).any():
            return self.cost_per_hour
        indices = np.array(sorted(self.demands))
        lines = self._scarcest(indices)
        class_requests = compiled.requests[lines][:, indices]
        of_class = [tuple(size) for size in class_requests.T.tolist()]
        number_of = {size: number for number, size in enumerate(sorted(set(of_class)))}
        if len(number_of) > _MAX_SIZES or not class_requests.any(axis=1).all():
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
        is_requested = sizes.any(axis=0)
        problem = WholePodsProblem(
            request=sizes[:, is_requested],
            count=count[is_requested],
            capacity=np.concatenate(
                [pool_shapes.shapes.capacity[lines] for pool_shapes in self.pool_shapes], axis=1
            ),
            price=np.concatenate([pool_shapes.shapes.price for pool_shapes in self.pool_shapes]),
            nodes=minimum_nodes(compiled, self.demands, surely=True),
        )
        yield 1
        contents = contents[is_requested, :: -(-nodes.count // _MAX_CONTENTS) or 1]
        closer = yield from whole_pods_steps(problem, contents, rounds=rounds)
        return max(self.cost_per_hour, closer)

    def _scarcest(self, indices: Columns) -> list[int]:
        """Return the two resources whose demand is worth most."""
        counts = np.array([self.demands[index] for index in indices.tolist()])
        demand = self.compiled.requests[:, indices] @ counts
        demand_value = self.guidance.unit_price * demand
        return sorted(np.lexsort((-demand, -demand_value))[:2].tolist())


def find_cost_bound(compiled: CompiledProblem, left: Mapping[int, int]) -> CostBound | None:
    """Bound the cost of all pods but those `left`, by class; None: not known.

    All pools count, whatever their weight; nodes that are there are used up first.
    """
    counts = {
        index: len(pod_class.members) - left.get(index, 0)
        for index, pod_class in enumerate(compiled.classes)
    }
    demands = {index: count for index, count in counts.items() if count}
    pools = [n for n, signature in enumerate(compiled.pool_signatures) if signature != NO_MATCH]
    if not demands or not all(compiled.pools[pool].catalogue.is_priced for pool in pools):
        return None
    all_pool_shapes = list_pool_shapes(compiled, pools, robust=False)
    if not all_pool_shapes or len(all_pool_shapes) < len(pools):
        return None
    there = np.maximum(compiled.node_free, 0).sum(axis=1)
    guidance = solve_guidance(guidance_problem(compiled, demands, all_pool_shapes, 0.0, there))
    if guidance is None:
        return None
    return CostBound(
        compiled=compiled, demands=demands, pool_shapes=all_pool_shapes, guidance=guidance
    )
