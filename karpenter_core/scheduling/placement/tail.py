"""Pods that mix freely: fill what is open with them, then buy whole nodes with whole contents.

The pods of a *group* ask the same of a node and are kept apart by no topology rule, so any of them
may share a node with any other. They come last, and what finds no room on open nodes is bought as
patterns, which end within a few percent of the optimum where class after class ends ten above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from karpenter_core.scheduling.packing.merging import merged
from karpenter_core.scheduling.packing.patterns import PatternProblem, pattern_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from karpenter_core.scheduling.compiled.problem import CompiledProblem, Task
    from karpenter_core.scheduling.compiled.signatures import Pin
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.profile import Opening
    from karpenter_core.scheduling.placement.putting import PodPlacer

__all__ = ["free_groups", "tail_steps"]

_FEW_PODS: Final = 3
"""So few are placed one by one as well as together."""

_MOST_UNITS: Final = 4_000
"""Work units for patterns, one for each pod up to this; half of them do for thousands of pods."""


def free_groups(compiled: CompiledProblem, order: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of classes that mix freely, each in the order given."""
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for index in order:
        pod_class, ties = compiled.classes[index], compiled.ties[index]
        if pod_class.blocked is not None or pod_class.shared_volumes:
            continue
        if any(rung.zonal or rung.host for rung in ties) or pod_class.rungs[0].ask.host_ports:
            continue
        key = (pod_class.rungs[0].ask.index, ties[0].counted_axes)
        groups.setdefault(key, []).append(index)
    return tuple(map(tuple, groups.values()))


def tail_steps(placer: PodPlacer, group: Sequence[int]) -> Generator[int, None, None]:
    """Place a group; lowers what is waiting of its classes by what found a place."""
    state = placer.state
    compiled, counts = state.compiled, state.waiting
    for index in group:
        if counts[index]:
            counts[index] -= state.fill(compiled.task(index, 0), int(counts[index]))
            yield 1
    waiting = [index for index in group if counts[index]]
    left = int(counts[waiting].sum()) if waiting else 0
    if left <= _FEW_PODS:
        return
    tasks = (compiled.task(index, 0) for index in waiting)  # the first may be too large for all
    task, offer = next(((t, o) for t in tasks if (o := _offer(placer, t))), (None, None))
    if task is None or offer is None:
        return
    claim = compiled.signatures.claim(offer.asked)
    sizes: dict[bytes, list[int]] = {}
    for index in waiting:
        sizes.setdefault(compiled.requests[:, index].tobytes(), []).append(index)
    of_size = tuple(sizes.values())
    problem = PatternProblem(
        request=compiled.requests[:, [members[0] for members in of_size]],
        count=np.array([counts[members].sum() for members in of_size]),
        room=claim.shapes.room,
        price=claim.shapes.robust_price + compiled.options.node_fee_per_hour,
    )
    bought = yield from pattern_steps(problem, budget=min(left, _MOST_UNITS))
    patterns = () if bought is None else merged(problem, bought.patterns)
    yield 10
    nodes = sum(pattern.nodes for pattern in patterns)
    if not compiled.pools[offer.pool].is_ample(state.remaining[offer.pool], nodes):
        return
    for pattern in patterns:
        place = int(claim.shapes.row[pattern.shape])
        columns = _open(placer, offer, state.pins(task), place, pattern.nodes)
        for members, pods in zip(of_size, pattern.content.tolist(), strict=True):
            _deal(placer.state, members, columns, pods)
        yield 1


def _deal(state: PlanState, members: Sequence[int], columns: list[int], pods: int) -> None:
    """Put pods of one size, of whichever class, on each of some nodes."""
    due = np.full(len(columns), pods, dtype=np.int64)
    for index in members:
        total = np.cumsum(due)
        given = np.diff(np.minimum(total, state.waiting[index]), prepend=0)
        held = np.flatnonzero(given)
        if len(held):
            task = state.compiled.task(index, 0)
            becoming = state.rooms.becoming(task.ask, state.pins(task))
            chosen = [columns[place] for place in held.tolist()]
            state.put_on(task, chosen, given[held].tolist(), becoming)
            state.waiting[index] -= given.sum()
            due -= given


def _offer(placer: PodPlacer, task: Task) -> Opening | None:
    """Return what would be opened for a class, if any number of it can be had."""
    found = placer.opener.find(task, 1, placer.state.pins(task), 1)
    if found is None or found.reservations or placer.state.compiled.pools[found.pool].reservations:
        return None
    return None if placer.state.compiled.signatures.claim(found.asked).has_min_values else found


def _open(
    placer: PodPlacer, offer: Opening, pins: tuple[Pin, ...], place: int, nodes: int
) -> list[int]:
    """Open claims that are measured by another of their rows, where that is cheapest."""
    compiled = placer.state.compiled
    claim = compiled.signatures.claim(offer.asked)
    row = int(claim.rows[place])
    signature = compiled.signatures.settled(offer.asked, pins, row)
    opening = replace(
        offer,
        count=nodes,
        signature=signature,
        limit=claim.free[:, place],
        row=row,
        charge=compiled.pools[offer.pool].largest,
    )
    return placer.opener.open_empty(opening)
