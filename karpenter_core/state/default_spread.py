"""Gives pods without topology spread the scheduler's default constraints.

The Kubernetes scheduler applies its default constraints to every pod without any, and derives the
pods to count from the Services and the controller of the pod. A plan without them would put pods
where the scheduler does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.api.records import LabelSelector, LabelSelectorRequirement
from karpenter_core.state.object_kinds import workload_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import PodShape, PodView, TopologySpread
    from karpenter_core.api.workload_records import ServiceView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["DefaultSpread"]

_REPLICATION_CONTROLLER: Final = ("v1", "ReplicationController")
_WITH_SELECTOR: Final = frozenset({("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")})


@final
class DefaultSpread:
    """Gives pods without constraints of their own the default ones, for one snapshot.

    Pods of one shape and one owner get one shape again, so that they stay one class.
    """

    __slots__ = ("_constraints", "_services", "_shapes", "_snapshot")

    def __init__(self, snapshot: Snapshot, constraints: tuple[TopologySpread, ...]) -> None:
        self._snapshot = snapshot
        self._constraints = constraints
        self._shapes: dict[tuple[int, str], PodShape] = {}
        self._services = _by_namespace(snapshot.services.values()) if constraints else {}

    def apply(self, pod: PodView) -> PodView:
        """Return the pod as it is to be scheduled: itself, or a copy with the default spread."""
        if not self._constraints or pod.shape.topology_spread:
            return pod
        key = (id(pod.shape), pod.owner_name if pod.shape.owner_controls else "")
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._spread(pod)
        return pod if shape is pod.shape else msgspec.structs.replace(pod, shape=shape)

    def _spread(self, pod: PodView) -> PodShape:
        selector = self._selector(pod)
        if not selector.match_labels and not selector.match_expressions:
            return pod.shape
        constraints = tuple(
            msgspec.structs.replace(constraint, selector=selector)
            for constraint in self._constraints
        )
        return msgspec.structs.replace(pod.shape, topology_spread=constraints)

    def _selector(self, pod: PodView) -> LabelSelector:
        """Return the selector of the pods that the scheduler counts together with this one.

        It combines the selectors of Services and of the controller. A ReplicationController's
        labels override those of Services; the selector of a ReplicaSet or StatefulSet is added.
        Other owners, and owners that are gone, add nothing.
        """
        shape = pod.shape
        labels: dict[str, str] = {}
        for service in self._services.get(shape.namespace, ()):
            service_labels = service.selector or {}
            if all(shape.labels.get(key) == value for key, value in service_labels.items()):
                labels.update(service_labels)
        expressions: tuple[LabelSelectorRequirement, ...] = ()
        owner = (shape.owner_api_version, shape.owner_kind)
        if shape.owner_controls and owner in {_REPLICATION_CONTROLLER, *_WITH_SELECTOR}:
            key = workload_key(shape.owner_kind, shape.namespace, pod.owner_name)
            workload = self._snapshot.workloads.get(key)
            workload_selector = None if workload is None else workload.selector
            if workload_selector is not None and owner == _REPLICATION_CONTROLLER:
                labels.update(workload_selector.match_labels)
            elif workload_selector is not None:
                expressions = (
                    *_as_expressions(workload_selector.match_labels),
                    *workload_selector.match_expressions,
                )
        return LabelSelector(match_labels=labels, match_expressions=expressions)


def _by_namespace(services: Iterable[ServiceView]) -> dict[str, list[ServiceView]]:
    """Group Services by namespace, ordered by name so that the result is deterministic."""
    grouped: dict[str, list[ServiceView]] = {}
    for service in sorted(services, key=lambda item: (item.namespace, item.name)):
        grouped.setdefault(service.namespace, []).append(service)
    return grouped


def _as_expressions(labels: Mapping[str, str]) -> tuple[LabelSelectorRequirement, ...]:
    return tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted(labels.items())
    )
