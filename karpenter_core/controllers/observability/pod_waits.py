"""Measures how long pods wait for a decision, for a node and to become Ready.

Each wait is measured once per pod, if it ended after this process started: an earlier process has
measured the earlier ones.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeGuard, final

from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.metrics.object_series import Row
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.state.ledger_view import PodDecision
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["PodWaitMetrics"]

BATCH_SIZE: Final = 1000
"""The number of pods that are measured before other tasks run."""


@final
class PodWaitMetrics:
    """Follows pods from their creation until they are Ready; call `update` regularly."""

    def __init__(
        self, cluster_state: ClusterState, metrics: Metrics, *, started_at: datetime
    ) -> None:
        self._metrics = metrics
        self._started_at = started_at.replace(microsecond=0)  # Kubernetes has whole seconds
        self._touched: dict[str, None] = {}
        self._waiting: dict[str, PodView] = {}
        self._started: set[str] = set()
        cluster_state.subscribe(ObjectKind.POD, self._on_pod)

    async def update(self, snapshot: Snapshot, now: datetime) -> None:
        """Measure the waits that ended since the last call, and show those that have not."""
        touched, self._touched = self._touched, {}
        for count, uid in enumerate(touched, start=1):
            self._follow(uid, snapshot)
            if not count % BATCH_SIZE:
                await asyncio.sleep(0)
        self._show(snapshot, now)

    def _follow(self, uid: str, snapshot: Snapshot) -> None:
        pod = snapshot.pods.get(uid)
        before = self._waiting.pop(uid, None)
        if pod is None or pod.is_terminal:
            self._started.discard(uid)
            return
        if uid in self._started:
            return
        decision = snapshot.ledger.decisions.get(uid)
        if pod.node_name and (before is None or not before.node_name):
            self._observe_bound(pod, decision)
        if pod.ready is not True:
            self._waiting[uid] = pod
            return
        self._started.add(uid)
        self._observe_started(pod, decision)

    def _show(self, snapshot: Snapshot, now: datetime) -> None:
        decisions = snapshot.ledger.decisions
        unbound: list[Row] = []
        unstarted: list[Row] = []
        planned_unbound: list[Row] = []
        planned_unstarted: list[Row] = []
        for pod in self._waiting.values():
            if pod.created is None or pod.phase != "Pending":
                continue
            labels = pod.name, pod.namespace
            unstarted.append((labels, (now - pod.created).total_seconds()))
            planned = _planned_at(decisions, pod.uid)
            if planned is not None:
                planned_unstarted.append((labels, (now - planned).total_seconds()))
            if not pod.node_name:
                unbound.append(unstarted[-1])
                if planned is not None:
                    planned_unbound.append(planned_unstarted[-1])
        metrics = self._metrics
        metrics.pods.unbound_time.set_rows(unbound)
        metrics.pods.unstarted_time.set_rows(unstarted)
        metrics.pods.provisioning_unbound_time.set_rows(planned_unbound)
        metrics.pods.provisioning_unstarted_time.set_rows(planned_unstarted)
        metrics.pods.scheduling_undecided_time.set_rows(
            ((pod.name, pod.namespace), (now - seen).total_seconds())
            for uid, seen in snapshot.ledger.first_seen.items()
            if uid not in decisions and (pod := snapshot.pods.get(uid)) is not None
        )

    def _observe_bound(self, pod: PodView, decision: PodDecision | None) -> None:
        if pod.created is None or not self._is_after_start(pod.scheduled_time):
            return
        metrics = self._metrics
        metrics.pods.bound_duration.observe((pod.scheduled_time - pod.created).total_seconds())
        if decision is not None and decision.placed_at is not None:
            seconds = (pod.scheduled_time - decision.placed_at).total_seconds()
            metrics.pods.provisioning_bound_duration.observe(max(seconds, 0.0))

    def _observe_started(self, pod: PodView, decision: PodDecision | None) -> None:
        if pod.created is None or not self._is_after_start(pod.ready_time):
            return
        metrics = self._metrics
        metrics.pods.startup_duration.observe((pod.ready_time - pod.created).total_seconds())
        if decision is not None and decision.placed_at is not None:
            seconds = (pod.ready_time - decision.placed_at).total_seconds()
            metrics.pods.provisioning_startup_duration.observe(max(seconds, 0.0))

    def _is_after_start(self, moment: datetime | None) -> TypeGuard[datetime]:
        return moment is not None and moment >= self._started_at

    def _on_pod(self, uid: str) -> None:
        self._touched[uid] = None


def _planned_at(decisions: Mapping[str, PodDecision], uid: str) -> datetime | None:
    decision = decisions.get(uid)
    return None if decision is None else decision.placed_at
