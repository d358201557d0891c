"""Places a class whose constraints count domains, such as zones.

The groups set a cap for every domain. If placing the class changes no cap, it is placed as a whole.
If it does, the domains are filled in the order of their levels: each next pod goes to the domain
with the fewest, and where every domain can get new nodes all levels are filled at once. Existing
nodes come first, in any domain that may take one more pod.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import DomainPin
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.topology_counts import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from karpenter_core.scheduling.arrays import Columns
    from karpenter_core.scheduling.compiled.problem import PlacementTask
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.placement.plan_state import PlanState
    from karpenter_core.scheduling.placement.pod_placer import PodPlacer
    from karpenter_core.scheduling.placement.topology_counts import DomainCaps

__all__ = ["fill_levels", "spread_steps"]


_ONE_BY_ONE: Final = 6
"""So few units are shared out one by one faster than level by level."""

_ANY: Final = -1
"""In place of a domain: all that are allowed."""


def spread_steps(placer: PodPlacer, task: PlacementTask, left: int) -> Generator[int, None, int]:
    """Place up to `left` pods of a class with zonal constraints; return how many."""
    placed = 0
    full: set[tuple[int, ...]] = set()
    while placed < left:
        placed += yield from _existing_steps(placer, task, left - placed)
        caps = {
            axis: placer.state.counts.domain_caps(task.topology, axis)
            for axis in task.topology.zonal
        }
        if placed == left or not all(of_axis.domains for of_axis in caps.values()):
            break
        tried = len(full)
        growing = [axis for axis, of_axis in caps.items() if of_axis.growing]
        if not growing:
            pins = placer.state.pins(
                task, tuple(_pin(placer, task, axis, caps[axis]) for axis in caps)
            )
            placed += yield from placer.place_steps(task, left - placed, pins)
            break
        is_level = not placer.state.profile.uneven_domains
        if is_level and len(growing) == 1 and not (full and caps[growing[0]].first):
            here = yield from _along_axis_steps(placer, task, left - placed, growing[0], caps, full)
        else:
            here = yield from _one_by_one(placer, task, left - placed, growing, caps, full)
        if not here and len(full) == tried:
            break
        placed += here
    return placed


def _existing_steps(
    placer: PodPlacer, task: PlacementTask, remaining: int
) -> Generator[int, None, int]:
    """Put pods on nodes that are there, each on the first that takes it; return how many.

    On each as many as its domains take just then.
    """
    nodes, signatures = placer.state.nodes, placer.state.compiled.signatures
    if not nodes.existing:
        return 0
    host = placer.state.counts.host_caps(task.topology, nodes.count)
    if host.first:
        return 0
    pins = placer.state.pins(task)
    joined = placer.state.node_fit.joined_signatures(task.node_constraints, pins)
    columns, fit_counts = placer.state.node_fit.existing_fitting(task, joined, host)
    if not len(columns):
        return 0
    domains: dict[int, Columns] = {}
    numbers: list[int] = nodes.signature[columns].tolist()
    for axis in task.topology.zonal:
        domain_of = {number: signatures.domain(axis, number) for number in set(numbers)}
        domains[axis] = np.array([max(domain_of[number], -1) for number in numbers], dtype=np.intp)
    placed = 0
    while placed < remaining:
        most = fit_counts
        for axis, domain in domains.items():
            caps = placer.state.counts.domain_caps(task.topology, axis).caps
            most = np.minimum(most, np.array([*caps, 0])[domain])  # none where there is no domain
        first = int((most > 0).argmax())
        count = min(remaining - placed, int(most[first]))
        if count <= 0:
            break
        placer.state.place_on(task, [int(columns[first])], [count], joined)
        fit_counts[first] -= count
        placed += count
        yield 1
        if task.pod_class.shared_volumes:
            break  # that a volume is attached now may be room for others, or take it
    return placed


def _pin(placer: PodPlacer, task: PlacementTask, axis: int, caps: DomainCaps) -> DomainPin:
    return DomainPin(axis, placer.state.tried_domains(task, axis, caps.domains))


def _along_axis_steps(
    placer: PodPlacer,
    task: PlacementTask,
    remaining: int,
    axis: int,
    caps: dict[int, DomainCaps],
    full: set[tuple[int, ...]],
) -> Generator[int, None, int]:
    """Fill the domains of the one axis whose caps change; return how many pods went there."""
    fixed = tuple(_pin(placer, task, other, caps[other]) for other in caps if other != axis)
    here = caps[axis]
    if here.first or _stays_open(placer.state, here):
        # The first pod decides the domain of all others: choose where nodes are cheapest.
        pins = placer.state.pins(task, (_pin(placer, task, axis, here), *fixed))
        return (yield from placer.place_steps(task, 1, pins))
    domains = [domain for domain in here.domains if (domain,) not in full]
    if not domains:
        return 0
    prices = _prices(placer, task, axis, domains, fixed)
    domains.sort(key=lambda domain: (prices[domain], domain))
    levels = _levels(placer.state, axis, here.growing).copy()  # as it is before any are put there
    tops = [here.caps[d] for d in domains]
    at_once = sum(tops) < remaining and _is_endless(
        placer, task, remaining, axis, here, domains, fixed
    )
    if at_once:
        tops = [NO_CAP] * len(domains)
    quotas = fill_levels([levels[d] for d in domains], tops, remaining)
    start, total = len(placer.state.nodes.log), 0
    ends: list[int] = []
    for _, domain, quota in sorted(
        (levels[d], d, quota) for d, quota in zip(domains, quotas, strict=True)
    ):
        ends.append(domain)
        if quota:
            pins = placer.state.pins(task, (DomainPin(axis, (domain,)), *fixed))
            done = yield from placer.place_steps(task, quota, pins)
            total += done
            if done < quota:
                full.add((domain,))
                if at_once:
                    break
    if at_once:
        _interleave(placer.state, task.index, axis, levels, start)
    return total


def _prices(
    placer: PodPlacer,
    task: PlacementTask,
    axis: int,
    domains: Sequence[int],
    fixed: tuple[DomainPin, ...],
) -> dict[int, float]:
    """Return what one more pod costs in each domain, for the choice among those it may be in."""
    state, profile = placer.state, placer.state.profile
    if len(domains) == 1 or not profile.cheapest_domains:
        return dict.fromkeys(domains, 0.0)
    caps = state.counts.host_caps(task.topology, state.nodes.count)
    prices: dict[int, float] = {}
    for domain in domains:
        pins = state.pins(task, (DomainPin(axis, (domain,)), *fixed))
        if profile.uneven_domains:
            joined = state.node_fit.joined_signatures(task.node_constraints, pins)
            if state.node_fit.first_fitting(task, 1, joined, caps)[0]:
                prices[domain] = 0.0
                continue
        prices[domain] = state.node_price(task, pins)
    return prices


def _stays_open(state: PlanState, caps: DomainCaps) -> bool:
    """Whether a pod need not be put in one domain for the sake of those that come after it."""
    apart = all(group.kind is not TopologyKind.SPREAD for group in caps.growing)
    return apart and (caps.first or state.profile.late)


def _levels(state: PlanState, axis: int, growing: Sequence[TopologyGroup]) -> list[int]:
    """Return how full each domain is for the first spread constraint (or nothing is)."""
    for group in growing:
        if group.kind is TopologyKind.SPREAD:
            return state.counts.domain_counts(group).counts
    return [0] * len(state.compiled.axes[axis].names)


def _is_endless(
    placer: PodPlacer,
    task: PlacementTask,
    remaining: int,
    axis: int,
    caps: DomainCaps,
    domains: Sequence[int],
    fixed: tuple[DomainPin, ...],
) -> bool:
    """Whether all domains that set the level can take any number of pods on new nodes.

    Then no domain ever holds the others down, and the final level of each is known beforehand.
    """
    if len(caps.growing) != 1 or caps.growing[0].kind is not TopologyKind.SPREAD:
        return False
    group = caps.growing[0]
    tally = placer.state.counts.domain_counts(group)
    eligible = {d for d, it in enumerate(tally.usable(task.topology.allowed[axis])) if it}
    if not eligible <= set(domains) or len(eligible) < group.min_domains:
        return False
    if tally.possible_counts is not None:
        return False
    return all(
        placer.surely_opens(
            task, remaining, placer.state.pins(task, (DomainPin(axis, (domain,)), *fixed))
        )
        for domain in domains
    )


def _one_by_one(
    placer: PodPlacer,
    task: PlacementTask,
    remaining: int,
    growing: Sequence[int],
    caps: dict[int, DomainCaps],
    full: set[tuple[int, ...]],
) -> Generator[int, None, int]:
    """Put one pod in the emptiest combination of domains that takes one; return 1 or 0.

    Where no level is to be kept, all domains are one choice: the pod goes where there is room, or
    where nodes are cheapest.
    """
    del remaining
    is_open = {axis for axis in growing if _stays_open(placer.state, caps[axis])}
    fixed = tuple(_pin(placer, task, a, caps[a]) for a in caps if a not in growing or a in is_open)
    choices: list[list[int]] = []
    for axis in growing:
        if axis in is_open:
            choices.append([_ANY])
            continue
        levels = _levels(placer.state, axis, caps[axis].growing)
        prices = _prices(placer, task, axis, caps[axis].domains, fixed)
        if placer.state.profile.uneven_domains:
            levels = [0] * len(levels)
        choices.append(sorted(caps[axis].domains, key=lambda d: (levels[d], prices[d], d)))
    for combination in product(*choices):
        if combination in full:
            continue
        chosen = (
            DomainPin(a, (d,)) for a, d in zip(growing, combination, strict=True) if d != _ANY
        )
        pins = placer.state.pins(task, (*chosen, *fixed))
        if (yield from placer.place_steps(task, 1, pins)):
            return 1
        full.add(combination)
    return 0


def fill_levels(levels: Sequence[int], tops: Sequence[int], amount: int) -> list[int]:
    """Share an amount out so that each next unit goes where the level is lowest.

    `tops` are what each place takes at most; ties go to the earlier place.
    """
    shares = [0] * len(levels)
    remaining = min(amount, sum(tops))
    if remaining <= _ONE_BY_ONE:
        filled = list(levels)
        for _ in range(remaining):
            lowest = min([filled[n] for n, top in enumerate(tops) if shares[n] < top])
            place = next(n for n, top in enumerate(tops) if filled[n] == lowest and shares[n] < top)
            shares[place] += 1
            filled[place] += 1
        return shares
    while remaining:
        open_places = [n for n in range(len(levels)) if shares[n] < tops[n]]
        lowest = min(levels[n] + shares[n] for n in open_places)
        bottom = [n for n in open_places if levels[n] + shares[n] == lowest]
        above = [levels[n] for n in open_places if levels[n] > lowest]  # these have no share yet
        rise = min((*above, lowest + remaining)) - lowest
        rise = min(rise, *(tops[n] - shares[n] for n in bottom), max(remaining // len(bottom), 1))
        for n in bottom:
            step = min(rise, remaining)
            shares[n] += step
            remaining -= step
    return shares


def _interleave(state: PlanState, index: int, axis: int, levels: Sequence[int], start: int) -> None:
    """Write down what was placed domain by domain in the order of levels."""
    log, signatures = state.nodes.log, state.compiled.signatures
    entries = log[start:]
    columns = np.concatenate([np.repeat(where, counts) for _, where, counts in entries])
    domains = np.array(
        [signatures.domain(axis, int(state.nodes.signature[c])) for c in columns.tolist()],
        dtype=np.int64,
    )
    level = np.empty(len(columns), dtype=np.int64)
    for domain in sorted(set(domains.tolist())):
        those = np.flatnonzero(domains == domain)
        level[those] = levels[domain] + np.arange(len(those))
    order = np.lexsort((domains, level))
    log[start:] = [(index, columns[order].tolist(), [1] * len(columns))]
