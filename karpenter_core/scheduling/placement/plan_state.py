"""Holds one plan in the making: open nodes, counts, pods and limits left.

The classes that open, enlarge and fill claims share it; none of them depends on the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import NODES, PODS
from karpenter_core.scheduling.compiled.signatures import UNDECIDED_DOMAIN, DomainPin
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.compiled.volumes import is_attach_resource
from karpenter_core.scheduling.placement.device_places import DevicePlaces
from karpenter_core.scheduling.placement.node_contents import NodeContents
from karpenter_core.scheduling.placement.node_fit import NodeFit
from karpenter_core.scheduling.placement.node_prices import lowest_node_price
from karpenter_core.scheduling.placement.open_nodes import NO_ROW, OpenNodes
from karpenter_core.scheduling.placement.plan_profile import RowMeasure
from karpenter_core.scheduling.placement.reservation_holdings import (
    ReservationDeferral,
    ReservationHoldings,
)
from karpenter_core.scheduling.placement.shared_volumes import SharedVolumes
from karpenter_core.scheduling.placement.topology_counts import TopologyCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts, Floats
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.placement.node_fit import JoinedSignatures
    from karpenter_core.scheduling.placement.plan_profile import ClaimOpening, PlanProfile
    from karpenter_core.scheduling.placement.topology_counts import HostCaps

__all__ = ["PlanState"]

_LIKELY_FILLED: Final = 0.95
"""The part of the room on open claims that later pods will find use for."""


@final
class PlanState:
    """One plan in the making, shared by everything that places pods."""

    def __init__(self, compiled: CompiledProblem, profile: PlanProfile) -> None:
        self.compiled: Final = compiled
        self.profile: Final = profile
        self.waiting: Final = np.array(
            [len(c.members) - profile.left_out.get(i, 0) for i, c in enumerate(compiled.classes)],
            dtype=np.int64,
        )
        """The number of pods of each class that were not tried yet."""
        self.weights: Final = self._weights(profile)
        self.nodes: Final = OpenNodes(
            compiled.node_free,
            compiled.node_signatures,
            weights=self.weights if profile.fullest_first else None,
        )
        self.counts: Final = TopologyCounts(compiled)
        self.remaining: Final = tuple(dict(pool.remaining) for pool in compiled.pools)
        """The rest of each pool's limits; for nodes, also of the limit of all pools together."""
        self._own_nodes: Final = [pool.get(NODES) for pool in self.remaining]
        self.nodes_left = compiled.max_new_nodes
        """The most nodes that all NodePools may get together; None is any number."""
        self._level_nodes(range(len(self.remaining)))
        self.holdings: Final = ReservationHoldings(
            compiled, self.nodes, pessimistic=profile.measure is RowMeasure.NONE
        )
        self.deferred: Final = dict[int, ReservationDeferral]()
        """Classes of which some pods wait for reserved capacity."""
        self._volumes: Final = SharedVolumes(compiled, self.nodes)
        self.devices: Final = (
            None
            if compiled.devices is None
            else DevicePlaces(compiled, self.nodes, compiled.devices)
        )
        self.contents: Final = (
            None
            if profile.recorded is None
            else NodeContents(profile.recorded.size_of, compiled.requests)
        )
        """Contents that nodes are meant for, if they were planned."""
        self.node_fit: Final = NodeFit(
            compiled,
            self.nodes,
            self._volumes,
            self.devices,
            self.contents,
            tight=profile.fullest_first,
            pods_line=compiled.resources.index(PODS) if profile.fewest_first else None,
        )
        self._soft: Final = dict[tuple[tuple[int, ...], int | None], tuple[DomainPin, ...]]()
        self._node_prices: Final = dict[tuple[int, int, tuple[DomainPin, ...]], float]()
        self._loose: Final = dict[int, dict[int, tuple[int, ...]]]()

    def count_nodes(self, pool: int, count: int) -> None:
        """Count new nodes against the limit of their pool, and that of all pools together."""
        own = self._own_nodes[pool]
        if own is not None:
            self._own_nodes[pool] = own - count
        if self.nodes_left is not None:
            self.nodes_left -= count
        self._level_nodes((pool,) if self.nodes_left is None else range(len(self.remaining)))

    def _level_nodes(self, pools: Iterable[int]) -> None:
        for number in pools:
            bounds = [n for n in (self._own_nodes[number], self.nodes_left) if n is not None]
            if bounds:
                self.remaining[number][NODES] = min(bounds)

    @property
    def fee_per_hour(self) -> float:
        """The fee per node that counts when nodes are chosen."""
        return self.profile.fee_share * self.compiled.options.node_fee_per_hour

    def _weights(self, profile: PlanProfile) -> Floats:
        """Return what a unit of each resource counts: resources."""
        if profile.weights is not None:
            return profile.weights
        weights = 1.0 / np.maximum(self._demand(), 1)
        for line, name in enumerate(self.compiled.resources):
            if is_attach_resource(name):
                weights[line] = 0.0
        return weights

    def _demand(self) -> Amounts:
        """Return what the pods ask for that were not tried yet: resources."""
        demand: Amounts = self.compiled.requests @ self.waiting
        return demand

    def remaining_demand(self) -> Amounts:
        """Return the waiting demand beyond what fits on open claims: resources."""
        planned = self.nodes.free[:, self.nodes.existing :]
        room = np.add.reduce(np.maximum(planned, 0), axis=1)
        return np.maximum(self._demand() - (_LIKELY_FILLED * room).astype(np.int64), 0)

    def pins(
        self, task: PlacementTask, domains: tuple[DomainPin, ...] = ()
    ) -> tuple[DomainPin, ...]:
        """Complete pins by those of the axes on which a class is only counted."""
        counted = task.topology.counted_axes
        if not counted:
            return domains
        key = (counted, task.index if self.profile.uneven_domains else None)
        soft = self._soft.get(key)
        if soft is None:
            axes = self.compiled.axes
            every = {axis: tuple(range(len(axes[axis].names))) for axis in counted}
            soft = self._soft[key] = tuple(
                DomainPin(axis, self.tried_domains(task, axis, every[axis]), soft=True)
                for axis in counted
            )
        return (*domains, *soft)

    def tried_domains(
        self, task: PlacementTask, axis: int, domains: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return domains in the order in which a node is tried for: by name, or by its price."""
        if len(domains) == 1 or not self.profile.uneven_domains:
            return domains
        pins = {domain: (DomainPin(axis, (domain,)),) for domain in domains}
        return tuple(sorted(domains, key=lambda domain: self.node_price(task, pins[domain])))

    def node_price(self, task: PlacementTask, pins: tuple[DomainPin, ...]) -> float:
        """Return the price per hour of the cheapest node for a pod where pins allow."""
        key = (task.index, task.node_constraints.index, pins)
        price = self._node_prices.get(key)
        if price is None:
            price = self._node_prices[key] = lowest_node_price(self.compiled, task, pins)
        return price

    def fill(self, task: PlacementTask, left: int) -> int:
        """Put as many pods as go on open nodes, wherever; return how many went."""
        caps = self.counts.host_caps(task.topology, self.nodes.count)
        return self.fill_where(task, left, self.pins(task), caps)

    def fill_where(
        self, task: PlacementTask, left: int, pins: tuple[DomainPin, ...], caps: HostCaps
    ) -> int:
        """Put as many pods as go on open nodes; return how many went."""
        if not self.nodes.count:
            return 0
        joined = self.node_fit.joined_signatures(task.node_constraints, pins)
        columns, counts = self.node_fit.first_fitting(task, left, joined, caps)
        if columns:
            self.place_on(task, columns, counts, joined)
        placed = sum(counts)
        if columns and placed < left and self.contents is not None:
            caps = self.counts.host_caps(task.topology, self.nodes.count)
            placed += self.fill_where(task, left - placed, pins, caps)
        return placed

    def place_on(
        self, task: PlacementTask, columns: list[int], counts: list[int], joined: JoinedSignatures
    ) -> None:
        """Put pods on nodes that take them, and give these their new signatures."""
        if task.pod_class.shared_volumes:
            self._volumes.attach(task, columns)
        self.nodes.place(task.index, columns, counts, task.request)
        if joined.changes:
            self._set_joined_signatures(columns, joined)
        if self.devices is not None:
            self.devices.take(task, columns)
        self.holdings.release_unusable(columns)
        if self.contents is not None:
            self.contents.use(task.index, columns, counts)
        self.count(task, columns, counts)

    def count(self, task: PlacementTask, columns: list[int], counts: list[int]) -> None:
        """Count pods that were put on nodes."""
        counted = task.pod_class.counted
        if counted:
            if self._loose and task.relaxation_step.owned:
                self._tie(task, columns)
            self.counts.record(counted, columns, counts, self.nodes, self._loose)

    def _tie(self, task: PlacementTask, columns: list[int]) -> None:
        """Fix the domain of nodes on which pods were put for it."""
        axes = {
            g.key
            for g in task.relaxation_step.owned
            if g.kind is TopologyKind.SPREAD or g.kind is TopologyKind.AFFINITY
        }
        for column in columns:
            free = self._loose.get(column)
            if free is None:
                continue
            for axis in [axis for axis in free if self.compiled.axes[axis].key in axes]:
                del free[axis]
            if not free:
                del self._loose[column]

    def _set_joined_signatures(self, columns: list[int], joined: JoinedSignatures) -> None:
        """Give nodes the signature that they have with the pods that joined."""
        for column in columns:
            before = self.nodes.signature.item(column)
            after = joined.met.item(before)
            if after != before:
                self.set_signature(column, after)

    def set_signature(self, column: int, signature: int) -> None:
        """Give a node another signature, and a claim without row the capacity of all its rows."""
        nodes, limit = self.nodes, None
        if column >= nodes.existing and nodes.row.item(column) == NO_ROW:
            limit = self.compiled.signatures.claim(signature).largest
        nodes.set_signature([column], signature, limit)

    def remember_domains(
        self, columns: list[int], opening: ClaimOpening, pins: tuple[DomainPin, ...]
    ) -> None:
        """Remember the domains that a claim could be in, although it has one for our counts."""
        signatures = self.compiled.signatures
        free = {
            pin.axis: pin.domains
            for pin in pins
            if len(pin.domains) > 1
            and signatures.domain(pin.axis, opening.asked) == UNDECIDED_DOMAIN
        }
        for column in columns if free else ():
            self._loose[column] = dict(free)
