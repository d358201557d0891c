"""Holds one plan in the making: open nodes, counts, what is left of pods and limits.

Those that open, enlarge and fill claims share it; none of them knows the engine that orders them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import NODES
from karpenter_core.scheduling.compiled.signatures import FLOATING, Pin
from karpenter_core.scheduling.compiled.topology import Kind
from karpenter_core.scheduling.compiled.volumes import is_attach_resource
from karpenter_core.scheduling.placement.columns import NO_ROW, OpenNodes
from karpenter_core.scheduling.placement.counts import Counts
from karpenter_core.scheduling.placement.holdings import Deferral, Holdings
from karpenter_core.scheduling.placement.profile import Measure
from karpenter_core.scheduling.placement.rooms import Rooms
from karpenter_core.scheduling.placement.shared_volumes import SharedVolumes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts, Floats
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, Task
    from karpenter_core.scheduling.placement.counts import HostCaps
    from karpenter_core.scheduling.placement.profile import Opening, Profile
    from karpenter_core.scheduling.placement.rooms import Becoming

__all__ = ["PlanState"]

_LIKELY_FILLED: Final = 0.95
"""The part of the room on open claims that later pods will find use for."""


@final
class PlanState:
    """One plan in the making, as all share it that place pods."""

    def __init__(self, compiled: CompiledProblem, profile: Profile) -> None:
        self.compiled: Final = compiled
        self.profile: Final = profile
        self.waiting: Final = np.array([len(c.members) for c in compiled.classes], dtype=np.int64)
        """How many pods of each class were not tried yet."""
        self.weights: Final = self._weights(profile)
        self.nodes: Final = OpenNodes(
            compiled.node_free,
            compiled.node_signatures,
            weights=self.weights if profile.tight else None,
        )
        self.counts: Final = Counts(compiled)
        self.remaining: Final = tuple(dict(pool.remaining) for pool in compiled.pools)
        """What is left of each pool's limits; of nodes, also of what all pools may have together."""
        self._own_nodes: Final = [pool.get(NODES) for pool in self.remaining]
        self.nodes_left = compiled.max_new_nodes
        """How many nodes all pools may get together; None is any number."""
        self._level_nodes(range(len(self.remaining)))
        self.holdings: Final = Holdings(
            compiled, self.nodes, pessimistic=profile.measure is Measure.NONE
        )
        self.deferred: Final = dict[int, Deferral]()
        """Classes of which some pods wait for reserved machines."""
        self._volumes: Final = SharedVolumes(compiled, self.nodes)
        self.rooms: Final = Rooms(compiled, self.nodes, self._volumes, tight=profile.tight)
        self._soft: Final = dict[tuple[int, ...], tuple[Pin, ...]]()
        self._loose: Final = dict[int, dict[int, tuple[int, ...]]]()

    def count_nodes(self, pool: int, count: int) -> None:
        """Count new nodes against what their pool may have, and what all may have together."""
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

    def _weights(self, profile: Profile) -> Floats:
        if profile.weights is not None:
            return profile.weights
        weights = 1.0 / np.maximum(self._demand(), 1)
        for line, name in enumerate(self.compiled.resources):
            if is_attach_resource(name):
                weights[line] = 0.0
        return weights

    def _demand(self) -> Amounts:
        """Return what the pods ask for that were not tried yet, per resource."""
        demand: Amounts = self.compiled.requests @ self.waiting
        return demand

    def rest(self) -> Amounts:
        """Return what still waits and will not go where there is room already, per resource."""
        planned = self.nodes.free[:, self.nodes.existing :]
        room = np.add.reduce(np.maximum(planned, 0), axis=1)
        return np.maximum(self._demand() - (_LIKELY_FILLED * room).astype(np.int64), 0)

    def pins(self, task: Task, domains: tuple[Pin, ...] = ()) -> tuple[Pin, ...]:
        """Complete pins by those of the axes on which a class is only counted."""
        counted = task.ties.counted_axes
        if not counted:
            return domains
        soft = self._soft.get(counted)
        if soft is None:
            axes = self.compiled.axes
            soft = self._soft[counted] = tuple(
                Pin(axis, tuple(range(len(axes[axis].names))), soft=True) for axis in counted
            )
        return (*domains, *soft)

    def fill(self, task: Task, left: int) -> int:
        """Put as many pods as go on open nodes, wherever; return how many went."""
        caps = self.counts.host_caps(task.ties, self.nodes.count)
        return self.fill_where(task, left, self.pins(task), caps)

    def fill_where(self, task: Task, left: int, pins: tuple[Pin, ...], caps: HostCaps) -> int:
        """Put as many pods as go on open nodes; return how many went."""
        if not self.nodes.count:
            return 0
        becoming = self.rooms.becoming(task.ask, pins)
        columns, counts = self.rooms.first(task, left, becoming, caps)
        if columns:
            self.put_on(task, columns, counts, becoming)
        return sum(counts)

    def put_on(self, task: Task, columns: list[int], counts: list[int], becoming: Becoming) -> None:
        """Put pods on nodes that have room for them, which become what they are with these."""
        if task.pod_class.shared_volumes:
            self._volumes.attach(task, columns)
        self.nodes.place(task.index, columns, counts, task.request)
        if becoming.changes:
            self._become(columns, becoming)
        self.holdings.keep(columns)
        self.count(task, columns, counts)

    def count(self, task: Task, columns: list[int], counts: list[int]) -> None:
        """Count pods that were put on nodes."""
        counted = task.pod_class.counted
        if counted:
            if self._loose and task.rung.owned:
                self._tie(task, columns)
            self.counts.record(counted, columns, counts, self.nodes, self._loose)

    def _tie(self, task: Task, columns: list[int]) -> None:
        """Take a domain for known once pods are there that were put for it."""
        axes = {g.key for g in task.rung.owned if g.kind is Kind.SPREAD or g.kind is Kind.AFFINITY}
        for column in columns:
            free = self._loose.get(column)
            if free is None:
                continue
            for axis in [axis for axis in free if self.compiled.axes[axis].key in axes]:
                del free[axis]
            if not free:
                del self._loose[column]

    def _become(self, columns: list[int], becoming: Becoming) -> None:
        """Give nodes the signature that they have with the pods that joined."""
        for column in columns:
            before = self.nodes.signature.item(column)
            after = becoming.met.item(before)
            if after != before:
                self.turn(column, after)

    def turn(self, column: int, signature: int) -> None:
        """Give a node another signature, and a claim that is open to all its rows their room."""
        nodes, limit = self.nodes, None
        if column >= nodes.existing and nodes.row.item(column) == NO_ROW:
            limit = self.compiled.signatures.claim(signature).largest
        nodes.become([column], signature, limit)

    def loosen(self, columns: list[int], opening: Opening, pins: tuple[Pin, ...]) -> None:
        """Remember the domains that a claim could be in, although it has one for our counts."""
        signatures = self.compiled.signatures
        free = {
            pin.axis: pin.domains
            for pin in pins
            if len(pin.domains) > 1 and signatures.domain(pin.axis, opening.asked) == FLOATING
        }
        for column in columns if free else ():
            self._loose[column] = dict(free)
