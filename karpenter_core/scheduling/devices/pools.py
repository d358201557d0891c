"""Gathers ResourceSlices by pool, and selects those that a node can use.

A pool is a driver's; only its newest generation counts. It is incomplete while slices of that
generation are missing, and invalid if names are used twice or counters are unknown. Devices of an
incomplete or invalid pool are not allocated, and a request for all devices fails.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.devices import (
        AttributeBinding,
        CounterSet,
        Device,
        DeviceTemplate,
        ResourceSliceView,
    )
    from karpenter_core.api.records import NodeSelectorTerm

__all__ = [
    "DeviceNode",
    "DevicePool",
    "PlacedDevice",
    "PublishedPools",
    "has_complete_pool",
    "node_terms_match",
    "template_pools",
]

_NODE_NAME: Final = "metadata.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """The node that devices are sought for: `name` is empty without a Node.

    `requirements` are its labels, or what is required of a claim; `undecided` are labels that the
    node will have with some value. A planned claim may be narrowed, anything else is what it is.
    """

    requirements: Requirements
    name: str = ""
    undecided: frozenset[str] = frozenset()
    may_narrow: bool

    def narrowed(self, terms: tuple[NodeSelectorTerm, ...]) -> DeviceNode | None:
        """Return the node restricted to what one of the terms selects; None if none can."""
        if not terms:
            return self
        for term in terms:
            if term.match_fields and not self._has_fields(term):
                continue
            selected = Requirements.from_expressions(term.match_expressions)
            if not self.may_narrow:
                if self.requirements.guarantees(selected, undecided=self.undecided):
                    return self
            elif self.requirements.compatible(selected, allow_undefined=self.undecided):
                return replace(self, requirements=self.requirements.merge(selected))
        return None

    def _has_fields(self, term: NodeSelectorTerm) -> bool:
        return bool(self.name) and all(
            field.key == _NODE_NAME and field.operator == "In" and self.name in field.values
            for field in term.match_fields
        )


def node_terms_match(terms: tuple[NodeSelectorTerm, ...], node: DeviceNode) -> bool:
    """Tell whether a node is selected; no terms select every node."""
    return node.narrowed(terms) is not None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedDevice:
    """A device of a pool, with the nodes that can use it; `is_local`: one node only."""

    pool: DevicePool
    device: Device
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    is_local: bool
    bindings: frozenset[int] = frozenset()
    """The attribute bindings of the instance type that the device is in."""

    @property
    def id(self) -> tuple[str, str, str]:
        """Driver, pool and name."""
        return (self.pool.driver, self.pool.name, self.device.name)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DevicePool:
    """One pool as one node sees it; `problem` says why its devices cannot be allocated."""

    driver: str
    name: str
    devices: tuple[PlacedDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...]
    problem: str
    is_template: bool = False

    @cached_property
    def budgets(self) -> Mapping[tuple[str, str], Decimal]:
        """The amounts of all counters, by set and name."""
        return {
            (one.name, name): value for one in self.counter_sets for name, value in one.counters
        }


@final
class _PublishedPool:
    """The newest generation of a pool: all its slices, for whichever nodes."""

    def __init__(self, driver: str, name: str, slices: Sequence[ResourceSliceView]) -> None:
        self.driver: Final = driver
        self.name: Final = name
        newest = max(one.generation for one in slices)
        self.slices: Final = tuple(one for one in slices if one.generation == newest)
        expected = max(one.slice_count for one in self.slices)
        self.problem: Final = (
            f"is incomplete ({len(self.slices)} of {expected} slices are published)"
            if len(self.slices) != expected
            else _invalid(
                [device for one in self.slices for device in one.devices],
                [counters for one in self.slices for counters in one.counter_sets],
            )
        )

    @cached_property
    def counter_sets(self) -> tuple[CounterSet, ...]:
        return tuple(counters for one in self.slices for counters in one.counter_sets)

    def seen_by(self, node: DeviceNode) -> DevicePool | None:
        """Return what a node sees of the pool; None if no slice is for it."""
        pool = DevicePool(
            driver=self.driver,
            name=self.name,
            counter_sets=self.counter_sets,
            problem=self.problem,
        )
        devices: list[PlacedDevice] = []
        is_seen = False
        for one in self.slices:
            if not one.selects_by_device:
                if one.counter_sets and not one.devices:
                    continue
                if not _selects(one, node):
                    continue
            is_seen = True
            for device in one.devices:
                place = device if one.selects_by_device else one
                if _selects(place, node):
                    devices.append(
                        PlacedDevice(
                            pool=pool,
                            device=device,
                            node_terms=place.node_terms,
                            is_local=bool(place.node_name) or device.binds_to_node,
                        )
                    )
        if not is_seen or (not devices and not self.problem):
            return None
        return replace(pool, devices=tuple(replace(one, pool=pool) for one in devices))


def _selects(place: ResourceSliceView | Device, node: DeviceNode) -> bool:
    if place.node_name:
        return place.node_name == node.name
    if place.node_terms:
        return node_terms_match(place.node_terms, node)
    return place.all_nodes


def _invalid(devices: Iterable[Device], counter_sets: Sequence[CounterSet]) -> str:
    """Return why a pool is invalid; empty if it is not."""
    devices = tuple(devices)
    twice = sorted(name for name, count in Counter(d.name for d in devices).items() if count > 1)
    if twice:
        return f'is invalid (two devices are named "{twice[0]}")'
    twice = sorted(
        name for name, count in Counter(one.name for one in counter_sets).items() if count > 1
    )
    if twice:
        return f'is invalid (two counter sets are named "{twice[0]}")'
    known = {one.name: {name for name, _ in one.counters} for one in counter_sets}
    for device in devices:
        for use in device.counter_uses:
            if use.counter_set not in known:
                return (
                    f'is invalid (device "{device.name}" uses the unknown counter set '
                    f'"{use.counter_set}")'
                )
            for name, _ in use.counters:
                if name not in known[use.counter_set]:
                    return (
                        f'is invalid (device "{device.name}" uses the unknown counter "{name}" of '
                        f'"{use.counter_set}")'
                    )
    return ""


@final
class PublishedPools:
    """The pools that ResourceSlices describe.

    Slices that belong to a node are seen by that node alone; they are looked up by its name.
    """

    def __init__(self, slices: Iterable[ResourceSliceView]) -> None:
        grouped: dict[tuple[str, str], list[ResourceSliceView]] = {}
        for one in slices:
            grouped.setdefault((one.driver, one.pool), []).append(one)
        pools = [
            _PublishedPool(driver, name, grouped[driver, name]) for driver, name in sorted(grouped)
        ]
        self._of_node: Final = dict[str, list[_PublishedPool]]()
        self._shared: Final = list[_PublishedPool]()
        for pool in pools:
            names = {
                place.node_name
                for one in pool.slices
                if one.devices or not one.counter_sets
                for place in (one.devices if one.selects_by_device else (one,))
            }
            if "" in names or not names:
                self._shared.append(pool)
            else:
                for name in sorted(names):
                    self._of_node.setdefault(name, []).append(pool)
        self._devices: Final = {
            (pool.driver, pool.name, device.name): (pool, one, device)
            for pool in pools
            for one in pool.slices
            for device in one.devices
        }

    def seen_by(self, node: DeviceNode, *, local: bool = True) -> tuple[DevicePool, ...]:
        """Return the pools that a node sees, by driver and name; not `local`: without its own."""
        own = self._of_node.get(node.name, ()) if local and node.name else ()
        if not own and not self._shared:
            return ()
        seen = (pool.seen_by(node) for pool in (*own, *self._shared))
        pools = [pool for pool in seen if pool is not None]
        return tuple(sorted(pools, key=lambda pool: (pool.driver, pool.name)))

    def node_names(self) -> Iterator[tuple[tuple[str, str, str], str, bool]]:
        """Yield the id of every device, its node, and whether its pool can be allocated.

        The node is empty if the device is not of one node.
        """
        for device_id, (pool, part, device) in self._devices.items():
            place = device if part.selects_by_device else part
            yield device_id, place.node_name, not pool.problem

    def device(self, driver: str, pool: str, name: str) -> Device | None:
        """Return a published device."""
        found = self._devices.get((driver, pool, name))
        return None if found is None else found[2]


def template_pools(
    templates: Iterable[DeviceTemplate], bindings: Sequence[AttributeBinding]
) -> tuple[DevicePool, ...]:
    """Return the pools that drivers will publish on one new node of an instance type.

    Templates with the same driver and pool describe one pool together.
    """
    grouped: dict[tuple[str, str], list[DeviceTemplate]] = {}
    for template in templates:
        grouped.setdefault((template.driver, template.pool), []).append(template)
    pools: list[DevicePool] = []
    for (driver, name), parts in sorted(grouped.items()):
        devices = [device for part in parts for device in part.devices]
        counter_sets = tuple(counters for part in parts for counters in part.counter_sets)
        pool = DevicePool(
            driver=driver,
            name=name,
            counter_sets=counter_sets,
            problem=_invalid(devices, counter_sets),
            is_template=True,
        )
        placed = tuple(
            PlacedDevice(
                pool=pool,
                device=device,
                is_local=True,
                bindings=frozenset(
                    number
                    for number, binding in enumerate(bindings)
                    if (driver, name, device.name) in binding.devices
                ),
            )
            for device in devices
        )
        pools.append(replace(pool, devices=placed))
    return tuple(pools)


def has_complete_pool(slices: Iterable[ResourceSliceView], driver: str) -> bool:
    """Tell whether some pool of a driver is complete at its newest generation.

    `slices` are those of one node.
    """
    generations: dict[str, list[ResourceSliceView]] = {}
    for one in slices:
        if one.driver == driver:
            generations.setdefault(one.pool, []).append(one)
    for members in generations.values():
        newest = max(one.generation for one in members)
        current = [one for one in members if one.generation == newest]
        if len(current) == max(one.slice_count for one in current) > 0:
            return True
    return False
