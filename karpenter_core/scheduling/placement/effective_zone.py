"""Counts pending pods by the zone that they are tied to (a metric).

A metric, no decision: it counts the state before a pass places anything. A pod is tied to a zone by
its node selector and affinity, by its volumes, and by the pods that its topology constraints count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from karpenter_core.api.labels import ZONE
from karpenter_core.scheduling.placement.topology_counts import TopologyCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.pod_classes import PodClass
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.problem import PodVolumes, SchedulingProblem

__all__ = ["FLEXIBLE", "NONE", "pending_pods_by_zone"]

FLEXIBLE: Final = "flexible"
"""More than one zone, or nothing that ties the pod to zones."""
NONE: Final = "none"
"""No zone has all that the pod asks for."""


def pending_pods_by_zone(
    problem: SchedulingProblem, compiled: CompiledProblem
) -> Mapping[str, int]:
    """Count pods in phase Pending by the one zone they can go to, `flexible` or `none`.

    Upstream's metric. Preferences count as long as they are not given up, except those over node
    labels; a pod that may choose the zone for others like it counts as flexible.
    """
    counts = TopologyCounts(compiled)
    pods_by_zone: dict[str, int] = {}
    zone_by_topologies: dict[tuple[ClassTopology, ...], str] = {}
    for pod_class, topology in zip(compiled.classes, compiled.topologies, strict=True):
        if pod_class.shape.virtual_source is not None:
            continue
        waiting = sum([pod.phase == "Pending" for pod in pod_class.members])
        if waiting:
            volumes = problem.volumes.get(pod_class.members[0].uid)
            zone = None if volumes else zone_by_topologies.get(topology)
            if zone is None:
                zone = _zone(pod_class, topology, volumes, counts, compiled)
                if not volumes:
                    zone_by_topologies[topology] = (
                        zone  # classes that share ties ask the same of zones
                    )
            pods_by_zone[zone] = pods_by_zone.get(zone, 0) + waiting
    return dict(sorted(pods_by_zone.items()))


def _zone(
    pod_class: PodClass,
    topology: tuple[ClassTopology, ...],
    volumes: PodVolumes | None,
    counts: TopologyCounts,
    compiled: CompiledProblem,
) -> str:
    if not pod_class.relaxation_steps:
        return NONE
    zone_requirement = pod_class.relaxation_steps[0].strict.get(ZONE)
    mounted = None if volumes is None else _zones_of_volumes(volumes)
    around = _zones_by_topology(pod_class, topology[0], counts, compiled)
    required_zones = zone_requirement.values if zone_requirement.operator == "In" else None
    zones: frozenset[str] | None = None
    for tied in (required_zones, mounted, around):
        if tied is not None:
            zones = tied if zones is None else zones & tied
    if zones is None:
        return FLEXIBLE
    fitting = sorted(zone for zone in zones if zone_requirement.has(zone))
    if len(fitting) == 1:
        return fitting[0]
    return FLEXIBLE if fitting else NONE


def _zones_of_volumes(volumes: PodVolumes) -> frozenset[str] | None:
    """Return the zones that some alternative names; None when one of them names none."""
    zones: set[str] = set()
    for alternative in volumes.alternatives:
        zone_requirement = alternative.get(ZONE)
        if zone_requirement.operator != "In":
            return None
        zones |= zone_requirement.values
    return frozenset(zones) if volumes.alternatives else None


def _zones_by_topology(
    pod_class: PodClass, topology: ClassTopology, counts: TopologyCounts, compiled: CompiledProblem
) -> frozenset[str] | None:
    """Return the zones that the pod's own constraints over zones allow; None without any."""
    owned = tuple(group for group in pod_class.relaxation_steps[0].owned if group.key == ZONE)
    if not owned:
        return None
    axis = next(axis for axis in compiled.axes if axis.key == ZONE)
    own = replace(topology, zonal={axis.number: owned})
    return frozenset(axis.names[d] for d in counts.domain_caps(own, axis.number).domains)
