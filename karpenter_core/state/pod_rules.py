"""What a pod allows to be done with its node: the predicates that drain and disruption share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.labels import (
    DISRUPTED_TAINT,
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    SAFE_TO_EVICT,
)
from karpenter_core.api.notices import Notice, ObjectRef

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.records import PodView, Toleration

__all__ = [
    "STUCK_AFTER",
    "DoNotDisrupt",
    "Protection",
    "do_not_disrupt",
    "is_disruptable",
    "is_drainable",
    "is_evictable",
    "pod_ref",
    "protection_notice",
    "tolerates_disruption",
    "waiting_pods",
]

STUCK_AFTER: Final = timedelta(minutes=1)  # upstream default
"""A pod whose deletion takes so much longer than it may is waited for no more."""
_ALWAYS: Final = "true"
_LEGACY: Final = ((DO_NOT_EVICT, "true"), (SAFE_TO_EVICT, "false"))
"""What older autoscalers read, with the value that protects; every other value says nothing."""


class Protection(Enum):
    """What the do-not-disrupt annotation of a pod comes to."""

    NONE = "none"
    ALWAYS = "always"
    UNTIL = "until"
    ELAPSED = "elapsed"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoNotDisrupt:
    """The annotation read: whether it protects, until when, or what is wrong with it.

    `annotation` is the key that decided. `error` may stand beside a protection: an annotation that
    cannot be read leaves the decision to older ones.
    """

    protection: Protection
    annotation: str = DO_NOT_DISRUPT
    until: datetime | None = None
    error: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the pod is protected now."""
        return self.protection in {Protection.ALWAYS, Protection.UNTIL}


_NONE: Final = DoNotDisrupt(protection=Protection.NONE)


def do_not_disrupt(pod: PodView, now: datetime) -> DoNotDisrupt:
    """Read `karpenter.sh/do-not-disrupt`: `true`, or a duration from the pod's start.

    A pod that has not started is protected; a value that cannot be read protects nothing. Where
    the annotation is missing or cannot be read, those of older autoscalers count: they protect for
    good or say nothing.
    """
    annotations = pod.shape.annotations
    value = annotations.get(DO_NOT_DISRUPT)
    verdict = _NONE if value is None else _read(value, pod, now)
    if verdict.protection not in {Protection.NONE, Protection.INVALID}:
        return verdict
    for key, protecting in _LEGACY:
        if annotations.get(key) == protecting:
            return replace(verdict, protection=Protection.ALWAYS, annotation=key)
    return verdict


def _read(value: str, pod: PodView, now: datetime) -> DoNotDisrupt:
    if value == _ALWAYS:
        return DoNotDisrupt(protection=Protection.ALWAYS)
    try:
        duration = parse_duration(value)
    except ValueError as error:
        text = f'failed to parse "{value}" as a duration: time: {error}'
        return DoNotDisrupt(protection=Protection.INVALID, error=text)
    if duration <= timedelta():
        text = f'duration "{value}" must be positive'
        return DoNotDisrupt(protection=Protection.INVALID, error=text)
    if pod.start_time is None:
        return DoNotDisrupt(protection=Protection.ALWAYS)
    until = pod.start_time + duration
    protection = Protection.UNTIL if now < until else Protection.ELAPSED
    return DoNotDisrupt(protection=protection, until=until)


def protection_notice(pod: PodView, verdict: DoNotDisrupt) -> Notice | None:
    """Say on the pod what its annotation comes to, when there is something to say."""
    if verdict.error:
        message = f"Invalid {DO_NOT_DISRUPT} annotation: {verdict.error}, ignoring annotation"
        return Notice(
            regarding=pod_ref(pod),
            type="Warning",
            reason="InvalidDoNotDisruptAnnotation",
            message=message,
            dedupe=(pod.uid, message),
        )
    match verdict.protection:
        case Protection.NONE | Protection.ALWAYS | Protection.INVALID:
            return None
        case Protection.UNTIL:
            until = "" if verdict.until is None else f"{verdict.until:%Y-%m-%dT%H:%M:%SZ}"
            return Notice(
                regarding=pod_ref(pod),
                type="Normal",
                reason="DoNotDisruptUntil",
                message=f"The {DO_NOT_DISRUPT} grace period will elapse at {until}",
                dedupe=(pod.uid, until),
            )
        case Protection.ELAPSED:
            return Notice(
                regarding=pod_ref(pod),
                type="Normal",
                reason="DoNotDisruptGracePeriodElapsed",
                message=f"The {DO_NOT_DISRUPT} grace period has elapsed, pod is now disruptable",
                dedupe=(pod.uid,),
            )


def is_disruptable(pod: PodView, now: datetime) -> bool:
    """Tell whether the pod does not mind; one that has ended or is ending never does."""
    return not pod.is_active or not do_not_disrupt(pod, now).is_active


def is_evictable(pod: PodView, now: datetime) -> bool:
    """Tell whether eviction makes the pod leave, as far as the pod itself goes."""
    return (
        pod.is_active
        and not pod.is_mirror
        and not tolerates_disruption(pod)
        and not do_not_disrupt(pod, now).is_active
    )


def tolerates_disruption(pod: PodView) -> bool:
    """Tell whether the pod stays on a node that is tainted for termination."""
    return any(_tolerates_disrupted(item) for item in pod.shape.tolerations)


def _tolerates_disrupted(toleration: Toleration) -> bool:
    if toleration.effect not in {"", "NoSchedule"}:
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    if toleration.key != DISRUPTED_TAINT:
        return False
    return toleration.operator == "Exists" or (
        toleration.operator in {"", "Equal"} and toleration.value == ""
    )


def pod_ref(pod: PodView) -> ObjectRef:
    """Refer to a pod in Events."""
    return ObjectRef(
        api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
    )


def is_drainable(pod: PodView, now: datetime) -> bool:
    """Tell whether the node waits for a pod to leave.

    It does not for pods that tolerate its taint, for static pods, and for ones whose deletion has
    hung for a minute. It does wait for protected pods, although nobody evicts them.
    """
    stuck = pod.deletion_timestamp is not None and now - pod.deletion_timestamp > STUCK_AFTER
    return not pod.is_mirror and not stuck and not tolerates_disruption(pod)


def waiting_pods(pods: Iterable[PodView], now: datetime) -> tuple[PodView, ...]:
    """Return the pods that a node still waits for, by name."""
    waiting = [pod for pod in pods if not pod.is_terminal and is_drainable(pod, now)]
    return tuple(sorted(waiting, key=lambda pod: (pod.key, pod.uid)))
