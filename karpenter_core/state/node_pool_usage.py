"""Sums up what the nodes of a NodePool hold: for limits and for its status.

Prices are amounts as in `scheduling.offerings.price_amount`: millionths of the reporting currency per
hour, `LARGEST_AMOUNT` where the catalogue lists no price.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, final

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CPU,
    EPHEMERAL_STORAGE,
    INSTANCE_TYPE,
    MEMORY,
    NODES,
    ON_DEMAND,
    PODS,
    PRICE_PER_HOUR,
    RESERVED,
    SPOT,
    SPOT_SHARE,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.api.spot_share import (
    OTHER_NODES,
    SPOT_NODES,
    read_spot_share,
    spot_share_error,
)
from karpenter_core.scheduling.offerings import highest_price_amount, price_amount
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import element_max, merge

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim, RequirementSpec
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "PoolStatusSums",
    "capacity_type_count",
    "exceeded_limits",
    "is_launched",
    "listed_types",
    "node_price_amount",
    "pool_status_resources",
    "pool_usage",
    "priced_pools",
    "shared_pools",
    "spot_shares",
    "unpriced_node",
]

_ALWAYS_SHOWN = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES)


def is_launched(state_node: StateNode) -> bool:
    """Tell whether a state node has an instance, whose amounts are known."""
    return bool(state_node.provider_id)


def listed_types(claim: NodeClaim, catalogue: Catalogue | None) -> tuple[InstanceType, ...]:
    """Return the instance types that a claim without instance may become."""
    if catalogue is None:
        return ()
    requirements = Requirements.from_specs(claim.spec.requirements)
    type_requirement = requirements.get(INSTANCE_TYPE)
    if not type_requirement.complement:
        # Claims created here list their types, and that list is final.
        return tuple(
            item for item in catalogue.instance_types if item.name in type_requirement.values
        )
    return tuple(
        item for item in catalogue.instance_types if item.requirements.intersects(requirements)
    )


def node_price_amount(snapshot: Snapshot, state_node: StateNode, rates: Mapping[str, float]) -> int:
    """Return the price of a node; of a claim that is not launched yet the highest it may have.

    A reserved node whose reservation has ended counts as on-demand: that is what it costs at most.
    """
    catalogue = snapshot.catalogues.get(state_node.pool)
    claim = state_node.claim
    if claim is not None and not is_launched(state_node):
        types = listed_types(claim, catalogue)
        return highest_price_amount(
            types,
            Requirements.from_specs(claim.spec.requirements),
            rates,
            well_known=WELL_KNOWN.union(*(item.requirements.keys() for item in types)),
        )
    name, zone = state_node.labels.get(INSTANCE_TYPE, ""), state_node.labels.get(ZONE, "")
    capacity_type = state_node.labels.get(CAPACITY_TYPE, "")
    amounts = [
        (offering.capacity_type, price_amount(offering.price, rates))
        for item in (() if catalogue is None else catalogue.instance_types)
        if item.name == name
        for offering in item.offerings
        if offering.zone == zone
    ]
    own = [amount for kind, amount in amounts if kind == capacity_type]
    if not own and capacity_type == RESERVED:  # its reservation is not offered any more
        own = [amount for kind, amount in amounts if kind == ON_DEMAND]
    return max(own, default=LARGEST_AMOUNT)


def capacity_type_count(state_node: StateNode) -> str:
    """Return the name under which a node counts for the share of spot of its pool."""
    capacity_type = state_node.labels.get(CAPACITY_TYPE, "")
    claim = state_node.claim
    if not capacity_type and claim is not None:
        listed = Requirements.from_specs(claim.spec.requirements).get(CAPACITY_TYPE)
        capacity_type = next(iter(listed.values), "") if not listed.complement else ""
    return SPOT_NODES if capacity_type == SPOT else OTHER_NODES


def spot_shares(snapshot: Snapshot) -> dict[str, tuple[float, float | None]]:
    """Return the share of spot that each pool asks for, and the one that it has.

    Nodes that are marked for deletion do not count; a pool without nodes has no share.
    """
    desired = {
        name: share
        for name, pool in snapshot.node_pools.items()
        if not spot_share_error(pool) and (share := read_spot_share(pool)) is not None
    }
    counts = {name: {SPOT_NODES: 0, OTHER_NODES: 0} for name in desired}
    for state_node in snapshot.counted_nodes:
        if state_node.pool in counts and not state_node.marked_for_deletion:
            counts[state_node.pool][capacity_type_count(state_node)] += 1
    shares: dict[str, tuple[float, float | None]] = {}
    for name, share in desired.items():
        total = sum(counts[name].values())
        shares[name] = share, counts[name][SPOT_NODES] / total if total else None
    return shares


def unpriced_node(snapshot: Snapshot, pool: str, rates: Mapping[str, float]) -> str:
    """Return the name of a node of a pool whose price is unknown; empty if all are known."""
    return next(
        (
            state_node.name
            for state_node in snapshot.counted_nodes
            if state_node.pool == pool
            and not state_node.marked_for_deletion
            and node_price_amount(snapshot, state_node, rates) >= LARGEST_AMOUNT
        ),
        "",
    )


def priced_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools that limit the price of their nodes."""
    return frozenset(
        name for name, pool in snapshot.node_pools.items() if PRICE_PER_HOUR in pool.spec.limits
    )


