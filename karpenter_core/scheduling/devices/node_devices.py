"""Allocates devices on nodes and planned claims of a plan, and counts them.

A planned claim may still become several instance types. Types with equal devices are one *group*:
each group has an allocation of its own, and a group without one is given up. Devices of templates
are counted for their group alone; of published devices the most that any group of a claim may use
is kept from others. A node that is launched must have an allocation in every group, since it is
not known yet which of them it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.scheduling.devices.allocator import DeviceSources, allocate_devices
from karpenter_core.scheduling.devices.daemon_devices import DaemonDevices
from karpenter_core.scheduling.devices.pod_claims import AllocatedClaim, ClaimTable
from karpenter_core.scheduling.devices.pools import (
    PublishedPools,
    template_pools,
)
from karpenter_core.scheduling.devices.requests import DeviceRefusal
from karpenter_core.scheduling.devices.usage import UsageLayer, UsageView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.devices import InstanceDevices
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.devices.allocator import DeviceAllocation
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.devices.pools import DeviceNode, DevicePool
    from karpenter_core.scheduling.devices.requests import ClaimRequests

__all__ = ["DeviceGroup", "DeviceOffer", "NodeDevices"]

DeviceGroup: TypeAlias = "InstanceDevices | None"
"""The devices of instance types that are alike; None: they have none."""


@dataclass(slots=True, kw_only=True, eq=False)
class _GroupUsage:
    """Devices that the pods of one node use if it becomes a type of this group."""

    own: UsageLayer = field(default_factory=UsageLayer)
    """Devices of templates."""
    published: UsageLayer = field(default_factory=UsageLayer)
    drivers: set[str] = field(default_factory=set[str])


@dataclass(slots=True, kw_only=True, eq=False)
class _NodeUsage:
    """Devices that the pods of one node use, in each group that it may still become."""

    groups: dict[DeviceGroup, _GroupUsage]
    published: UsageLayer = field(default_factory=UsageLayer)
    """The most that any group uses of published devices."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceOffer:
    """Devices for the claims of a pod on a node: an allocation in each group that has one.

    `node` is the node restricted to where all of these devices can be used.
    """

    allocations: Mapping[DeviceGroup, DeviceAllocation]
    node: DeviceNode
    claims: tuple[str, ...]
    """Those that the allocations are for."""
    settled: tuple[str, ...]
    """The other claims of the pod, which have devices already."""
    is_restricted: bool
    """Whether some of the devices can be used on certain nodes only."""


