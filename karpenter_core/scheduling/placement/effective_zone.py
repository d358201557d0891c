"""In which zones pending pods can still go, as far as they and their surroundings say.

A metric, no decision: what counts is what holds before a pass places anything. A pod is tied to a
zone by its own labels, by its volumes, and by the pods that its topology constraints look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from karpenter_core.api.labels import ZONE
from karpenter_core.scheduling.placement.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.compiled.classes import PodClass
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.ties import Ties
    from karpenter_core.scheduling.problem import PodVolumes, Problem

__all__ = ["FLEXIBLE", "NONE", "pending_pods_by_zone"]

FLEXIBLE: Final = "flexible"
"""More than one zone, or nothing that ties the pod to zones."""
NONE: Final = "none"
"""No zone has all that the pod asks for."""


def pending_pods_by_zone(problem: Problem, compiled: CompiledProblem) -> Mapping[str, int]:
    """Count pods in phase Pending by the one zone they can go to, `flexible` or `none`.

    Upstream's metric. Preferences count as long as they are not given up, except those over node
    labels; a pod that may choose the zone for others like it counts as flexible.
    """
    counts = Counts(compiled)
    found: dict[str, int] = {}
    known: dict[tuple[Ties, ...], str] = {}
    for pod_class, ties in zip(compiled.classes, compiled.ties, strict=True):
        waiting = sum([pod.phase == "Pending" for pod in pod_class.members])
        if waiting:
            volumes = problem.volumes.get(pod_class.members[0].uid)
            zone = None if volumes else known.get(ties)
            if zone is None:
                zone = _zone(pod_class, ties, volumes, counts, compiled)
                if not volumes:
                    known[ties] = zone  # classes that share ties ask the same of zones
            found[zone] = found.get(zone, 0) + waiting
    return dict(sorted(found.items()))


def _zone(
    pod_class: PodClass,
    ties: tuple[Ties, ...],
    volumes: PodVolumes | None,
    counts: Counts,
    compiled: CompiledProblem,
) -> str:
    if not pod_class.rungs:
        return NONE
    asked = pod_class.rungs[0].strict.get(ZONE)
    mounted = None if volumes is None else _zones_of_volumes(volumes)
    around = _zones_by_topology(pod_class, ties[0], counts, compiled)
    told = asked.values if asked.operator == "In" else None
    zones: frozenset[str] | None = None
    for tied in (told, mounted, around):
        if tied is not None:
            zones = tied if zones is None else zones & tied
    if zones is None:
        return FLEXIBLE
    fitting = sorted(zone for zone in zones if asked.has(zone))
    if len(fitting) == 1:
        return fitting[0]
    return FLEXIBLE if fitting else NONE


def _zones_of_volumes(volumes: PodVolumes) -> frozenset[str] | None:
    """Return the zones that some alternative names; None when one of them names none."""
    zones: set[str] = set()
    for alternative in volumes.alternatives:
        asked = alternative.get(ZONE)
        if asked.operator != "In":
            return None
        zones |= asked.values
    return frozenset(zones) if volumes.alternatives else None


def _zones_by_topology(
    pod_class: PodClass, ties: Ties, counts: Counts, compiled: CompiledProblem
) -> frozenset[str] | None:
    """Return the zones that the pod's own constraints over zones allow; None without any."""
    owned = tuple(group for group in pod_class.rungs[0].owned if group.key == ZONE)
    if not owned:
        return None
    axis = next(axis for axis in compiled.axes if axis.key == ZONE)
    own = replace(ties, host=(), zonal={axis.number: owned})
    return frozenset(axis.names[d] for d in counts.domain_caps(own, axis.number).domains)
