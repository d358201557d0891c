"""Decides whether pods may be evicted, disrupted and drained."""

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
    from karpenter_core.state.ledger_view import LedgerView

__all__ = [
    "STUCK_AFTER",
    "DoNotDisrupt",
    "PodProtection",
    "do_not_disrupt",
    "grace_period",
    "is_disruptable",
    "is_drainable",
    "is_evictable",
    "may_be_protected",
    "pod_ref",
    "protection_notice",
    "tolerates_disruption",
    "undrained_pods",
]

STUCK_AFTER: Final = timedelta(minutes=1)  # upstream default
"""Time after its deletion timestamp from which a pod no longer blocks the drain."""
_LONGEST_GRACE: Final = timedelta(days=36_500)
"""Longer grace periods than this lead out of the calendar."""
_ALWAYS: Final = "true"
_LEGACY: Final = ((DO_NOT_EVICT, "true"), (SAFE_TO_EVICT, "false"))
"""Annotations of older autoscalers, with the value that protects; other values are ignored."""
_PROTECTING: Final = frozenset({DO_NOT_DISRUPT, *(key for key, _ in _LEGACY)})


class PodProtection(Enum):
    """The effect of a pod's do-not-disrupt annotation."""

    NONE = "none"
    ALWAYS = "always"
    UNTIL = "until"
    ELAPSED = "elapsed"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoNotDisrupt:
    """The parsed annotation: its effect, its end, or its error.

    `annotation` is the decisive key. `error` may accompany a protection: after an annotation that
    cannot be read the older ones decide.
    """

    protection: PodProtection
    annotation: str = DO_NOT_DISRUPT
    until: datetime | None = None
    error: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the pod is protected now."""
        return self.protection is PodProtection.ALWAYS or self.protection is PodProtection.UNTIL


_NONE: Final = DoNotDisrupt(protection=PodProtection.NONE)


def may_be_protected(pod: PodView) -> bool:
    """Tell whether a pod has an annotation that may protect it from disruption."""
    return not _PROTECTING.isdisjoint(pod.shape.annotations)


def do_not_disrupt(pod: PodView, now: datetime) -> DoNotDisrupt:
    """Read `karpenter.sh/do-not-disrupt`: `true`, or a duration from the pod's start.

    A pod that has not started is protected; a value that cannot be read protects nothing. Where
    the annotation is missing or cannot be read, those of older autoscalers count: they protect
    permanently or not at all. Cluster Autoscaler's does not count on DaemonSet pods and static pods, as
    there: an agent with it runs on every node, and no node would ever be removed.
    """
    annotations = pod.shape.annotations
    if not may_be_protected(pod):
        return _NONE
    value = annotations.get(DO_NOT_DISRUPT)
    verdict = _NONE if value is None else _read(value, pod, now)
    if verdict.protection not in {PodProtection.NONE, PodProtection.INVALID}:
        return verdict
    for key, protecting in _LEGACY:
        if key == SAFE_TO_EVICT and (pod.is_daemon or pod.is_mirror):
            continue
        if annotations.get(key) == protecting:
            return replace(verdict, protection=PodProtection.ALWAYS, annotation=key)
    return verdict


def _read(value: str, pod: PodView, now: datetime) -> DoNotDisrupt:
    if value == _ALWAYS:
        return DoNotDisrupt(protection=PodProtection.ALWAYS)
    try:
        duration = parse_duration(value)
    except ValueError as error:
        text = f'failed to parse "{value}" as a duration: time: {error}'
        return DoNotDisrupt(protection=PodProtection.INVALID, error=text)
    if duration <= timedelta():
        text = f'duration "{value}" must be positive'
        return DoNotDisrupt(protection=PodProtection.INVALID, error=text)
    if pod.start_time is None:
        return DoNotDisrupt(protection=PodProtection.ALWAYS)
    until = pod.start_time + duration
    protection = PodProtection.UNTIL if now < until else PodProtection.ELAPSED
    return DoNotDisrupt(protection=protection, until=until)


def protection_notice(pod: PodView, protection: DoNotDisrupt) -> Notice | None:
    """Return an Event on the pod about its annotation; None when nothing is to be reported."""
    if protection.error:
        message = f"Invalid {DO_NOT_DISRUPT} annotation: {protection.error}, ignoring annotation"
        return Notice(
            regarding=pod_ref(pod),
            type="Warning",
            reason="InvalidDoNotDisruptAnnotation",
            message=message,
            dedupe=(pod.uid, message),
        )
    match protection.protection:
        case PodProtection.NONE | PodProtection.ALWAYS | PodProtection.INVALID:
            return None
        case PodProtection.UNTIL:
            until = "" if protection.until is None else f"{protection.until:%Y-%m-%dT%H:%M:%SZ}"
            return Notice(
                regarding=pod_ref(pod),
                type="Normal",
                reason="DoNotDisruptUntil",
                message=f"The {DO_NOT_DISRUPT} grace period will elapse at {until}",
                dedupe=(pod.uid, until),
            )
        case PodProtection.ELAPSED:
            return Notice(
                regarding=pod_ref(pod),
                type="Normal",
                reason="DoNotDisruptGracePeriodElapsed",
                message=f"The {DO_NOT_DISRUPT} grace period has elapsed, pod is now disruptable",
                dedupe=(pod.uid,),
            )


def is_disruptable(pod: PodView, now: datetime) -> bool:
    """Tell whether the pod is unprotected; one that has ended or is ending always is."""
    return not do_not_disrupt(pod, now).is_active or not pod.is_active


def is_evictable(pod: PodView, now: datetime) -> bool:
    """Tell whether the pod itself allows its eviction."""
    return (
        pod.is_active
        and not pod.is_mirror
        and not tolerates_disruption(pod)
        and not do_not_disrupt(pod, now).is_active
    )


def grace_period(seconds: int) -> timedelta:
    """Return a grace period that a pod or its deletion states, bounded.

    The API server accepts every 64-bit number: huge ones mean "never", and negative ones a second.
    """
    return timedelta(seconds=min(max(seconds, 0), _LONGEST_GRACE.total_seconds()))


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


def is_drainable(pod: PodView, now: datetime, ledger: LedgerView) -> bool:
    """Tell whether the node waits for a pod to leave.

    It does not wait for pods that tolerate its taint, for static pods, and for pods whose deletion
    has hung for a minute. It waits for protected pods, although they are not evicted.
    """
    return not (pod.is_mirror or _is_stuck(pod, now, ledger) or tolerates_disruption(pod))


def _is_stuck(pod: PodView, now: datetime, ledger: LedgerView) -> bool:
    """Tell whether a pod has not ended a minute after its grace period.

    The API server of the pods dates the end of that period; with two clusters its clock may be far
    from ours, which is that of the NodeClaims: what counts is how long the pod has been seen to end.
    """
    if pod.deletion_timestamp is None:
        return False
    deletion = ledger.pod_deletions.get(pod.uid)
    ends_at = pod.deletion_timestamp if deletion is None else deletion.ends_at
    return now - ends_at > STUCK_AFTER


def undrained_pods(
    pods: Iterable[PodView], now: datetime, ledger: LedgerView
) -> tuple[PodView, ...]:
    """Return the pods that a node still waits for, by name."""
    waiting = [pod for pod in pods if not pod.is_terminal and is_drainable(pod, now, ledger)]
    return tuple(sorted(waiting, key=lambda pod: (pod.key, pod.uid)))
