"""Lists and keeps the nodes that take one more pod of a class."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np

from karpenter_core.api.labels import CPU, MEMORY, PODS
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.portfolio.plan_profiles import constraint_tier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.scheduling.arrays import Amounts, Mask, Numbers
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.whatif.host_counts import HostCounts

__all__ = ["ClassPlacementPlan", "FittingNodes", "FittingNodesKey", "class_plan"]

FittingNodesKey: TypeAlias = tuple[int, int, int]
"""A class, an axis (or -1: wherever), and the domains of it, as bits, that nodes are to be in."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostTopologyRule:
    """A host name group that restricts a class; a node with over `max_count` takes no more."""

    group: int
    grows: bool
    """Whether every pod of the class is counted itself."""
    max_count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZonalTopologyRules:
    """The groups over one axis that restrict a class: first cell, group, whether it grows with it.

    `allowed` are the domains it may be in at all; None: any.
    """

    axis: int
    size: int
    """The number of domains of the axis."""
    groups: tuple[tuple[int, TopologyGroup, bool], ...]
    allowed: tuple[bool, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpreadLevel:
    """The one group that restricts a class over domains: pods of its own, to be kept level.

    That is what most spread constraints are, and what has the shortest way through a walk.
    """

    axis: int
    start: int
    """The group's first cell."""
    size: int
    """The number of domains of the axis."""
    max_skew: int
    min_domains: int
    keys: tuple[FittingNodesKey, ...]
    """Of the nodes that take the class, by domain."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassPlacementPlan:
    """The inputs for placing a class on existing nodes.

    `is_plain`: nothing but what stands here (no ports, shared volumes, affinity to nodes).
    `rank` sorts classes as first-fit does, before age; `tier` as the solver's other plans do.
    """

    number: int
    anywhere: FittingNodesKey
    """Of all nodes that take the class."""
    asked: tuple[tuple[int, int], ...]
    """Lines of resources and the amount asked of each."""
    closest: tuple[tuple[int, int], tuple[int, int]]
    """The first two of these (or the only one twice): what full nodes most often lack."""
    rank: tuple[bool, int, int]
    tier: tuple[bool, int]
    is_plain: bool
    has_wishes: bool
    """Whether something can be given up when no place is found."""
    host: tuple[HostTopologyRule, ...]
    zonal: tuple[ZonalTopologyRules, ...]
    level: SpreadLevel | None
    """The only level of `zonal`, where it has no more than one."""
    counted: tuple[TopologyGroup, ...]
    counts_for: frozenset[int]
    """The groups that count its pods."""
    domains_by: frozenset[int]
    """The groups that restrict its domains."""
    owned: frozenset[int]
    """The groups of its own constraints, whatever it may still give up."""


def class_plan(
    compiled: CompiledProblem, number: int, cell: Callable[[int, TopologyGroup, int], int]
) -> ClassPlacementPlan:
    """Read one class at its first step; `cell` returns the cell of a group in a domain."""
    pod_class, relaxation_steps = compiled.classes[number], compiled.topologies[number]
    request: list[int] = compiled.requests[:, number].tolist()
    host = relaxation_steps[0].host if relaxation_steps else ()
    zonal = relaxation_steps[0] if relaxation_steps else None
    grows = relaxation_steps[0].grows if relaxation_steps else frozenset[int]()
    rules = (
        ()
        if zonal is None
        else tuple(
            ZonalTopologyRules(
                axis=axis,
                size=len(compiled.axes[axis].names),
                groups=tuple((cell(axis, g, 0), g, g.index in grows) for g in groups),
                allowed=zonal.allowed[axis],
            )
            for axis, groups in zonal.zonal.items()
        )
    )
    requested = tuple((line, amount) for line, amount in enumerate(request) if amount)
    return ClassPlacementPlan(
        number=number,
        anywhere=(number, -1, -1),
        asked=requested,
        closest=(requested[0], requested[:2][-1]),
        rank=(
            pod_class.shape.gives_way,
            -pod_class.requests.get(CPU, 0),
            -pod_class.requests.get(MEMORY, 0),
        ),
        tier=(pod_class.shape.gives_way, constraint_tier(relaxation_steps)),
        is_plain=bool(relaxation_steps)
        and pod_class.blocked is None
        and not pod_class.shared_volumes
        and not pod_class.relaxation_steps[0].node_constraints.host_ports
        and all(group.kind is not TopologyKind.AFFINITY for group in host)
        and not relaxation_steps[0].siblings,
        has_wishes=len(relaxation_steps) > 1,
        host=tuple(
            HostTopologyRule(
                group=g.index, grows=g.index in grows, max_count=_most(g, g.index in grows)
            )
            for g in host
        ),
        zonal=rules,
        level=_level(number, rules),
        counted=pod_class.counted,
        counts_for=frozenset(group.index for group in pod_class.counted),
        domains_by=frozenset(group.index for one in rules for _, group, _ in one.groups),
        owned=frozenset(
            group.index
            for relaxation_step in pod_class.relaxation_steps
            for group in relaxation_step.owned
        ),
    )


def _level(number: int, zonal: Sequence[ZonalTopologyRules]) -> SpreadLevel | None:
    if len(zonal) != 1 or len(zonal[0].groups) != 1:
        return None
    (rules,) = zonal
    ((start, group, grows),) = rules.groups
    if (
        group.kind is not TopologyKind.SPREAD
        or not grows
        or rules.allowed is not None
        or not rules.size
    ):
        return None  # an axis has no domains when no node and no pool has its key
    return SpreadLevel(
        axis=rules.axis,
        start=start,
        size=rules.size,
        max_skew=group.max_skew,
        min_domains=group.min_domains,
        keys=tuple((number, rules.axis, 1 << domain) for domain in range(rules.size)),
    )


def _most(group: TopologyGroup, grows: bool) -> int:  # noqa: FBT001 - a fact, not a switch
    if grows:
        return group.max_skew - 1
    return group.max_skew if group.kind is TopologyKind.SPREAD else 0


@final
class FittingNodes:
    """The columns of all nodes by slot, and the lists of nodes that take each class."""

    def __init__(
        self,
        compiled: CompiledProblem,
        plans: Sequence[ClassPlacementPlan],
        host: HostCounts,
    ) -> None:
        self._compiled: Final = compiled
        self._plans: Final = plans
        self._host: Final = host
        size = max(len(compiled.nodes), 1)
        self.free: Amounts = np.full((len(compiled.resources), size), -1, dtype=np.int64)
        """resources x slots: what is left on each."""
        self.signature: Numbers = np.zeros(size, dtype=np.int64)
        self._keys: Final = dict[int, tuple[bool, str]]()
        self._in_use: Final = set[int]()
        self._excluded: frozenset[int] = frozenset()
        self._is_excluded: Mask = np.zeros(size, dtype=np.bool_)
        self._order: Numbers | None = None
        self._open: Numbers | None = None
        self._positions: Numbers = np.empty(0, dtype=np.int64)
        self._ranks: list[int] = []
        self._lists: Final = dict[FittingNodesKey, "array[int]"]()
        self._good: Final = dict[tuple[int, int], bool]()

    def put(self, slot: int, key: tuple[bool, str], signature: int, free: Sequence[int]) -> None:
        """Set the columns of a slot; `key` is its node's place in the order of filling."""
        self._keys[slot] = key
        self.free[:, slot] = free
        self.signature[slot] = signature
        self._in_use.add(signature)

    def renew(self, slot: int, signature: int, free: Sequence[int]) -> None:
        """Set the columns of a slot whose node stays at its place in the order."""
        self.free[:, slot] = free
        self.signature[slot] = signature
        self._in_use.add(signature)
        self._lists.clear()
        self._open = None

    def exclude(self, slots: frozenset[int]) -> None:
        """Exclude these slots: no more pods are put there."""
        if slots != self._excluded:
            self._lists.clear()
        self._excluded = slots
        self._is_excluded[:] = False
        self._is_excluded[list(slots)] = True
        self._open = None

    @property
    def excluded(self) -> frozenset[int]:
        """Slots that take nothing."""
        return self._excluded

    @property
    def order(self) -> Numbers:
        """All slots in use, in the order in which they are filled."""
        if self._order is None:
            order: Numbers = np.array(
                sorted(self._keys, key=self._keys.__getitem__), dtype=np.int64
            )
            positions = np.zeros_like(self.signature)
            positions[order] = np.arange(len(order))
            ranks: list[int] = positions.tolist()
            self._order, self._positions, self._ranks = order, positions, ranks
        return self._order

    @property
    def ranks(self) -> Sequence[int]:
        """The places of all slots in the order."""
        _ = self.order
        return self._ranks

    def positions(self, slots: Iterable[int]) -> list[int]:
        """Return where slots are in the order."""
        ranks = self.ranks
        return [ranks[slot] for slot in slots]

    def fitting_mask(self, numbers: Iterable[int]) -> Mask:
        """Say of the slots in their order which may take a pod of any of these classes."""
        order = self.order
        may = np.zeros(len(order), dtype=np.bool_)
        for number in numbers:
            plan = self._plans[number]
            if plan.is_plain and not plan.has_wishes:
                listed = np.frombuffer(self.fitting_slots(plan.anywhere), dtype=np.int32)
                may[self._positions[listed]] = True
            else:
                room = self.free[:, order]
                fits = [room[line] >= least for line, least in plan.asked]
                may |= np.logical_and.reduce([*fits, ~self._is_excluded[order]])
        return may

    def fitting_slots(self, key: FittingNodesKey) -> array[int]:
        """Return the slots that take one more pod of a class (in a domain), in their order."""
        slots = self._lists.get(key)
        if slots is None:
            slots = self._lists[key] = self._scan(*key)
        return slots

    def _scan(self, number: int, axis: int, domains: int) -> array[int]:
        plan, slots = self._plans[number], self._open_slots()
        if not len(slots):
            return array("i")
        good = np.zeros(max(self._in_use) + 1, dtype=np.bool_)
        for signature in self._in_use:
            good[signature] = self._is_good(number, signature, axis, domains)
        able = good[self.signature[slots]]
        for line, amount in plan.asked:
            able &= self.free[line, slots] >= amount
        for rule in plan.host:
            counts = self._host.array(rule.group, self.signature.shape[0])
            able &= counts[slots] <= rule.max_count
        return array("i", slots[able].astype(np.int32).tobytes())

    def _open_slots(self) -> Numbers:
        """Return the slots that take another pod at all, in their order."""
        if self._open is None:
            places = self.free[self._compiled.resources.index(PODS)]
            order = self.order
            self._open = order[(places[order] > 0) & ~self._is_excluded[order]]
        return self._open

    def _is_good(self, number: int, signature: int, axis: int, domains: int) -> bool:
        key = (number, signature)
        good = self._good.get(key)
        signatures = self._compiled.signatures
        if good is None:
            node_constraints = self._compiled.classes[number].relaxation_steps[0].node_constraints
            good = self._good[key] = signatures.join(signature, node_constraints) != NO_MATCH
        if axis < 0 or not good:
            return good
        domain = signatures.domain(axis, signature)
        return domain >= 0 and bool(domains >> domain & 1)
