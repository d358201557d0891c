"""Chooses the nodes to buy before any pod is placed.

The input of the guidance LP is the demand that first-fit could not place on existing nodes: the
shapes of every pool by zone, the share of zonal spreads in each zone, pods that only some shapes
may serve, and the minimum number of nodes for pods that avoid each other. The nodes of its mix are
opened empty and then filled; its duals weigh resources.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import ZONE
from karpenter_core.scheduling.compiled.bitsets import mask_of
from karpenter_core.scheduling.compiled.instance_shapes import OfferingMatrix
from karpenter_core.scheduling.compiled.signatures import NO_MATCH, DomainPin
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.packing.guidance import GuidanceProblem, solve_guidance
from karpenter_core.scheduling.placement.plan_profile import ClaimOpening
from karpenter_core.scheduling.placement.reservation_holdings import NO_RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.scheduling.arrays import Amounts, Mask, UnitValues
    from karpenter_core.scheduling.compiled.instance_shapes import InstanceShapes
    from karpenter_core.scheduling.compiled.pod_classes import NodeConstraints, PodClass
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.packing.guidance import Guidance
    from karpenter_core.scheduling.placement.engine import PlacementEngine
    from karpenter_core.scheduling.requirements import Requirement


__all__ = [
    "PoolShapes",
    "PurchaseMix",
    "find_purchase_mix",
    "guidance_problem",
    "list_pool_shapes",
    "minimum_nodes",
]

_MAX_SHARES: Final = 12
"""Distinct asks with a line of their own in the LP; smaller ones go with the rest."""

_NEARLY: Final = 1.05
"""Up to so many times the nodes that pods that avoid each other need, each node carries some of them."""

_UNFILLED: Final = 1.01
_MANY_NODES: Final = 150
"""Whole pods leave some room on every node: of many nodes, what is bought has a hundredth more. Of
few, there is as much too much by buying whole ones."""

_BLIND_SHARE: Final = 0.3
"""The weight of a resource in surplus; its dual is 0, but without weight it would become scarce."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolShapes:
    """The shapes of one pool, with the signature of each one's domain."""

    pool: int
    shapes: InstanceShapes
    signatures: tuple[int, ...]
    zones_differ: bool
    """Whether nodes cost more in some zones than in others."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PurchaseMix:
    """The answer: what a unit of each resource is worth, and the openings for a fraction of it."""

    compiled: CompiledProblem
    pool_shapes: tuple[PoolShapes, ...]
    guidance: Guidance
    fee_share: float
    weights: UnitValues
    """resources: what a unit of each is worth."""
    requires_nodes: bool
    """Whether pods that avoid each other need as many nodes as are bought."""
    first_pools: Sequence[int]
    """The pools that are the first for some class; of the others nodes are launched after theirs."""
    has_several_pools: bool
    """Whether several pools launch nodes in first-fit's plan, reserved capacity aside."""

    @property
    def chooses_zones(self) -> bool:
        """Whether it chooses the zones of nodes by their prices: no pods decide them, or they differ."""
        return any(
            pool_shapes.zones_differ or len(pool_shapes.signatures) == 1
            for pool_shapes in self.pool_shapes
        )

    def openings(self, share: float) -> tuple[ClaimOpening, ...]:
        """Return the claims of first pools to open empty: a share of each count, rounded down."""
        openings: list[ClaimOpening] = []
        start = 0
        for pool_shapes in self.pool_shapes:
            pool = self.compiled.pools[pool_shapes.pool]
            # With a share of spot, each node's capacity type depends on those before.
            if pool.spot_share is not None or pool_shapes.pool not in self.first_pools:
                start += len(pool_shapes.shapes.row)
                continue
            for number in range(len(pool_shapes.shapes.row)):
                count = int(self.guidance.counts[start + number] * share + 1e-6)
                if not count:
                    continue
                row = int(pool_shapes.shapes.row[number])
                signature = pool_shapes.signatures[int(pool_shapes.shapes.domain[number])]
                charge = pool.largest
                if not pool.has_ample_limits(pool.remaining, count):
                    charge = pool.capacity_of(row)
                    signature = self.compiled.signatures.narrowed(
                        signature, pool.rows_within_limits(charge)
                    )
                openings.append(
                    ClaimOpening(
                        pool=pool_shapes.pool,
                        count=count,
                        pods=0,
                        signature=signature,
                        asked=signature,
                        limit=pool_shapes.shapes.capacity[:, number],
                        row=row,
                        charge=charge,
                    )
                )
            start += len(pool_shapes.shapes.row)
        return tuple(openings)


