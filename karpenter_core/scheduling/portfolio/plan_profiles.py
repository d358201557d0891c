"""Lists how plans are made: the order of pods, and which nodes are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.free_group_placement import free_groups
from karpenter_core.scheduling.placement.node_prices import lowest_node_price
from karpenter_core.scheduling.placement.plan_profile import PlanProfile, RowMeasure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from karpenter_core.scheduling.arrays import UnitValues
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.placement.topology_counts import ClassTopology
    from karpenter_core.scheduling.portfolio.purchase_mix import PurchaseMix

__all__ = [
    "FIRST_FIT",
    "LOW_FEE_SHARE",
    "constraint_tier",
    "grown_profile",
    "profiles_of_few",
    "smallest_first",
    "value_profiles",
]

FIRST_FIT: Final = PlanProfile(measure=RowMeasure.NONE, fullest_first=False, late=True)
"""The profile of the plan that is always made first."""

_FEWEST_FIRST: Final = replace(FIRST_FIT, fewest_first=True, uneven_domains=True, late=False)
"""The profile of the plan in Karpenter's order.

The claim with the fewest pods is filled first, and a new one is opened only if skews allow no other.
"""

_CAUTIOUS_SHARE: Final = 0.9
"""The share of the LP's mix that a third plan opens at once; it opens the rest as needed."""

LOW_FEE_SHARE: Final = 0.3
"""The share of the fee per node with which the nodes of most plans are chosen.

With all of it, fewer large nodes are chosen, whose cost above the optimum is often more than what is
saved: plans of that kind are made where the fees of all nodes are much beside their prices.
"""


def smallest_first(compiled: CompiledProblem) -> PlanProfile:
    """Return the profile that leaves few pods where limits do not suffice for all.

    Each pod placed counts the same, whatever it needs: so those that need least are placed first.
    """
    total = compiled.requests @ np.array([len(c.members) for c in compiled.classes])
    size = (compiled.requests / np.maximum(total, 1)[:, None]).max(axis=0)

    def key(index: int) -> tuple[bool, int, float, int]:
        shape = compiled.classes[index].shape
        return (shape.gives_way, -shape.priority, round(float(size[index]), 15), index)

    order = tuple(sorted(range(len(compiled.classes)), key=key))
    return replace(FIRST_FIT, order=order, late=False)


def value_profiles(
    compiled: CompiledProblem, mix: PurchaseMix | None, *, is_limited: bool
) -> Iterator[PlanProfile]:
    """Yield the value plans to make, from the one that promises most."""
    grown = grown_profile(compiled, mix)
    if is_limited:
        yield replace(grown, order=smallest_first(compiled).order, free_groups=())
    if mix is None:
        yield grown
        return
    shares = (1.0, 0.0, _CAUTIOUS_SHARE)
    if not (mix.requires_nodes and mix.chooses_zones):
        shares = (0.0, 1.0, _CAUTIOUS_SHARE)
    made: set[tuple[object, ...]] = set()
    for share in shares:
        openings = mix.openings(share) if share else ()
        what = tuple((one.pool, one.row, one.signature, one.count) for one in openings)
        if what not in made:  # a share of few nodes, rounded down, often equals another one
            made.add(what)
            yield replace(grown, mix=openings)


def grown_profile(compiled: CompiledProblem, mix: PurchaseMix | None) -> PlanProfile:
    """Return the profile of the value plan that opens a node when a class needs it."""
    weights = None if mix is None else mix.weights
    class_values = (
        np.zeros(len(compiled.classes)) if weights is None else weights @ compiled.requests
    )
    order = _constrained_first(compiled, class_values)
    return PlanProfile(
        measure=RowMeasure.PODS if mix is None else RowMeasure.DEMAND,
        fullest_first=True,
        fee_share=LOW_FEE_SHARE if mix is None else mix.fee_share,
        order=order,
        weights=weights,
        free_groups=free_groups(compiled, order),
    )


def profiles_of_few(
    compiled: CompiledProblem, mixes: Sequence[PurchaseMix | None]
) -> Iterator[PlanProfile]:
    """Yield further plans for few pods, by each of some mixes.

    They are: a value plan in first-fit's order, with its way of counting; one that measures nodes by
    the number of pods; one that fills claims as they were opened; and first-fit with constrained pods
    first. Four more prefer cheap domains. Two of these begin with the pods that need the dearest nodes,
    so that others use what is left on these: a value plan, and one that leaves claims open to all types.
    The last puts more pods in cheap domains than in others, as far as skews allow. Karpenter's order of
    claims needs no mix, and comes at the end.
    """
    has_domains = any(step.zonal for steps in compiled.topologies for step in steps)
    made: set[tuple[object, ...]] = set()
    for mix in mixes:
        usual = grown_profile(compiled, mix)
        if not usual.free_groups:
            made.add(_essence(usual))
        grown = replace(usual, free_groups=())
        cheapest = replace(grown, cheapest_domains=has_domains)
        by_price = replace(cheapest, order=_dearest_first(compiled))
        for profile in (
            replace(grown, order=(), late=True),
            replace(grown, measure=RowMeasure.PODS),
            replace(grown, fullest_first=False),
            replace(FIRST_FIT, order=grown.order),
            by_price,
            cheapest,
            replace(by_price, measure=RowMeasure.NONE, fullest_first=False),
            replace(cheapest, uneven_domains=has_domains),
        ):
            if _essence(profile) not in made:
                made.add(_essence(profile))
                yield profile
    yield _FEWEST_FIRST


def _essence(profile: PlanProfile) -> tuple[object, ...]:
    """Return what tells profiles of few pods apart: those of one mix, and those without one."""
    is_weighed = profile.fullest_first or profile.measure is not RowMeasure.NONE
    return (
        profile.measure,
        profile.fullest_first,
        profile.late,
        profile.order,
        profile.cheapest_domains,
        profile.uneven_domains,
        is_weighed and profile.weights is not None,
    )


def _dearest_first(compiled: CompiledProblem) -> tuple[int, ...]:
    """Order classes by the price of the cheapest node for them, the dearest first."""

    def key(index: int) -> tuple[bool, float]:
        pod_class, price = compiled.classes[index], 0.0
        if pod_class.blocked is None:
            price = lowest_node_price(compiled, compiled.placement_task(index, 0))
        return pod_class.shape.gives_way, -price

    return tuple(sorted(range(len(compiled.classes)), key=key))


def constraint_tier(relaxation_steps: Iterable[ClassTopology]) -> int:
    """Return when a class is placed: those that force nodes are 0, the free ones 3.

    Whatever is free can follow anything; what is bound, to domains or to nodes, cannot.
    """
    for topology in relaxation_steps:
        if any(
            g.kind is not TopologyKind.AFFINITY and g.index in topology.grows for g in topology.host
        ):
            return 0
        if topology.zonal:
            return 1
        if topology.host:
            return 2
    return 3


def _constrained_first(compiled: CompiledProblem, class_values: UnitValues) -> tuple[int, ...]:
    """Order classes by their tiers; among equals the costliest (`class_values`) first."""

    def key(index: int) -> tuple[bool, int, float]:
        return (
            compiled.classes[index].shape.gives_way,
            constraint_tier(compiled.topologies[index]),
            -round(float(class_values[index]), 15),
        )

    return tuple(sorted(range(len(compiled.classes)), key=key))
