"""Gives very many pods the spread over zones that the scheduler gives them.

kube-scheduler prefers nodes in zones with fewer pods of the same ReplicaSet, if the pods have no topology
spread of their own (its built-in constraint for zones: `maxSkew: 5`, `ScheduleAnyway`). Where pods
are nominated for the planned nodes that decides nothing, and a plan is free to have them all in the cheapest
zone. So many pods are not nominated. Planned in one zone and bound in all, they take the capacity that the
plan has for pods that must be in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.labels import ZONE
from karpenter_core.api.records import LabelSelector, TopologySpread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import PodShape, PodView

__all__ = ["MOST_NOMINATED_PODS", "with_builtin_spread"]

MOST_NOMINATED_PODS: Final = 1000
"""The number of waiting pods up to which pods are nominated for nodes."""

_MAX_SKEW: Final = 5  # kube-scheduler's built-in constraint for zones
_REPLICA_SET: Final = ("apps/v1", "ReplicaSet")


def with_builtin_spread(pods: Sequence[PodView]) -> Sequence[PodView]:
    """Return the pods of a pass, with that spread if they are too many to be nominated.

    Pods of one shape have one shape again, so that they stay one class. The pods counted are those
    with the same labels, which are those of the ReplicaSet.
    """
    if len(pods) <= MOST_NOMINATED_PODS:
        return pods
    shapes: dict[int, PodShape] = {}
    spread: list[PodView] = []
    for pod in pods:
        shape = shapes.get(id(pod.shape))
        if shape is None:
            shape = shapes[id(pod.shape)] = _spread(pod.shape)
        spread.append(pod if shape is pod.shape else msgspec.structs.replace(pod, shape=shape))
    return spread


def _spread(shape: PodShape) -> PodShape:
    owner = (shape.owner_api_version, shape.owner_kind)
    if (
        shape.topology_spread
        or not shape.labels
        or not shape.owner_controls
        or owner != _REPLICA_SET
    ):
        return shape
    constraint = TopologySpread(
        topology_key=ZONE,
        max_skew=_MAX_SKEW,
        when_unsatisfiable="ScheduleAnyway",
        selector=LabelSelector(match_labels=shape.labels),
    )
    return msgspec.structs.replace(shape, topology_spread=(constraint,))
