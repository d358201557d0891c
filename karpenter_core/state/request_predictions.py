"""Predicts the requests that pods will have when they are created again.

The admission controller of the VerticalPodAutoscaler sets the requests of pods when they are created. A
pod that is moved is created again, so its new node needs capacity for the recommended requests, not for
the current ones.

A recommendation below the current requests may never be applied: no admission controller runs, or a
LimitRange or another webhook sets the requests. The pod would come back as large as it was, and be moved
again without end. So requests are only predicted to become lower if nothing shows that a new pod keeps
them: a pod that is younger than twelve hours has what new pods get, and one that was created beside the
autoscaler, without its annotation, was not changed by it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from karpenter_core.api.container_requests import total_requests
from karpenter_core.api.labels import CPU, MEMORY, VPA_OBSERVED
from karpenter_core.scheduling.resources import element_max
from karpenter_core.state.workload_names import deployment_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.autoscalers import ContainerScaling, VerticalPodAutoscalerView
    from karpenter_core.api.records import PodShape, PodView, Resources
    from karpenter_core.scheduling.problem import DaemonPod
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["RequestPredictions", "predicted_requests"]

_CONTROLLED: Final = (CPU, MEMORY)
_ALL_CONTAINERS: Final = "*"
_EVER: Final = datetime.max.replace(tzinfo=UTC)
_CRON_RUN: Final = re.compile(r"-\d+$")
_YOUNG: Final = timedelta(hours=12)
"""The autoscaler itself gives pods so long before it moves them for a small change."""


class _Workload(NamedTuple):
    """A controller of pods that an autoscaler may have as its target."""

    group: str
    kind: str
    namespace: str
    name: str


class _Prediction(NamedTuple):
    """The requests of new pods of a workload, by container, and the age of their autoscaler."""

    requests: Mapping[str, Resources]
    since: datetime


class _PredictedShapes(NamedTuple):
    """The shapes that pods of one shape get when they are created again."""

    as_recommended: PodShape
    raised: PodShape
    """With no request below the current one."""
    since: datetime


def predicted_requests(autoscaler: VerticalPodAutoscalerView) -> dict[str, Resources]:
    """Return the requests that an autoscaler gives to new pods, by container.

    Other containers, and resources that it does not control, keep theirs.
    """
    if autoscaler.is_off:
        return {}
    predicted: dict[str, Resources] = {}
    for container, target in autoscaler.targets.items():
        policy = _policy_of(autoscaler, container)
        if policy is not None and policy.is_off:
            continue
        controlled = _CONTROLLED
        if policy is not None and policy.controlled is not None:
            controlled = policy.controlled
        requests = {
            name: _bounded(target[name], name, policy) for name in controlled if name in target
        }
        boost = policy.startup_boost if policy is not None else None
        boost = autoscaler.startup_boost if boost is None else boost
        if boost is not None and CPU in requests:
            requests[CPU] = requests[CPU] * boost.factor + boost.added
        if requests:
            predicted[container] = requests
    return predicted


def _policy_of(autoscaler: VerticalPodAutoscalerView, container: str) -> ContainerScaling | None:
    by_container = {policy.container: policy for policy in reversed(autoscaler.policies)}
    return by_container.get(container, by_container.get(_ALL_CONTAINERS))


def _bounded(amount: int, name: str, policy: ContainerScaling | None) -> int:
    if policy is None:
        return amount
    if amount < policy.minimum.get(name, amount):
        return policy.minimum[name]
    return min(amount, policy.maximum.get(name, amount))


@final
class RequestPredictions:
    """The predictions for one snapshot.

    Pods of one shape and one workload get one shape again, so that they stay one class, or two if
    some of them are young.
    """

    __slots__ = ("_by_workload", "_now", "_shapes", "_snapshot")

    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._by_workload = _by_workload(snapshot.vertical_pod_autoscalers.values())
        self._shapes: dict[tuple[int, str], _PredictedShapes] = {}

    def __bool__(self) -> bool:
        """Tell whether there is any prediction."""
        return bool(self._by_workload)

    def apply(self, pod: PodView) -> PodView:
        """Return the pod as it will be when it is created again."""
        if not self._by_workload or not pod.shape.owner_controls:
            return pod
        key = (id(pod.shape), pod.owner_name)
        shapes = self._shapes.get(key)
        if shapes is None:
            shapes = self._shapes[key] = self._predict(pod.shape, _owners(pod))
        shape = self._chosen(shapes, pod)
        return pod if shape is pod.shape else msgspec.structs.replace(pod, shape=shape)

    def change(self, pod: PodView) -> dict[str, int]:
        """Return by how much the requests of a pod change when it is created again."""
        before, after = pod.shape.requests, self.apply(pod).shape.requests
        if after is before:
            return {}
        return {
            name: change
            for name in after.keys() | before.keys()
            if (change := after.get(name, 0) - before.get(name, 0))
        }

    def apply_to_daemons(self, daemons: Iterable[DaemonPod]) -> tuple[DaemonPod, ...]:
        """Return the pods of DaemonSets as they will be on a new node.

        The newest pod of a DaemonSet shows whether they may be smaller.
        """
        if not self._by_workload:
            return tuple(daemons)
        sets, pods = self._snapshot.daemon_sets, self._snapshot.daemon_pods
        found: list[DaemonPod] = []
        for daemon in daemons:
            workload = _Workload("apps", "DaemonSet", *daemon.name.split("/", 1))
            shapes = self._predict(daemon.shape, (workload,))
            newest = pods.get(sets[daemon.name].uid)
            found.append(replace(daemon, shape=self._chosen(shapes, newest)))
        return tuple(found)

    def _predict(self, shape: PodShape, owners: Iterable[_Workload]) -> _PredictedShapes:
        for owner in owners:
            prediction = self._by_workload.get(owner)
            if prediction is None or shape.request_parts is None:
                continue
            requests = total_requests(shape.request_parts, prediction.requests)
            return _PredictedShapes(
                as_recommended=_with_requests(shape, requests),
                raised=_with_requests(shape, element_max((shape.requests, requests))),
                since=prediction.since,
            )
        return _PredictedShapes(as_recommended=shape, raised=shape, since=_EVER)

    def _chosen(self, shapes: _PredictedShapes, pod: PodView | None) -> PodShape:
        """Return the recommended shape if nothing shows that a pod does not become smaller."""
        if shapes.as_recommended is shapes.raised:
            return shapes.raised
        if pod is None or pod.created is None or self._now - pod.created < _YOUNG:
            return shapes.raised
        is_observed = VPA_OBSERVED in pod.shape.annotations or pod.created < shapes.since
        return shapes.as_recommended if is_observed else shapes.raised


def _with_requests(shape: PodShape, requests: Resources) -> PodShape:
    if requests == shape.requests:
        return shape
    return msgspec.structs.replace(shape, requests=requests)


def _by_workload(autoscalers: Iterable[VerticalPodAutoscalerView]) -> dict[_Workload, _Prediction]:
    """Return the predictions by target; of several autoscalers the oldest counts, as for VPA itself."""
    by_workload: dict[_Workload, _Prediction] = {}
    for item in sorted(autoscalers, key=lambda one: (one.created or _EVER, one.name)):
        workload = _Workload(item.target_group, item.target_kind, item.namespace, item.target_name)
        predicted = predicted_requests(item)
        if predicted and workload not in by_workload:
            by_workload[workload] = _Prediction(predicted, item.created or _EVER)
    return by_workload


def _owners(pod: PodView) -> tuple[_Workload, ...]:
    """Return the controllers of a pod, the uppermost first."""
    shape, namespace = pod.shape, pod.namespace
    group = shape.owner_api_version.rpartition("/")[0]
    own = _Workload(group, shape.owner_kind, namespace, pod.owner_name)
    if name := deployment_name(pod):
        return (_Workload("apps", "Deployment", namespace, name), own)
    cron_job = _CRON_RUN.sub("", pod.owner_name)
    if (group, shape.owner_kind) == ("batch", "Job") and cron_job != pod.owner_name:
        return (_Workload("batch", "CronJob", namespace, cron_job), own)
    return (own,)
