"""Restarts rollouts for draining pods (`surge-move`), then evicts the pods.

The annotation `karpenter.sh/surge-move` asks for this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.lifecycle.node.surge_move import (
    MOVE_TIMEOUT,
    SurgeAction,
    SurgeOutcome,
    asks_for_surge,
    early_refusal,
    refused_move_notice,
    restart_patch,
    restarted_notice,
    surge_advice,
    surge_metric,
    waiting_notice,
)
from karpenter_core.state.events import PodReplacementEnded, PodReplacementStarted
from karpenter_core.state.workload_names import deployment_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.api.rollouts import RolloutView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime

__all__ = ["SurgeMoves"]

_FORBIDDEN: Final = 403


@dataclass(slots=True, kw_only=True)
class _PodMove:
    """The move of one pod: since when (monotonic seconds), and its restart."""

    since: float
    restarted: bool = False
    is_replaced: bool = False
    """Whether a rollout replaces the pod, ours or another."""
    is_over: bool = False
    """Whether the pod is evicted after all."""


@final
class SurgeMoves:
    """The moves of pods by rollouts; each ends with the pod or after `MOVE_TIMEOUT`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        runtime: ControllerRuntime,
        read_rollout: Callable[[str, str], Awaitable[RolloutView]],
    ) -> None:
        """`read_rollout` returns the rollout of a Deployment, by namespace and name."""
        self._writer = writer
        self._runtime = runtime
        self._read_rollout = read_rollout
        self._moves: dict[str, _PodMove] = {}

    async def holds(self, pod: PodView, deadline: datetime | None) -> bool:
        """Advance the move of a pod that is to be evicted; tell whether it must stay for now.

        Raises:
            ApiError: the Deployment cannot be read or restarted now.
            BadInputError: the Deployment cannot be read.
        """
        if not asks_for_surge(pod):
            return False
        now = self._runtime.clock.now()
        move = self._moves.get(pod.uid)
        if move is None:
            move = self._moves[pod.uid] = _PodMove(since=self._runtime.clock.monotonic())
        if move.is_over:
            return False
        elapsed = timedelta(seconds=self._runtime.clock.monotonic() - move.since)
        refusal = early_refusal(pod, deadline=deadline, now=now)
        if refusal and not move.restarted:
            return self._give_up(pod, move, refusal)
        try:
            return await self._advance(pod, move, elapsed, now)
        except ApiError as error:
            if error.status != _FORBIDDEN and elapsed < MOVE_TIMEOUT:
                raise
            return self._give_up(pod, move, f"its Deployment cannot be restarted: {error}")

    def forget(self, uid: str) -> None:
        """End the move of a pod that has ended or is ending."""
        move = self._moves.pop(uid, None)
        if move is None or move.is_over or not move.is_replaced:
            return
        self._writer.cluster_state.fold(PodReplacementEnded(uid))
        self._writer.record_metrics((surge_metric(SurgeOutcome.REPLACED),))

    async def _advance(
        self, pod: PodView, move: _PodMove, elapsed: timedelta, now: datetime
    ) -> bool:
        rollout = await self._find_rollout(pod)
        advice = surge_advice(pod, rollout, restarted=move.restarted, elapsed=elapsed)
        if rollout is None or advice.action is SurgeAction.EVICT:
            return self._give_up(pod, move, advice.refusal)
        if advice.action is SurgeAction.RESTART:
            patch = restart_patch(rollout, now)
            await self._writer.kube_writer.patch_unread(
                DEPLOYMENTS,
                rollout.name,
                patch.body,
                namespace=rollout.namespace,
                resource_version=patch.resource_version,
            )
            move.restarted = True
            self._writer.publish(restarted_notice(pod, rollout, pod.node_name))
            self._writer.record_metrics((surge_metric(SurgeOutcome.RESTARTED),))
        else:
            self._writer.publish(waiting_notice(pod, rollout))
        move.is_replaced = True
        self._writer.cluster_state.fold(PodReplacementStarted(pod.uid))
        return True

    async def _find_rollout(self, pod: PodView) -> RolloutView | None:
        try:
            return await self._read_rollout(pod.namespace, deployment_name(pod))
        except NotFoundError:
            return None

    def _give_up(self, pod: PodView, move: _PodMove, refusal: str) -> bool:
        """Let the pod be evicted; with a reason unless it never was the only one."""
        move.is_over = True
        self._writer.cluster_state.fold(PodReplacementEnded(pod.uid))
        if refusal:
            outcome = SurgeOutcome.EXPIRED if move.is_replaced else SurgeOutcome.REFUSED
            self._writer.publish(refused_move_notice(pod, refusal))
            self._writer.record_metrics((surge_metric(outcome),))
        return False