def shared_pools(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools that keep a share of spot."""
    return frozenset(
        name
        for name, pool in snapshot.node_pools.items()
        if SPOT_SHARE in pool.metadata.annotations
    )


def pool_usage(
    snapshot: Snapshot,
    rates: Mapping[str, float] | None = None,
    *,
    leaving: Container[str] = (),
) -> dict[str, dict[str, int]]:
    """Return what each pool holds against its limits, without nodes marked for deletion.

    A Node belongs to the pool of its label, with or without a claim. A claim that is not launched
    yet counts with the largest amount of each resource over its types. Pools with a limit of the
    price also have that, at the exchange rates `rates`, and pools with a share of spot the numbers
    of their nodes by capacity type. `leaving` are names of claims that are
    about to be marked.
    """
    priced, shared = priced_pools(snapshot), shared_pools(snapshot)
    by_pool: dict[str, list[Mapping[str, int]]] = {}
    largest: dict[tuple[str, tuple[RequirementSpec, ...]], dict[str, int]] = {}
    for state_node in snapshot.counted_nodes:
        claim = state_node.claim
        if not state_node.pool or state_node.marked_for_deletion:
            continue
        if claim is not None and claim.name in leaving:
            continue
        parts = by_pool.setdefault(state_node.pool, [])
        parts.append(state_node.capacity)
        if state_node.pool in priced:
            parts.append({PRICE_PER_HOUR: node_price_amount(snapshot, state_node, rates or {})})
        if state_node.pool in shared:
            parts.append({capacity_type_count(state_node): 1})
        if claim is not None and not is_launched(state_node):
            key = (state_node.pool, claim.spec.requirements)
            if key not in largest:
                types = listed_types(claim, snapshot.catalogues.get(state_node.pool))
                largest[key] = element_max(item.capacity for item in types)
            parts.append(largest[key])
    return {pool: merge(parts) for pool, parts in by_pool.items()}


def pool_status_resources(snapshot: Snapshot, pool: str) -> dict[str, int]:
    """Return `status.resources` of a pool: launched capacity, with zeros for the usual names."""
    held = merge(
        state_node.capacity
        for state_node in snapshot.counted_nodes
        if _is_in_status(state_node, pool)
    )
    return {**dict.fromkeys(_ALWAYS_SHOWN, 0), **held}


@final
class PoolStatusSums:
    """The same sums as `pool_status_resources`, kept while no node counts differently.

    Nodes change many times a second in a large cluster, since pods come and go, and hardly any of
    these changes is one of amounts.
    """

    __slots__ = ("_nodes", "_rates", "_sums")

    def __init__(self, rates: Mapping[str, float] | None) -> None:
        """`rates` are exchange rates for the price of pools that limit it."""
        self._rates = rates or {}
        self._nodes: tuple[StateNode, ...] = ()
        self._sums: dict[str, dict[str, int]] = {}

    def resources(self, snapshot: Snapshot, pool: str) -> dict[str, int]:
        """Return `status.resources` of a pool; with its price if it is limited and known."""
        nodes = snapshot.counted_nodes
        if not _count_alike(self._nodes, nodes):
            self._sums.clear()
        self._nodes = nodes
        if pool not in self._sums:
            self._sums[pool] = pool_status_resources(snapshot, pool)
        held = self._sums[pool].copy()
        limited = snapshot.node_pools.get(pool)
        if limited is not None and PRICE_PER_HOUR in limited.spec.limits:
            price = sum(
                node_price_amount(snapshot, state_node, self._rates)
                for state_node in nodes
                if _is_in_status(state_node, pool)
            )
            if price < LARGEST_AMOUNT:
                held[PRICE_PER_HOUR] = price
        return held


def _is_in_status(state_node: StateNode, pool: str) -> bool:
    return (
        state_node.pool == pool
        and state_node.managed
        and is_launched(state_node)
        and not state_node.marked_for_deletion
    )


def _count_alike(before: tuple[StateNode, ...], after: tuple[StateNode, ...]) -> bool:
    """Tell whether every node counts as the node that was in its place."""
    if len(before) != len(after):
        return False
    if all(map(is_, before, after)):
        return True
    return all(
        old is new
        or (
            old.pool == new.pool
            and old.capacity == new.capacity
            and _is_in_status(old, old.pool) == _is_in_status(new, new.pool)
        )
        for old, new in zip(before, after, strict=True)
    )


def exceeded_limits(limits: Mapping[str, int], usage: Mapping[str, int]) -> tuple[str, ...]:
    """Return the resources of which a pool already holds more than its limits allow."""
    return tuple(sorted(name for name, limit in limits.items() if usage.get(name, 0) > limit))