@final
class NodeDevices:
    """The devices of all nodes in one plan; a node is known by its column.

    `considered` are the names of the Nodes that are initialised: what others own does not count.
    """

    def __init__(
        self, inventory: DeviceInventory, *, moving: Iterable[str], considered: frozenset[str]
    ) -> None:
        self._published: Final = PublishedPools(
            one
            for one in inventory.slices
            if (not one.owner_node or one.owner_node in considered)
            and (not one.node_name or one.node_name in considered)
        )
        # Allocated devices may be on nodes that do not count.
        self._claims: Final = ClaimTable(inventory, PublishedPools(inventory.slices), moving)
        self._daemons: Final = DaemonDevices(inventory)
        self._templates: Final = dict["InstanceDevices", "tuple[DevicePool, ...]"]()
        self._nodes: Final = dict[int, _NodeUsage]()
        self._changes: Final = dict[int, int]()
        """The number of allocations on each node, by column."""
        self._shared_changes = 0
        """The number of allocations of devices that several nodes could use."""
        self._fixed: Final = UsageLayer()
        """Devices that pods use on nodes of a known type."""
        self._choosing: Final = dict[int, UsageLayer]()
        """Devices that planned claims and nodes of several possible types use at most, by column."""

    def resolve(
        self, pod: PodView
    ) -> tuple[tuple[ClaimRequests, ...], tuple[AllocatedClaim, ...]] | DeviceRefusal:
        """Return the claims of a pod to allocate, and those that have devices already."""
        return self._claims.resolve(pod)

    def offer(
        self,
        column: int | None,
        pod: PodView,
        node: DeviceNode,
        groups: Iterable[DeviceGroup],
        *,
        daemons: Mapping[DeviceGroup, frozenset[str]] | None,
        every: bool = False,
        local: bool = True,
    ) -> DeviceOffer | DeviceRefusal:
        """Return devices for a pod on a node, or why there are none.

        `column` is None for a new claim. `daemons` are the DaemonSets that will take devices of a
        group. With `every`, each group needs an allocation. `local`: the node's own slices count.
        """
        resolved = self._claims.resolve(pod)
        if isinstance(resolved, DeviceRefusal):
            return resolved
        claims, settled = resolved
        for one in settled:
            restricted = _restricted(node, one, column)
            if restricted is None:
                return DeviceRefusal(message="its devices are allocated, and cannot be used there")
            node = restricted
        usage = None if column is None else self._nodes.get(column)
        allocations: dict[DeviceGroup, DeviceAllocation] = {}
        refusals: list[DeviceRefusal] = []
        pools = self._published.seen_by(node, local=local)
        for group in groups:
            if usage is not None and group not in usage.groups:
                continue
            expected = frozenset[str]() if daemons is None else daemons.get(group, frozenset())
            sources = self._sources(column, usage, group, pools, expected)
            allocation = (
                sources
                if isinstance(sources, DeviceRefusal)
                else allocate_devices(claims, node, sources)
            )
            if isinstance(allocation, DeviceRefusal):
                if isinstance(sources, DeviceSources) and self._daemons.takes(group, expected):
                    names = ", ".join(sorted(expected))
                    allocation = DeviceRefusal(
                        message=f"{allocation.message}; DaemonSets take some: {names}"
                    )
                if every:
                    return allocation
                refusals.append(allocation)
                continue
            allocations[group] = allocation
            node = allocation.node
        if not allocations:
            return min(refusals, key=_rank, default=DeviceRefusal(message="no device is left"))
        return DeviceOffer(
            allocations=allocations,
            node=node,
            claims=tuple(one.claim for one in claims),
            settled=tuple(one.key for one in settled),
            is_restricted=any(one.terms for one in settled)
            or any(
                one.placed.node_terms
                for allocation in allocations.values()
                for one in allocation.picked
            ),
        )

    def question(self, column: int, pod: PodView) -> tuple[int, ...] | None:
        """Return a key of the answer of `offer` for a node that is what it is.

        Equal keys have equal answers. None if there is no such key.
        """
        resolved = self._claims.resolve(pod)
        if isinstance(resolved, DeviceRefusal) or resolved[1]:
            return None
        changes = self._changes.get(column, 0)
        return (self._claims.kind_of(resolved[0]), column, changes, self._shared_changes)

    def _sources(
        self,
        column: int | None,
        usage: _NodeUsage | None,
        group: DeviceGroup,
        pools: tuple[DevicePool, ...],
        daemons: frozenset[str],
    ) -> DeviceSources | DeviceRefusal:
        own = None if usage is None else usage.groups[group]
        layers = [self._claims.layer, self._fixed]
        layers += [layer for other, layer in self._choosing.items() if other != column]
        if own is not None and own.published is not self._fixed:
            layers.append(own.published)
        templates = self._template_pools(group)
        own_layers = [] if own is None else [own.own]
        if daemons:
            taken = self._daemons.layer(group, daemons, templates)
            if isinstance(taken, DeviceRefusal):
                return taken
            own_layers.append(taken)
        return DeviceSources(
            pools=(*pools, *templates),
            layers=tuple(layers),
            own_layers=tuple(own_layers),
            bindings=() if group is None else group.bindings,
        )

    def _template_pools(self, group: DeviceGroup) -> tuple[DevicePool, ...]:
        if group is None:
            return ()
        pools = self._templates.get(group)
        if pools is None:
            pools = self._templates[group] = template_pools(group.templates, group.bindings)
        return pools

    def use_published(self, column: int, name: str, groups: Iterable[DeviceGroup]) -> bool:
        """Count devices in use on a node whose type declares them; False if it declares another.

        A node that is not initialised has the devices of its type, while claims name those that
        its drivers have published.
        """
        used = self._claims.local_devices(name)
        if not used:
            return True
        usage = self._nodes[column] = _NodeUsage(groups={group: _GroupUsage() for group in groups})
        for group, own in usage.groups.items():
            declared = {
                (pool.driver, placed.device.name): placed
                for pool in self._template_pools(group)
                for placed in pool.devices
            }
            for one in used:
                placed = declared.get((one.driver, one.device))
                if placed is None:
                    return False
                first = placed.id not in own.own.users
                own.own.take(placed.id, placed.device, one.consumed, counts=first)
        return True

    def take(self, column: int, pod: PodView, offer: DeviceOffer, *, fixed: bool) -> None:
        """Give a pod what a node offered it; `fixed`: the node is what it is, and has one group."""
        usage = self._nodes.get(column)
        if usage is None:
            usage = self._nodes[column] = _NodeUsage(
                groups={
                    group: _GroupUsage(published=self._fixed) if fixed else _GroupUsage()
                    for group in offer.allocations
                }
            )
        for group in [group for group in usage.groups if group not in offer.allocations]:
            del usage.groups[group]
        for group, allocation in offer.allocations.items():
            self._record(column, usage.groups[group], allocation)
        if not fixed:
            self._update_choice(column, usage)
        self._changes[column] = self._changes.get(column, 0) + 1
        self._shared_changes += any(
            not one.placed.is_local
            for allocation in offer.allocations.values()
            for one in allocation.picked
        )
        for key in offer.claims:
            self._claims.allocated[key] = _allocated_claim(column, key, offer)
        self.join(pod, offer)

    def join(self, pod: PodView, offer: DeviceOffer) -> None:
        """Count a pod among the consumers of its claims, which all have devices."""
        for key in (*offer.claims, *offer.settled):
            self._claims.add_consumer(key, pod)

    def _record(self, column: int, own: _GroupUsage, allocation: DeviceAllocation) -> None:
        base = (self._claims.layer, self._fixed, own.published)
        base += tuple(layer for other, layer in self._choosing.items() if other != column)
        for one in allocation.picked:
            is_template = one.placed.pool.is_template
            if is_template:
                own.drivers.add(one.placed.pool.driver)
            if one.admin_access:
                continue
            layer = own.own if is_template else own.published
            view = UsageView((layer,) if is_template else base)
            layer.take(
                one.placed.id,
                one.placed.device,
                one.consumed,
                counts=not view.is_used(one.placed.id),
            )

    def keep_groups(self, column: int, groups: frozenset[DeviceGroup]) -> None:
        """Give up the groups that a claim cannot become any more."""
        usage = self._nodes.get(column)
        if usage is None or usage.groups.keys() <= groups:
            return
        for group in [group for group in usage.groups if group not in groups]:
            del usage.groups[group]
        self._update_choice(column, usage)

    def _update_choice(self, column: int, usage: _NodeUsage) -> None:
        most = UsageLayer()
        for own in usage.groups.values():
            if own.published is not self._fixed:
                most.raise_to(own.published)
        if most:
            self._choosing[column] = most
        else:
            self._choosing.pop(column, None)

    def drivers(self, column: int) -> tuple[str, ...]:
        """Return the drivers of the devices that pods get from the node itself, in order."""
        usage = self._nodes.get(column)
        if usage is None:
            return ()
        return tuple(sorted({name for own in usage.groups.values() for name in own.drivers}))


def _restricted(
    node: DeviceNode, allocated: AllocatedClaim, column: int | None
) -> DeviceNode | None:
    if allocated.column is not None and allocated.column != column:
        return None
    restricted: DeviceNode | None = node
    for terms in allocated.terms:
        if restricted is None:
            return None
        restricted = restricted.narrowed(terms)
    return restricted


def _allocated_claim(column: int, key: str, offer: DeviceOffer) -> AllocatedClaim:
    picked = [
        one.placed
        for allocation in offer.allocations.values()
        for one in allocation.picked
        if one.claim == key
    ]
    is_local = any(placed.is_local for placed in picked)
    terms = dict.fromkeys(placed.node_terms for placed in picked if placed.node_terms)
    return AllocatedClaim(key=key, terms=tuple(terms), column=column if is_local else None)


def _rank(refusal: DeviceRefusal) -> tuple[bool, bool, str]:
    """Sort refusals: first those of types that have such devices, or at least of the class."""
    message = refusal.message
    return message.startswith("no instance type"), " with " not in message, message