def find_purchase_mix(
    compiled: CompiledProblem, first_fit: PlacementEngine, *, fee_share: float
) -> PurchaseMix | None:
    """Ask the LP what to buy for the pods that first-fit put on new nodes; None: it has no answer.

    Nodes are chosen with a share of the fee per node.
    """
    by_pool = _new_demand(compiled, first_fit)
    has_several_pools, demands = len(by_pool) > 1, _of_all_pools(by_pool)
    first_pools = _first_pools(compiled, demands)
    all_pool_shapes = list_pool_shapes(compiled, first_pools, robust=True)
    is_by_pool = not all_pool_shapes
    if is_by_pool:  # the first pools launch reserved capacity alone
        all_pool_shapes = list_pool_shapes(compiled, sorted(by_pool), robust=True)
        by_pool = {pool_shapes.pool: by_pool[pool_shapes.pool] for pool_shapes in all_pool_shapes}
        demands = _of_all_pools(by_pool)
    if not all_pool_shapes:
        return None
    problem = guidance_problem(
        compiled,
        demands,
        all_pool_shapes,
        fee_share * compiled.options.node_fee_per_hour,
        by_pool=by_pool if is_by_pool else None,
    )
    guidance = solve_guidance(problem, bounded=False)
    if guidance is None:
        return None
    if guidance.counts.sum() >= _MANY_NODES:
        problem = replace(problem, demand=(problem.demand * _UNFILLED).astype(np.int64))
        guidance = solve_guidance(problem, bounded=False) or guidance
    forces_nodes = bool(guidance.counts.sum() < problem.nodes[0] * _NEARLY)
    if forces_nodes:
        load = problem.load.copy()
        load[1:] = _load(compiled, demands, int(problem.nodes[0]))
        guidance = solve_guidance(replace(problem, load=load), bounded=False) or guidance
    total = problem.demand[0]
    demand_value = float((guidance.unit_price * total).sum())
    used = np.count_nonzero(total)
    blind = np.where(total > 0, _BLIND_SHARE * demand_value / used / np.maximum(total, 1), 0.0)
    return PurchaseMix(
        compiled=compiled,
        fee_share=fee_share,
        pool_shapes=all_pool_shapes,
        guidance=guidance,
        weights=guidance.unit_price + blind,
        requires_nodes=forces_nodes,
        first_pools=first_pools,
        has_several_pools=has_several_pools,
    )


def _new_demand(compiled: CompiledProblem, first_fit: PlacementEngine) -> dict[int, dict[int, int]]:
    """Return how many pods of each class new nodes of each pool are to be bought for."""
    nodes, by_pool = first_fit.nodes, dict[int, dict[int, int]]()
    may_be_reserved = bool(compiled.reservations.capacity)
    numbers = {pool.name: number for number, pool in enumerate(compiled.pools)}
    for index, columns, placed in nodes.log:
        for column, count in zip(columns, placed, strict=True):
            if column < nodes.existing:
                continue
            signature = nodes.signature.item(column)
            if may_be_reserved and _is_reserved(compiled, signature):
                continue
            number = numbers[compiled.signatures.claim(signature).pool.name]
            demands = by_pool.setdefault(number, {})
            demands[index] = demands.get(index, 0) + count
    return by_pool


