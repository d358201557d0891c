"""Sorts the topology groups that concern a class at a rung by what they count on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.scheduling.compiled.axes import Axis
    from karpenter_core.scheduling.compiled.classes import PodClass, Rung
    from karpenter_core.scheduling.compiled.topology import Group
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["Ties", "find_ties"]


class Ties(Struct, frozen=True, kw_only=True, eq=False):
    """The groups that concern a class at a rung, sorted by what they count on.

    `grows` are the indices of the groups whose counts grow with the class itself; `zonal` has the
    restricting groups of each axis, `allowed` the domains the class may be in at all (None: all).
    """

    host: tuple[Group, ...]
    zonal: Mapping[int, tuple[Group, ...]]
    allowed: Mapping[int, tuple[bool, ...] | None]
    counted_axes: tuple[int, ...]
    grows: frozenset[int]


def find_ties(classes: Sequence[PodClass], axes: Sequence[Axis]) -> tuple[tuple[Ties, ...], ...]:
    """Return the groups that concern each class at each of its rungs."""
    numbers = {axis.key: axis.number for axis in axes}
    known: dict[object, Ties] = {}
    found: list[tuple[Ties, ...]] = []
    for pod_class in classes:
        of_class: list[Ties] = []
        for rung in pod_class.rungs:
            key = (rung.bound, rung.strict, pod_class.counted)
            ties = known.get(key)
            if ties is None:
                ties = known[key] = _ties(pod_class, rung, axes, numbers)
            of_class.append(ties)
        found.append(tuple(of_class))
    return tuple(found)


def _ties(
    pod_class: PodClass, rung: Rung, axes: Sequence[Axis], numbers: Mapping[str, int]
) -> Ties:
    zonal: dict[int, tuple[Group, ...]] = {}
    for group in rung.bound:
        if not group.is_host:
            axis = numbers[group.key]
            zonal[axis] = (*zonal.get(axis, ()), group)
    counted = {numbers[group.key] for group in pod_class.counted if not group.is_host}
    return Ties(
        host=tuple(group for group in rung.bound if group.is_host),
        zonal=dict(sorted(zonal.items())),
        allowed={axis: _allowed(rung.strict, axes[axis]) for axis in zonal},
        counted_axes=tuple(sorted(counted - zonal.keys())),
        grows=frozenset(group.index for group in pod_class.counted),
    )


def _allowed(strict: Requirements, axis: Axis) -> tuple[bool, ...] | None:
    if axis.key not in strict:
        return None
    asked = strict.get(axis.key)
    return tuple(asked.has(name) for name in axis.names)
