"""Sorts the topology groups of a pod class by what they count on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from karpenter_core.scheduling.compiled.topology import TopologyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.scheduling.compiled.pod_classes import ClassRelaxationStep, PodClass
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["ClassTopology", "find_class_topologies"]


class ClassTopology(Struct, frozen=True, kw_only=True, eq=False):
    """The topology groups of a class at a relaxation step, sorted by what they count on.

    `grows` are the indices of the groups whose counts grow with the class itself; `zonal` has the
    restricting groups of each axis, `allowed` the domains the class may be in at all (None: all).
    `siblings` are, by the index of a pod affinity group, those that count the same pods by other
    labels; groups without any are absent.
    """

    host: tuple[TopologyGroup, ...]
    zonal: Mapping[int, tuple[TopologyGroup, ...]]
    allowed: Mapping[int, tuple[bool, ...] | None]
    counted_axes: tuple[int, ...]
    grows: frozenset[int]
    siblings: Mapping[int, tuple[TopologyGroup, ...]]


def find_class_topologies(
    classes: Sequence[PodClass], axes: Sequence[TopologyAxis]
) -> tuple[tuple[ClassTopology, ...], ...]:
    """Return the topology groups of each class at each of its relaxation steps."""
    numbers = {axis.key: axis.number for axis in axes}
    topology_by_key: dict[object, ClassTopology] = {}
    topologies: list[tuple[ClassTopology, ...]] = []
    for pod_class in classes:
        of_class: list[ClassTopology] = []
        for relaxation_step in pod_class.relaxation_steps:
            key = (relaxation_step.bound, relaxation_step.strict, pod_class.counted)
            topology = topology_by_key.get(key)
            if topology is None:
                topology = topology_by_key[key] = _class_topology(
                    pod_class, relaxation_step, axes, numbers
                )
            of_class.append(topology)
        topologies.append(tuple(of_class))
    return tuple(topologies)


def _class_topology(
    pod_class: PodClass,
    relaxation_step: ClassRelaxationStep,
    axes: Sequence[TopologyAxis],
    numbers: Mapping[str, int],
) -> ClassTopology:
    zonal: dict[int, tuple[TopologyGroup, ...]] = {}
    for group in relaxation_step.bound:
        if not group.is_host:
            axis = numbers[group.key]
            zonal[axis] = (*zonal.get(axis, ()), group)
    counted = {numbers[group.key] for group in pod_class.counted if not group.is_host}
    return ClassTopology(
        host=tuple(group for group in relaxation_step.bound if group.is_host),
        zonal=dict(sorted(zonal.items())),
        allowed={axis: _allowed(relaxation_step.strict, axes[axis]) for axis in zonal},
        counted_axes=tuple(sorted(counted - zonal.keys())),
        grows=frozenset(group.index for group in pod_class.counted),
        siblings=_siblings(relaxation_step.bound),
    )


def _siblings(groups: Iterable[TopologyGroup]) -> dict[int, tuple[TopologyGroup, ...]]:
    by_pods: dict[object, list[TopologyGroup]] = {}
    for group in groups:
        if group.kind is TopologyKind.AFFINITY:
            by_pods.setdefault(frozenset((group.pods, *group.other_terms)), []).append(group)
    return {
        group.index: tuple(other for other in same if other is not group)
        for same in by_pods.values()
        if len(same) > 1
        for group in same
    }


def _allowed(strict: Requirements, axis: TopologyAxis) -> tuple[bool, ...] | None:
    if axis.key not in strict:
        return None
    requirement = strict.get(axis.key)
    return tuple(requirement.has(name) for name in axis.names)