def _of_all_pools(by_pool: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for demands in by_pool.values():
        for index, count in demands.items():
            total[index] = total.get(index, 0) + count
    return total


def _is_reserved(compiled: CompiledProblem, signature: int) -> bool:
    signatures = compiled.signatures
    return signatures.is_claim(signature) and bool(signatures.claim(signature).held)


def _first_pools(compiled: CompiledProblem, demands: Iterable[int]) -> list[int]:
    """Return the pools that are the first for some class."""
    return sorted({_first_pool(compiled, compiled.classes[index]) for index in demands} - {-1})


def _first_pool(compiled: CompiledProblem, pod_class: PodClass) -> int:
    for number, signature in enumerate(compiled.pool_signatures):
        if signature == NO_MATCH:
            continue
        if any(
            compiled.signatures.join(signature, r.node_constraints) != NO_MATCH
            for r in pod_class.relaxation_steps
        ):
            return number
    return -1


def list_pool_shapes(
    compiled: CompiledProblem, pools: Iterable[int], *, robust: bool
) -> tuple[PoolShapes, ...]:
    """Return the shapes of pools, by robust or by list prices."""
    all_pool_shapes = (_pool_shapes(compiled, pool, robust=robust) for pool in pools)
    return tuple(pool_shapes for pool_shapes in all_pool_shapes if pool_shapes is not None)


def _pool_shapes(compiled: CompiledProblem, number: int, *, robust: bool) -> PoolShapes | None:
    signatures, pool = compiled.signatures, compiled.pools[number]
    base = compiled.pool_signatures[number]
    if robust:  # reserved capacity is used before any other
        base = signatures.holding(base, NO_RESERVATIONS)
        if base == NO_MATCH:
            return None
    zones = next((axis for axis in compiled.axes if axis.key == ZONE), None)
    domains = [base]
    if zones is not None:
        pinned = (
            signatures.pinned(base, (DomainPin(zones.number, (d,)),))
            for d in range(len(zones.names))
        )
        domains = [signature for signature in dict.fromkeys(pinned) if signature != NO_MATCH]
    if not domains or signatures.claim(base).has_min_values:
        return None
    size = pool.catalogue.size
    prices = np.full((len(domains), size), np.inf)
    weights = np.zeros(len(domains))
    for line, signature in enumerate(domains):
        claim = signatures.claim(signature)
        allowed = mask_of(claim.bits, size)
        prices[line, allowed] = claim.prices_and_groups[0][allowed]
        if robust and claim.buys_spot:
            weights[line] = compiled.options.robust_price_weight
    shapes = pool.catalogue.instance_shapes(
        OfferingMatrix(
            capacity=compiled.pool_free[number],
            prices=prices,
            types=pool.catalogue.type_numbers,
            robust_weight=weights,
            robust_rank=compiled.options.robust_price_rank,
            flexibility_floor=compiled.options.flexibility_floor,
        )
    )
    if not len(shapes.row):
        return None
    sold = np.isfinite(prices).all(axis=0)
    return PoolShapes(
        pool=number,
        shapes=shapes,
        signatures=tuple(domains),
        zones_differ=bool((prices[:, sold] != prices[:1, sold]).any()),
    )


def guidance_problem(
    compiled: CompiledProblem,
    demands: dict[int, int],
    all_pool_shapes: Sequence[PoolShapes],
    fee_per_hour: float,
    there: Amounts | None = None,
    *,
    by_pool: Mapping[int, Mapping[int, int]] | None = None,
) -> GuidanceProblem:
    """State the LP; with `there`, room that costs nothing, as a bound: only what surely holds.

    `by_pool`: the demands by the pool whose nodes they are for, as weights and limits decide.
    """
    is_bound = there is not None
    relaxation_steps = slice(None) if is_bound else slice(1)
    room = np.concatenate([pool_shapes.shapes.capacity for pool_shapes in all_pool_shapes], axis=1)
    price = np.concatenate([pool_shapes.shapes.robust_price for pool_shapes in all_pool_shapes])
    everything = np.ones(len(price), dtype=np.bool_)
    indices = sorted(demands)
    counts = np.array([demands[index] for index in indices], dtype=np.int64)
    amounts = compiled.requests[:, indices] * counts
    total = amounts.sum(axis=1)
    by_asks: dict[tuple[NodeConstraints, ...], list[int]] = {}
    for place, index in enumerate(indices):
        asks = tuple(
            relaxation_step.node_constraints
            for relaxation_step in compiled.classes[index].relaxation_steps[relaxation_steps]
        )
        by_asks.setdefault(asks, []).append(place)
    measured = [
        _measured(compiled, pool_shapes, surely=is_bound) for pool_shapes in all_pool_shapes
    ]
    shares = [
        (_usable(compiled, all_pool_shapes, measured, asks), places)
        for asks, places in by_asks.items()
    ]
    shares = [
        (usable, amounts[:, places].sum(axis=1))
        for usable, places in shares
        if usable.any() and not usable.all()
    ]
    if not is_bound:
        shares += _zonal(compiled, all_pool_shapes, indices, amounts)
    if by_pool is not None and len(by_pool) > 1:
        shares += _of_pools(compiled, all_pool_shapes, by_pool)
    shares.sort(key=lambda share: -float((share[1] / np.maximum(total, 1)).max()))
    shares = [(everything, total), *shares[:_MAX_SHARES]]
    nodes = np.zeros(len(shares), dtype=np.int64)
    least = minimum_nodes(compiled, demands, surely=is_bound)
    nodes[0] = max(least - (len(compiled.nodes) if is_bound else 0), 0)
    demand = np.stack([amount for _, amount in shares])
    if there is not None:
        demand = np.maximum(demand - there, 0)
    return GuidanceProblem(
        capacity=room,
        price=price,
        supply=np.full(len(price), np.inf),
        usable=np.stack([usable for usable, _ in shares]),
        demand=demand,
        load=np.zeros_like(demand),
        nodes=nodes,
        fee_per_hour=fee_per_hour,
    )


def _measured(compiled: CompiledProblem, pool_shapes: PoolShapes, *, surely: bool) -> Mask:
    """Return the rows that each shape stands for, S x T: its own or, `surely`, all it beats.

    A row has no shape of its own where another has as much capacity for no more money. Some pods
    may use only that one: they cost no less than that other shape, but perhaps less than all shapes
    whose own rows they may use.
    """
    shapes = pool_shapes.shapes
    if not surely:
        return shapes.row[:, None] == np.arange(compiled.pools[pool_shapes.pool].catalogue.size)
    claims = [compiled.signatures.claim(signature) for signature in pool_shapes.signatures]
    prices = np.stack([claim.prices_and_groups[0] for claim in claims])
    beaten = shapes.price[:, None] <= prices[shapes.domain]
    for there, required in zip(shapes.capacity, compiled.pool_free[pool_shapes.pool], strict=True):
        beaten &= there[:, None] >= required
    return beaten


def _usable(
    compiled: CompiledProblem,
    all_pool_shapes: Sequence[PoolShapes],
    measured: Sequence[Mask],
    asks: Sequence[NodeConstraints],
) -> Mask:
    """Say which shapes of all pools (S) may serve a class that makes do with any of these asks."""
    signatures = compiled.signatures
    parts: list[Mask] = []
    for pool_shapes, sized_claims in zip(all_pool_shapes, measured, strict=True):
        size = compiled.pools[pool_shapes.pool].catalogue.size
        usable = np.zeros(len(pool_shapes.shapes.row), dtype=np.bool_)
        for domain, signature in enumerate(pool_shapes.signatures):
            those = np.flatnonzero(pool_shapes.shapes.domain == domain)
            for node_constraints in asks:
                for alternative in range(len(node_constraints.alternatives)):
                    met = signatures.join_alternative(signature, node_constraints, alternative)
                    if met != NO_MATCH:
                        rows = mask_of(signatures.claim(met).bits, size)
                        usable[those] |= (sized_claims[those] & rows).any(axis=1)
        parts.append(usable)
    return np.concatenate(parts)


def _of_pools(
    compiled: CompiledProblem,
    all_pool_shapes: Sequence[PoolShapes],
    by_pool: Mapping[int, Mapping[int, int]],
) -> Iterator[tuple[Mask, Amounts]]:
    """Yield what is asked of each pool: its shapes (S) and their amounts (R)."""
    owners = np.concatenate([np.full(len(one.shapes.row), one.pool) for one in all_pool_shapes])
    for pool, demands in by_pool.items():
        indices = sorted(demands)
        counts = np.array([demands[index] for index in indices], dtype=np.int64)
        yield owners == pool, compiled.requests[:, indices] @ counts


def _zonal(
    compiled: CompiledProblem,
    all_pool_shapes: Sequence[PoolShapes],
    indices: Sequence[int],
    amounts: Amounts,
) -> list[tuple[Mask, Amounts]]:
    """Return what classes that spread themselves over zones ask of each: equal parts.

    `amounts` are resources x classes; each part is the shapes of a zone (S) and its amounts (R).
    """
    axis = next((axis for axis in compiled.axes if axis.key == ZONE), None)
    if axis is None:
        return []
    usable: dict[int, Mask] = {}
    start, total = 0, sum(len(one.shapes.row) for one in all_pool_shapes)
    for one in all_pool_shapes:
        end = start + len(one.shapes.row)
        for domain, signature in enumerate(one.signatures):
            zone = compiled.signatures.domain(axis.number, signature)
            if zone >= 0:
                shapes = usable.setdefault(zone, np.zeros(total, dtype=np.bool_))
                shapes[start:end] |= one.shapes.domain == domain
        start = end
    places: dict[Requirement, list[int]] = {}
    for place, index in enumerate(indices):
        relaxation_step = compiled.classes[index].relaxation_steps[0]
        if any(
            group.key == ZONE and group.kind is TopologyKind.SPREAD
            for group in relaxation_step.owned
        ):
            places.setdefault(relaxation_step.strict.get(ZONE), []).append(place)
    shares: dict[int, Amounts] = {}
    for zone_requirement, those in places.items():
        zones = [zone for zone in sorted(usable) if zone_requirement.has(axis.names[zone])]
        for zone in zones:
            part = (amounts[:, those] // len(zones)).sum(axis=1)
            shares[zone] = shares[zone] + part if zone in shares else part
    return [(usable[zone], amount) for zone, amount in shares.items()]


def _load(compiled: CompiledProblem, demands: dict[int, int], nodes: int) -> Amounts:
    """Return what pods that avoid each other take of each of so many nodes (R), on average."""
    load = np.zeros(compiled.requests.shape[0], dtype=np.int64)
    for index, count in demands.items():
        pod_class = compiled.classes[index]
        if any(
            group.is_host and group.kind is not TopologyKind.AFFINITY and group in pod_class.counted
            for group in pod_class.relaxation_steps[0].owned
        ):
            load += compiled.requests[:, index] * count
    return load // nodes


def minimum_nodes(compiled: CompiledProblem, demands: dict[int, int], *, surely: bool) -> int:
    """Return the fewest nodes on which pods that avoid each other can be.

    Surely: those that would rather avoid each other do not count.
    """
    members: dict[int, int] = {}
    caps: dict[int, int] = {}
    for index, count in demands.items():
        pod_class = compiled.classes[index]
        for group in pod_class.relaxation_steps[0].owned:
            if (
                not group.is_host
                or group.kind is TopologyKind.AFFINITY
                or group not in pod_class.counted
            ):
                continue
            if surely and not all(
                group in relaxation_step.owned for relaxation_step in pod_class.relaxation_steps
            ):
                continue
            members[group.index] = members.get(group.index, 0) + count
            caps[group.index] = group.max_skew if group.kind is TopologyKind.SPREAD else 1
    return max((-(-count // caps[index]) for index, count in members.items()), default=0)
