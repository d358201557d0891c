"""Places pods that mix freely: on open nodes, then on whole new nodes.

The pods of a *group* have the same node constraints and no topology rule separates them, so any of
them may share a node with any other. They come last; for pods that do not fit on open nodes whole
patterns are bought, which end within a few percent of the optimum where class after class ends ten
percent above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from karpenter_core.scheduling.packing.merging import merge_patterns
from karpenter_core.scheduling.packing.pair_search import search_pairs_steps
from karpenter_core.scheduling.packing.patterns import PatternProblem, pattern_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.compiled.signatures import DomainPin
    from karpenter_core.scheduling.placement.plan_profile import ClaimOpening
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.pod_placer import PodPlacer

__all__ = ["free_groups", "place_free_group_steps"]

_FEW_PODS: Final = 3
"""Up to so many pods, placing one by one is as good as together."""

_MIN_UNITS: Final = 100
_MAX_UNITS: Final = 4_000
"""Work units for patterns, one for each pod between these; half of them do for thousands of pods."""


def free_groups(compiled: CompiledProblem, order: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of classes that mix freely, each in the order given."""
    groups: dict[tuple[bool, int, tuple[int, ...]], list[int]] = {}
    for index in order:
        pod_class, topology = compiled.classes[index], compiled.topologies[index]
        if pod_class.blocked is not None or pod_class.shared_volumes:
            continue
        if (
            any(relaxation_step.zonal or relaxation_step.host for relaxation_step in topology)
            or pod_class.relaxation_steps[0].node_constraints.host_ports
        ):
            continue
        constraints = pod_class.relaxation_steps[0].node_constraints
        key = (pod_class.shape.gives_way, constraints.index, topology[0].counted_axes)
        groups.setdefault(key, []).append(index)
    return tuple(map(tuple, groups.values()))


def place_free_group_steps(placer: PodPlacer, group: Sequence[int]) -> Generator[int, None, None]:
    """Place a group; subtracts the placed pods from the waiting ones of its classes."""
    state = placer.state
    compiled, counts = state.compiled, state.waiting
    for index in group:
        if counts[index]:
            counts[index] -= state.fill(compiled.placement_task(index, 0), int(counts[index]))
            yield 1
    waiting = [index for index in group if counts[index]]
    waiting_pods = int(counts[waiting].sum()) if waiting else 0
    if waiting_pods <= _FEW_PODS:
        return
    tasks = (
        compiled.placement_task(index, 0) for index in waiting
    )  # the first may be too large for all
    task, base_opening = next(
        ((t, o) for t in tasks if (o := _possible_opening(placer, t))), (None, None)
    )
    if task is None or base_opening is None:
        return
    claim = compiled.signatures.claim(base_opening.asked)
    sizes: dict[bytes, list[int]] = {}
    for index in waiting:
        sizes.setdefault(compiled.requests[:, index].tobytes(), []).append(index)
    of_size = tuple(sizes.values())
    problem = PatternProblem(
        request=compiled.requests[:, [members[0] for members in of_size]],
        count=np.array([counts[members].sum() for members in of_size]),
        capacity=claim.instance_shapes.capacity,
        price=claim.instance_shapes.robust_price + state.fee_per_hour,
    )
    bought = yield from pattern_steps(
        problem, budget=max(_MIN_UNITS, min(waiting_pods, _MAX_UNITS))
    )
    patterns = () if bought is None else merge_patterns(problem, bought.patterns)
    yield 10
    patterns = yield from search_pairs_steps(problem, patterns)
    nodes = sum(pattern.nodes for pattern in patterns)
    if not compiled.pools[base_opening.pool].has_ample_limits(
        state.remaining[base_opening.pool], nodes
    ):
        return
    for pattern in patterns:
        place = int(claim.instance_shapes.row[pattern.shape])
        columns = _open(placer, base_opening, state.pins(task), place, pattern.nodes)
        for size in np.flatnonzero(pattern.content).tolist():
            _distribute(placer.state, of_size[size], columns, int(pattern.content[size]))
        yield 1


def _distribute(state: PlanState, members: Sequence[int], columns: list[int], pods: int) -> None:
    """Put pods of one size, of whichever class, on each of some nodes."""
    due = np.full(len(columns), pods, dtype=np.int64)
    for index in members:
        total = np.cumsum(due)
        given = np.diff(np.minimum(total, state.waiting[index]), prepend=0)
        held = np.flatnonzero(given)
        if len(held):
            task = state.compiled.placement_task(index, 0)
            joined = state.node_fit.joined_signatures(task.node_constraints, state.pins(task))
            chosen = [columns[place] for place in held.tolist()]
            state.place_on(task, chosen, given[held].tolist(), joined)
            state.waiting[index] -= given.sum()
            due -= given


def _possible_opening(placer: PodPlacer, task: PlacementTask) -> ClaimOpening | None:
    """Return the opening for a class, if any number of it is possible."""
    opening = placer.opener.find(task, 1, placer.state.pins(task), 1)
    if (
        opening is None
        or opening.reservations
        or placer.state.compiled.pools[opening.pool].reservations
    ):
        return None
    return None if placer.state.compiled.signatures.claim(opening.asked).has_min_values else opening


def _open(
    placer: PodPlacer,
    base_opening: ClaimOpening,
    pins: tuple[DomainPin, ...],
    place: int,
    nodes: int,
) -> list[int]:
    """Open claims that are measured by another of their rows, where that is cheapest."""
    compiled = placer.state.compiled
    claim = compiled.signatures.claim(base_opening.asked)
    row = int(claim.rows[place])
    signature = compiled.signatures.pinned_to_cheapest(base_opening.asked, pins, row)
    opening = replace(
        base_opening,
        count=nodes,
        signature=signature,
        limit=claim.free[:, place],
        row=row,
        charge=compiled.pools[base_opening.pool].largest,
    )
    return placer.opener.open_empty(opening)
