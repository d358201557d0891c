"""Places a plan's pods again: in the same domains, on better nodes.

Every pod is placed in the order and in the domain of the finished plan, so that all constraints over
domains still hold; only its node within the domain is chosen again. Each node is opened with a
*content*: the number of pods of each size that are planned for it. A pod is placed on a node whose
content has its size, otherwise on any other node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.signatures import DomainPin

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.compiled.problem import PlacementTask
    from karpenter_core.scheduling.placement.plan_profile import RecordedEntry, RecordedPlacement
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.pod_placer import PodPlacer

__all__ = ["place_recorded_steps"]


def place_recorded_steps(
    placer: PodPlacer, recorded: RecordedPlacement, entry: RecordedEntry
) -> Generator[int, None, bool]:
    """Place the pods of an entry; return whether each found a place in its domain."""
    log = placer.state.nodes.log
    start = len(log)
    totals: dict[int, int] = {}
    for place, count in zip(entry.places, entry.counts, strict=True):
        totals[place] = totals.get(place, 0) + count
    columns_by_place: dict[int, list[int]] = {}
    for place, count in totals.items():
        before = len(log)
        if not (yield from _place_steps(placer, recorded, entry.index, place, count)):
            return False
        columns_by_place[place] = [
            column
            for _, columns, counts in log[before:]
            for column, times in zip(columns, counts, strict=True)
            for _ in range(times)
        ]
    if len(totals) > 1:
        _write_in_order(placer.state, entry, columns_by_place, start)
    return True


def _place_steps(
    placer: PodPlacer, recorded: RecordedPlacement, index: int, place: int, count: int
) -> Generator[int, None, bool]:
    state = placer.state
    pod_class = state.compiled.classes[index]
    placed = 0
    for step in range(len(pod_class.relaxation_steps)):
        task = state.compiled.placement_task(index, step)
        if place >= 0:
            joined = state.node_fit.joined_signatures(task.node_constraints, ())
            if joined.good[state.nodes.signature.item(place)]:
                state.place_on(task, [place], [count], joined)
                placed = count
                break
            continue
        pins = _pins(state, task, recorded.signatures[-1 - place])
        if pins is None:
            return False
        placed += yield from placer.place_steps(task, count - placed, pins)
        if placed == count:
            break
    state.waiting[index] -= placed
    return placed == count


def _pins(state: PlanState, task: PlacementTask, signature: int) -> tuple[DomainPin, ...] | None:
    """Return the pins to the domains of a signature; None: a domain that matters is not known."""
    pins: list[DomainPin] = []
    for axis in task.topology.zonal:
        domain = state.compiled.signatures.domain(axis, signature)
        if domain < 0:
            return None
        pins.append(DomainPin(axis, (domain,)))
    for axis in task.topology.counted_axes:
        domain = state.compiled.signatures.domain(axis, signature)
        if domain < 0:
            return None
        pins.append(DomainPin(axis, (domain,)))
    return tuple(pins)


def _write_in_order(
    state: PlanState, entry: RecordedEntry, columns_by_place: dict[int, list[int]], start: int
) -> None:
    """Write down what was placed domain by domain in the order of the record."""
    following = {place: iter(columns) for place, columns in columns_by_place.items()}
    columns = [
        next(following[place])
        for place, count in zip(entry.places, entry.counts, strict=True)
        for _ in range(count)
    ]
    state.nodes.log[start:] = [(entry.index, columns, [1] * len(columns))]
