"""Separates pods to schedule from ignored ones, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.judgements import describe_failure, failure_message
from karpenter_core.api.provisioning_request import (
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    consumed_request,
)
from karpenter_core.scheduling.pod_selectors import opts_out
from karpenter_core.state.expendable_pods import expendable_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.state.pod_volumes import PodVolumeReader

__all__ = [
    "PROVISIONING_STEP",
    "IgnoredPod",
    "split_consuming",
    "split_ignored",
    "unevaluated_pod",
]

PROVISIONING_STEP: Final = "scheduling"
"""The step that reports of objects that were set aside name."""

_ENDS: Final = {
    FAILED: "has failed",
    CAPACITY_REVOKED: "has lost its capacity",
    BOOKING_EXPIRED: "books no capacity any more",
}
"""The conditions that end a ProvisioningRequest, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredPod:
    """A pod that is not scheduled, with the reason; a silent one opted out itself.

    For an expendable one no node is launched, and Kubernetes' scheduler may find room for it. A paused
    one is planned again later (`state.paused_pods`).
    """

    pod: PodView
    reason: str
    silent: bool = False
    expendable: bool = False
    paused: bool = False


def split_consuming(
    waiting: Mapping[str, PodView], requests: Mapping[str, ProvisioningRequest]
) -> tuple[dict[str, PodView], list[IgnoredPod]]:
    """Split off the pods for which a ProvisioningRequest provides the capacity.

    Their scheduling fails, and is reported, if the request provides nothing, or nothing any more.
    """
    others: dict[str, PodView] = {}
    consuming: list[IgnoredPod] = []
    for uid, pod in waiting.items():
        name = consumed_request(pod.shape.annotations)
        if not name:
            others[uid] = pod
            continue
        key = f"{pod.namespace}/{name}"
        problem = _problem_of_request(requests.get(key))
        reason = f"ProvisioningRequest {key} provides the capacity of the pod"
        if problem:
            reason = (
                f"ProvisioningRequest {key}, which is to provide the capacity of the pod, {problem}; "
                "no node is launched for the pod"
            )
        consuming.append(IgnoredPod(pod=pod, reason=reason, silent=not problem))
    return others, consuming


def _problem_of_request(request: ProvisioningRequest | None) -> str:
    """Return why a request provides no capacity, now or later; empty if it does or may."""
    if request is None:
        return "does not exist"
    if request.end is None:
        return ""
    problem, message = _ENDS[request.end.type], request.end.message
    return f"{problem}: {message}" if message else problem


def split_ignored(
    waiting: Mapping[str, PodView],
    volumes: PodVolumeReader,
    refusal: Callable[[PodShape], str],
    aliases: Mapping[str, str],
    cutoff: int,
) -> tuple[list[PodView], list[IgnoredPod]]:
    """Split the pods, by UID, into those to schedule and those to ignore.

    `refusal` says of a shape why its pods get no node; empty if they may. It is asked once for each.
    """
    good: list[PodView] = []
    ignored: list[IgnoredPod] = []
    verdicts: dict[int, tuple[str, bool]] = {}
    for _, pod in sorted(waiting.items()):
        verdict = verdicts.get(id(pod.shape))
        try:
            if verdict is None:
                silent = opts_out(pod.shape, aliases=aliases)
                error = "the pod asks for a node of no NodePool" if silent else ""
                verdict = error or refusal(pod.shape), silent
                verdicts[id(pod.shape)] = verdict
            reason, silent = verdict
            reason = reason or volumes.error(pod)
        except Exception as failure:
            ignored.append(unevaluated_pod(pod, failure))
            continue
        expendable = "" if reason else expendable_reason(pod.shape, cutoff)
        if expendable:
            ignored.append(IgnoredPod(pod=pod, reason=expendable, expendable=True))
        elif reason:
            ignored.append(IgnoredPod(pod=pod, reason=reason, silent=silent))
        else:
            good.append(pod)
    rivals = volumes.rivals(good)
    ignored.extend(IgnoredPod(pod=pod, reason=rivals[pod.uid]) for pod in good if pod.uid in rivals)
    return [pod for pod in good if pod.uid not in rivals], ignored


def unevaluated_pod(pod: PodView, error: Exception) -> IgnoredPod:
    """Return a pod whose evaluation failed, with the failure as the reason."""
    return IgnoredPod(pod=pod, reason=failure_message(PROVISIONING_STEP, describe_failure(error)))
