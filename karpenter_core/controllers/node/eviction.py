"""The eviction queue: pods that have to leave, each at its own pace.

A pod that a budget holds back waits longer each time, without holding up the others. Queued twice,
a pod keeps the tighter of its two deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.reconciler import DONE, Backoff, Outcome, Reconciler
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.node.drain import latest_start
from karpenter_core.lifecycle.node.eviction import (
    BACKOFF_BASE,
    BACKOFF_CAP,
    EvictionAction,
    EvictionVerdict,
    disrupted_notice,
    drain_reason,
    earlier_deadline,
    evicted_fact,
    evicted_notice,
    eviction_advice,
    eviction_verdict,
    refused_notice,
)
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.state.objects import Kind
from karpenter_core.state.pod_budgets import PodBudgets, budget_key
from karpenter_core.state.pod_rules import do_not_disrupt, protection_notice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.notices import Notice
    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.node.drain import Eviction

__all__ = ["EvictionQueue"]

CONCURRENCY: Final = (100, 5000)  # upstream's bounds
_CREATED: Final = 201
BOUNDED_RETRY: Final = Outcome(back_off=True)
JUST_AFTER: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A pod that is to leave its node, and by when at the latest."""

    node: str
    deadline: datetime | None


@final
class EvictionQueue:
    """The controller `eviction-queue`; keyed by pod UID."""

    def __init__(self, *, hands: Hands, runtime: Runtime, freshness: Freshness) -> None:
        self._freshness = freshness
        self._hands = hands
        self._feed = hands.feed
        self._runtime = runtime
        self._entries: dict[str, _Entry] = {}
        self._sent: dict[str, float] = {}
        """Pods that were told to go, and until when the watch has time to show it."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=Backoff(
                base_seconds=BACKOFF_BASE.total_seconds(),
                maximum_seconds=BACKOFF_CAP.total_seconds(),
            ),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="PodUID",
        )
        hands.feed.subscribe(Kind.POD, self._on_pod)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "eviction-queue"

    def __len__(self) -> int:
        """Count the pods that are to leave."""
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        """Tell whether a pod is to leave."""
        return uid in self._entries

    def add(self, evictions: Iterable[Eviction]) -> None:
        """Queue pods; one that is queued keeps its place, and the tighter deadline."""
        now = self._runtime.clock.monotonic()
        for eviction in evictions:
            uid = eviction.pod.uid
            if now < self._sent.get(uid, now):
                continue  # the watch has not shown yet that it ends
            known = self._entries.get(uid)
            if known is None:
                self._entries[uid] = _Entry(node=eviction.pod.node_name, deadline=eviction.deadline)
                self._reconciler.wake(uid)
                continue
            deadline = earlier_deadline(known.deadline, eviction.deadline)
            if deadline != known.deadline:
                self._entries[uid] = _Entry(node=known.node, deadline=deadline)
                self._reconciler.wake(uid)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def reconcile(self, uid: str) -> Outcome:
        """Do with one pod what can be done now."""
        entry = self._entries.get(uid)
        if entry is None:
            return DONE
        if self._freshness.hold(
            Consumer.DRAIN, (self.name, uid), partial(self._reconciler.wake, uid)
        ):
            return DONE
        now = self._runtime.clock.now()
        pod = self._feed.snapshot().pods.get(uid)
        advice = eviction_advice(pod, uid=uid, deadline=entry.deadline, now=now)
        if pod is None or advice.action is EvictionAction.DONE:
            return self._forget(uid)
        if advice.action is not EvictionAction.DELETE:
            self._hands.tell(_about_protection(pod, now))
        match advice.action:
            case EvictionAction.HOLD:
                return self._later(pod, entry)
            case EvictionAction.DELETE:
                return await self._delete(pod, entry, advice.grace_seconds)
            case EvictionAction.EVICT:
                return await self._evict(pod, entry)

    async def _evict(self, pod: PodView, entry: _Entry) -> Outcome:
        try:
            await self._hands.writer.evict(pod)
        except ApiError as error:
            if error.status == 0:
                raise  # nobody answered
            self._count(error.status)
            return self._refused(pod, entry, error)
        self._count(_CREATED - 1)  # the reference counts every success as 200
        self._drained(pod, entry)
        return self._told_to_go(pod.uid)

    def _refused(self, pod: PodView, entry: _Entry, error: ApiError) -> Outcome:
        verdict = eviction_verdict(error.status, str(error), error.causes)
        match verdict:
            case EvictionVerdict.GONE | EvictionVerdict.EVICTED:
                return self._forget(pod.uid)
            case EvictionVerdict.BLOCKED | EvictionVerdict.SEVERAL_BUDGETS:
                self._tell_refused(pod, entry, verdict)
                return self._later(pod, entry)
            case EvictionVerdict.THROTTLED:
                return self._throttled(pod, entry, error)
            case EvictionVerdict.FAILED:
                raise error

    def _throttled(self, pod: PodView, entry: _Entry, error: ApiError) -> Outcome:
        """Ask again after the time that the API server names, or when the pod has no time left."""
        if error.retry_after is None:
            return self._later(pod, entry)
        seconds = error.retry_after.total_seconds()
        self._log.info("eviction is throttled", error=str(error), retry_seconds=seconds)
        left = self._seconds_left(pod, entry)
        return Outcome(requeue_after=seconds if left is None else min(seconds, left))

    def _later(self, pod: PodView, entry: _Entry) -> Outcome:
        """Look again after the back-off, or as soon as the pod has no time left if that is sooner.

        Else the back-off would be taken from the pod's own grace period.
        """
        left = self._seconds_left(pod, entry)
        if left is not None:
            self._reconciler.wake_after(pod.uid, left)
        return BOUNDED_RETRY

    def _seconds_left(self, pod: PodView, entry: _Entry) -> float | None:
        """Return when the pod needs all that is left as its grace period; None without a deadline."""
        latest = latest_start(pod, entry.deadline)
        if latest is None:
            return None
        return max((latest - self._runtime.clock.now() + JUST_AFTER).total_seconds(), 0.0)

    def _tell_refused(self, pod: PodView, entry: _Entry, verdict: EvictionVerdict) -> None:
        snapshot = self._feed.snapshot()
        node = snapshot.nodes.get(entry.node)
        if node is None:
            return
        near = PodBudgets(
            budget
            for budget in snapshot.disruption_budgets.values()
            if budget.namespace == pod.namespace
        )
        names = tuple(budget_key(budget) for budget in near.matching(pod))
        self._hands.publish(refused_notice(node_ref(node), pod, verdict, budgets=names))

    async def _delete(self, pod: PodView, entry: _Entry, grace_seconds: int) -> Outcome:
        try:
            await self._hands.writer.delete(
                PODS,
                pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                grace_seconds=grace_seconds,
            )
        except NotFoundError:
            return self._forget(pod.uid)
        if entry.deadline is not None:
            self._hands.publish(disrupted_notice(pod, entry.deadline, grace_seconds))
        self._hands.count((evicted_fact(self._reason(entry)),))
        return self._told_to_go(pod.uid)

    def _drained(self, pod: PodView, entry: _Entry) -> None:
        reason = self._reason(entry)
        self._hands.publish(evicted_notice(pod, reason))
        self._hands.count((evicted_fact(reason),))

    def _reason(self, entry: _Entry) -> str:
        machine = self._feed.snapshot().state_nodes_by_node.get(entry.node)
        if machine is None:
            return ""
        return drain_reason(machine.node, machine.claim)

    def _count(self, code: int) -> None:
        self._runtime.metrics.pods_eviction_requests.labels(code=str(code)).inc()

    def _told_to_go(self, uid: str) -> Outcome:
        """Forget a pod, and do not take it for one that is still to be told."""
        if self._is_active(uid):  # else it has been shown already
            self._sent[uid] = self._runtime.clock.monotonic() + BACKOFF_CAP.total_seconds()
        return self._forget(uid)

    def _is_active(self, uid: str) -> bool:
        pod = self._feed.snapshot().pods.get(uid)
        return pod is not None and pod.is_active

    def _forget(self, uid: str) -> Outcome:
        self._entries.pop(uid, None)
        return DONE

    def _on_pod(self, uid: str) -> None:
        if uid in self._sent and not self._is_active(uid):
            del self._sent[uid]
        if uid in self._entries:
            self._reconciler.wake(uid)


def _about_protection(pod: PodView, now: datetime) -> tuple[Notice, ...]:
    """Return what is to be said of the annotation that asks for the pod to be left alone."""
    notice = protection_notice(pod, do_not_disrupt(pod, now))
    return () if notice is None else (notice,)
