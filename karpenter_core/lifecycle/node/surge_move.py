"""Decides whether a drained pod is replaced by a rollout before it is evicted.

The only pod of a Deployment is gone from its eviction until another one is ready. A rollout restart
starts the other one first, if the Deployment's strategy permits a pod more. Pods ask for it with the
annotation `karpenter.sh/surge-move`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import SURGE_MOVE
from karpenter_core.api.notices import Notice
from karpenter_core.api.rollouts import RESTARTED_AT
from karpenter_core.api.selectors import selects
from karpenter_core.lifecycle.changes import LifecycleMetric, MergePatch, MetricUpdate
from karpenter_core.lifecycle.node.drain import latest_start
from karpenter_core.state.pod_rules import pod_ref
from karpenter_core.state.workload_names import deployment_name

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.api.rollouts import RolloutView

__all__ = [
    "MOVE_TIMEOUT",
    "SurgeAction",
    "SurgeAdvice",
    "SurgeOutcome",
    "asks_for_surge",
    "early_refusal",
    "refused_move_notice",
    "restart_patch",
    "restarted_notice",
    "surge_advice",
    "surge_metric",
    "waiting_notice",
]

MOVE_TIMEOUT: Final = timedelta(minutes=10)
"""Time after which the pod is evicted although its replacement is not ready."""
_REQUESTED: Final = "true"


class SurgeAction(Enum):
    """The next action in the move of a pod by a rollout."""

    RESTART = "restart the rollout of the Deployment"
    WAIT = "wait for the rollout that replaces the pod"
    EVICT = "evict the pod, as any other"


class SurgeOutcome(Enum):
    """The value of the metric's label `outcome`."""

    RESTARTED = "restarted"
    REPLACED = "replaced"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeAdvice:
    """The action for a pod, with the reason why it is evicted; empty when nothing was asked."""

    action: SurgeAction
    refusal: str = ""


def asks_for_surge(pod: PodView) -> bool:
    """Tell whether a pod asks to be replaced before it is evicted."""
    return pod.shape.annotations.get(SURGE_MOVE) == _REQUESTED


def early_refusal(pod: PodView, *, deadline: datetime | None, now: datetime) -> str:
    """Return why a pod that asks for it is not moved, as far as its Deployment does not matter."""
    if not deployment_name(pod):
        owner = pod.shape.owner_kind or "nothing"
        return f"only the pods of Deployments can be replaced first, and {owner} owns the pod"
    volumes = [one.claim_name for one in pod.shape.volumes if not one.ephemeral]
    if volumes:
        return f"the other pod may have to wait for its PersistentVolumeClaim {volumes[0]}"
    if pod.ready is not True:
        return "the pod is not ready, so that nothing is lost with it"
    if deadline is not None and now + MOVE_TIMEOUT > (latest_start(pod, deadline) or deadline):
        return "the deadline of its node is too near"
    return ""


def surge_advice(
    pod: PodView,
    rollout: RolloutView | None,
    *,
    restarted: bool,
    elapsed: timedelta,
) -> SurgeAdvice:
    """Return the action for a pod that asks to be replaced first.

    `rollout` is that of its Deployment as it is now, None if there is none. `restarted` tells whether
    it was restarted for this pod before, and `elapsed` how long the move has taken.
    """
    refusal = _refusal(pod, rollout)
    if rollout is None or refusal:
        return SurgeAdvice(action=SurgeAction.EVICT, refusal=refusal)
    if rollout.replicas != 1:
        return SurgeAdvice(action=SurgeAction.EVICT)
    if elapsed >= MOVE_TIMEOUT:
        minutes = int(MOVE_TIMEOUT.total_seconds() // 60)
        text = f"Deployment {rollout.key} has not replaced the pod within {minutes} minutes"
        return SurgeAdvice(action=SurgeAction.EVICT, refusal=text)
    if not rollout.is_settled and rollout.is_stuck:
        text = f"the rollout of Deployment {rollout.key} exceeded its progress deadline"
        return SurgeAdvice(action=SurgeAction.EVICT, refusal=text)
    if rollout.is_settled and not restarted:
        return SurgeAdvice(action=SurgeAction.RESTART)
    return SurgeAdvice(action=SurgeAction.WAIT)


def _refusal(pod: PodView, rollout: RolloutView | None) -> str:
    """Return why the Deployment cannot replace the pod first; empty if it can."""
    if rollout is None or rollout.is_deleting or not selects(rollout.selector, pod.shape.labels):
        return (
            f"there is no Deployment {pod.namespace}/{deployment_name(pod)} that would replace it"
        )
    if rollout.replicas != 1:
        return ""
    if rollout.paused:
        return f"Deployment {rollout.key} is paused"
    if rollout.surge < 1:
        return f"Deployment {rollout.key} permits no pod more than its replicas (maxSurge)"
    if rollout.unavailable > 0:
        return (
            f"Deployment {rollout.key} lets its only pod go before another is ready"
            " (maxUnavailable is not 0)"
        )
    return ""


def restart_patch(rollout: RolloutView, now: datetime) -> MergePatch:
    """Return the patch of the Deployment that `kubectl rollout restart` makes."""
    annotations = {RESTARTED_AT: f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    return MergePatch(
        body={"spec": {"template": {"metadata": {"annotations": annotations}}}},
        resource_version=rollout.resource_version,
    )


def restarted_notice(pod: PodView, rollout: RolloutView, node: str) -> Notice:
    """Return the Event that a rollout was restarted to replace a pod."""
    return Notice(
        regarding=pod_ref(pod),
        type="Normal",
        reason="RolloutRestarted",
        message=f"Restarted the rollout of Deployment {rollout.key}, so that another pod is ready"
        f" before this one leaves node {node}",
        dedupe=(pod.uid,),
    )


def waiting_notice(pod: PodView, rollout: RolloutView) -> Notice:
    """Return the Event that a pod is not evicted while a rollout replaces it."""
    return Notice(
        regarding=pod_ref(pod),
        type="Normal",
        reason="RolloutRestartInProgress",
        message=f"The pod is not evicted while the rollout of Deployment {rollout.key} replaces it",
        dedupe=(pod.uid,),
    )


def refused_move_notice(pod: PodView, refusal: str) -> Notice:
    """Return the Event that a pod is evicted before another one is ready, with the reason."""
    return Notice(
        regarding=pod_ref(pod),
        type="Warning",
        reason="RolloutRestartRefused",
        message=f"The pod is evicted before another one is ready: {refusal}",
        dedupe=(pod.uid,),
    )


def surge_metric(outcome: SurgeOutcome) -> MetricUpdate:
    """Count a pod that asked to be replaced first."""
    return MetricUpdate(metric=LifecycleMetric.PODS_SURGE_MOVES, labels={"outcome": outcome.value})
