"""Evicts the pods of draining nodes: the controller `eviction-queue`.

A pod that a budget protects is retried with a growing back-off and does not delay the others. A pod
that is queued twice keeps the earlier deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.notices import node_ref
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.errors import ApiError, KarpenterError, NotFoundError
from karpenter_core.kube.refusals import is_refusal
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.node.drain import latest_start
from karpenter_core.lifecycle.node.eviction import (
    BACKOFF_BASE,
    BACKOFF_CAP,
    EvictionAction,
    EvictionVerdict,
    denied_deletion_notice,
    disrupted_notice,
    drain_reason,
    drained_pod_metric,
    earlier_deadline,
    evicted_notice,
    eviction_advice,
    eviction_verdict,
    refused_notice,
)
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.pod_budgets import PodBudgets, budget_key
from karpenter_core.state.pod_rules import do_not_disrupt, protection_notice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.notices import Notice
    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.node.surge_moves import SurgeMoves
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.node.drain import Eviction

__all__ = ["EvictionQueue"]

CONCURRENCY: Final = (100, 5000)  # upstream's bounds
_CREATED: Final = 201
BOUNDED_RETRY: Final = ReconcileResult(back_off=True)
JUST_AFTER: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedEviction:
    """The node of a queued pod, and the deadline for the pod."""

    node: str
    deadline: datetime | None


@final
class EvictionQueue:
    """The controller `eviction-queue`; keyed by pod UID."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        surge_moves: SurgeMoves | None,
    ) -> None:
        """With `surge_moves`, pods that ask for it are replaced before they are evicted."""
        self._surge_moves = surge_moves
        self._freshness = freshness
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._entries: dict[str, _QueuedEviction] = {}
        self._sent: dict[str, float] = {}
        """Evicted pods, and until when the watch may take to show it (monotonic seconds)."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=ExponentialBackoff(
                base_seconds=BACKOFF_BASE.total_seconds(),
                maximum_seconds=BACKOFF_CAP.total_seconds(),
            ),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="PodUID",
        )
        writer.cluster_state.subscribe(ObjectKind.POD, self._on_pod)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "eviction-queue"

    def __len__(self) -> int:
        """Count the queued pods."""
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        """Tell whether a pod is queued."""
        return uid in self._entries

    def add(self, evictions: Iterable[Eviction]) -> None:
        """Queue pods; a pod that is queued already keeps its place and the earlier deadline."""
        now = self._runtime.clock.monotonic()
        for eviction in evictions:
            uid = eviction.pod.uid
            if now < self._sent.get(uid, now):
                continue  # it is evicted, but the watch has not shown it yet
            entry = self._entries.get(uid)
            if entry is None:
                self._entries[uid] = _QueuedEviction(
                    node=eviction.pod.node_name, deadline=eviction.deadline
                )
                self._reconciler.wake(uid)
                continue
            deadline = earlier_deadline(entry.deadline, eviction.deadline)
            if deadline != entry.deadline:
                self._entries[uid] = _QueuedEviction(node=entry.node, deadline=deadline)
                self._reconciler.wake(uid)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def reconcile(self, uid: str) -> ReconcileResult:
        """Evict or delete one pod, or retry it later."""
        entry = self._entries.get(uid)
        if entry is None:
            return DONE
        if self._freshness.stale_or_wake(
            FreshnessConsumer.DRAIN, (self.name, uid), partial(self._reconciler.wake, uid)
        ):
            return DONE
        now = self._runtime.clock.now()
        pod = self._cluster_state.snapshot().pods.get(uid)
        advice = eviction_advice(pod, uid=uid, deadline=entry.deadline, now=now)
        if pod is None or advice.action is EvictionAction.DONE:
            return self._forget(uid)
        if advice.action is not EvictionAction.DELETE:
            self._writer.publish_all(_about_protection(pod, now))
        match advice.action:
            case EvictionAction.HOLD:
                return self._retry_later(pod, entry)
            case EvictionAction.DELETE:
                return await self._delete(pod, entry, advice.grace_seconds)
            case EvictionAction.EVICT:
                try:
                    return await self._evict(pod, entry)
                except KarpenterError:
                    self._wake_in_time(pod, entry)
                    raise

    async def _evict(self, pod: PodView, entry: _QueuedEviction) -> ReconcileResult:
        if self._surge_moves is not None and await self._surge_moves.holds(pod, entry.deadline):
            return self._retry_later(pod, entry)
        try:
            await self._writer.kube_writer.evict(pod)
        except ApiError as error:
            if error.status == 0:
                raise  # the API server did not answer
            self._count(error.status)
            return self._retry_refused(pod, entry, error)
        self._count(_CREATED - 1)  # the reference counts every success as 200
        self._record_drained(pod, entry)
        return self._finish_sent(pod.uid)

    def _retry_refused(
        self, pod: PodView, entry: _QueuedEviction, error: ApiError
    ) -> ReconcileResult:
        verdict = eviction_verdict(error.status, str(error), error.causes)
        match verdict:
            case EvictionVerdict.GONE | EvictionVerdict.EVICTED:
                return self._forget(pod.uid)
            case EvictionVerdict.BLOCKED | EvictionVerdict.SEVERAL_BUDGETS:
                self._publish_refused(pod, entry, verdict)
                return self._retry_later(pod, entry)
            case EvictionVerdict.THROTTLED:
                return self._retry_throttled(pod, entry, error)
            case EvictionVerdict.DENIED:
                self._publish_refused(pod, entry, verdict, answer=str(error))
                raise error
            case EvictionVerdict.FAILED:
                raise error

    def _retry_throttled(
        self, pod: PodView, entry: _QueuedEviction, error: ApiError
    ) -> ReconcileResult:
        """Retry after the API server's Retry-After, or earlier if the pod must be deleted then."""
        if error.retry_after is None:
            return self._retry_later(pod, entry)
        seconds = error.retry_after.total_seconds()
        self._log.info("eviction is throttled", error=str(error), retry_seconds=seconds)
        left = self._seconds_left(pod, entry)
        return ReconcileResult(requeue_after=seconds if left is None else min(seconds, left))

    def _retry_later(self, pod: PodView, entry: _QueuedEviction) -> ReconcileResult:
        """Retry after the back-off, or earlier if the pod must be deleted before that."""
        self._wake_in_time(pod, entry)
        return BOUNDED_RETRY

    def _wake_in_time(self, pod: PodView, entry: _QueuedEviction) -> None:
        """Retry when the pod must be deleted: a back-off would shorten its own grace period."""
        left = self._seconds_left(pod, entry)
        if left is not None:
            self._reconciler.wake_after(pod.uid, left)

    def _seconds_left(self, pod: PodView, entry: _QueuedEviction) -> float | None:
        """Return the seconds until the pod must be deleted to keep its grace period, if ever."""
        latest = latest_start(pod, entry.deadline)
        if latest is None:
            return None
        return max((latest - self._runtime.clock.now() + JUST_AFTER).total_seconds(), 0.0)

    def _publish_refused(
        self, pod: PodView, entry: _QueuedEviction, verdict: EvictionVerdict, *, answer: str = ""
    ) -> None:
        snapshot = self._cluster_state.snapshot()
        node = snapshot.nodes.get(entry.node)
        if node is None:
            return
        names: tuple[str, ...] = ()
        if verdict is not EvictionVerdict.DENIED:  # for that no budget is to blame
            near = PodBudgets(
                budget
                for budget in snapshot.disruption_budgets.values()
                if budget.namespace == pod.namespace
            )
            names = tuple(budget_key(budget) for budget in near.matching(pod))
        self._writer.publish(
            refused_notice(node_ref(node), pod, verdict, budgets=names, answer=answer)
        )

    async def _delete(
        self, pod: PodView, entry: _QueuedEviction, grace_seconds: int
    ) -> ReconcileResult:
        try:
            await self._writer.kube_writer.delete(
                PODS,
                pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                grace_seconds=grace_seconds,
            )
        except NotFoundError:
            return self._forget(pod.uid)
        except ApiError as error:
            node = self._cluster_state.snapshot().nodes.get(entry.node)
            if node is not None and is_refusal(error):
                self._writer.publish(denied_deletion_notice(node_ref(node), pod, answer=str(error)))
            raise
        if entry.deadline is not None:
            self._writer.publish(disrupted_notice(pod, entry.deadline, grace_seconds))
        self._writer.record_metrics((drained_pod_metric(self._reason(entry)),))
        return self._finish_sent(pod.uid)

    def _record_drained(self, pod: PodView, entry: _QueuedEviction) -> None:
        reason = self._reason(entry)
        self._writer.publish(evicted_notice(pod, reason))
        self._writer.record_metrics((drained_pod_metric(reason),))

    def _reason(self, entry: _QueuedEviction) -> str:
        state_node = self._cluster_state.snapshot().state_nodes_by_node.get(entry.node)
        if state_node is None:
            return ""
        return drain_reason(state_node.node, state_node.claim)

    def _count(self, code: int) -> None:
        self._runtime.metrics.pods.eviction_requests.labels(code=str(code)).inc()

    def _finish_sent(self, uid: str) -> ReconcileResult:
        """Drop an evicted pod, and do not queue it again before the watch shows its eviction."""
        if self._is_active(uid):  # else the watch has shown its eviction
            self._sent[uid] = self._runtime.clock.monotonic() + BACKOFF_CAP.total_seconds()
        return self._forget(uid)

    def _is_active(self, uid: str) -> bool:
        pod = self._cluster_state.snapshot().pods.get(uid)
        return pod is not None and pod.is_active

    def _forget(self, uid: str) -> ReconcileResult:
        self._entries.pop(uid, None)
        return DONE

    def _on_pod(self, uid: str) -> None:
        if self._surge_moves is not None and not self._is_active(uid):
            self._surge_moves.forget(uid)
        if uid in self._sent and not self._is_active(uid):
            del self._sent[uid]
        if uid in self._entries:
            self._reconciler.wake(uid)


def _about_protection(pod: PodView, now: datetime) -> tuple[Notice, ...]:
    """Return the Event on the annotation that protects the pod, if there is one."""
    notice = protection_notice(pod, do_not_disrupt(pod, now))
    return () if notice is None else (notice,)
