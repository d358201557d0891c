"""Records disruption commands in journal, log, metrics and Events.

A command is recorded when it is started, rejected before anything was done, or rolled back.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.decisions import MAX_NAMED, DecisionObstacle
from karpenter_core.api.notices import Notice, node_ref
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.journal import command_decision
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.claim_status import disrupted_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.decisions import Decision
    from karpenter_core.api.notices import ObjectRef
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.disruption.validation import CommandRejection

__all__ = ["CommandRecords", "command_notice", "command_obstacle"]

_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


@final
class CommandRecords:
    """Records the start, rejection and rollback of commands."""

    def __init__(
        self, *, writer: ObjectWriter, planner: Planner, runtime: ControllerRuntime, currency: str
    ) -> None:
        self._writer = writer
        self._planner = planner
        self._runtime = runtime
        self._currency = currency

    async def prepare_record(
        self,
        command: Command,
        plan: DisruptionPlan,
        *,
        rejection: CommandRejection | None = None,
        obstacles: Sequence[DecisionObstacle],
    ) -> Decision:
        """Return the record of a command; with `rejection`, of one rejected because of `obstacles`.

        It is computed by the planner, which may be busy with a long pass.
        """
        make_decision = partial(
            command_decision,
            command,
            plan,
            rejection="" if rejection is None else str(rejection),
            obstacles=obstacles,
            currency=self._currency,
        )
        # The record has the obstacles of all other nodes: too much work for the event loop.
        return await self._planner.compute(make_decision)

    async def record_started(
        self, command: Command, plan: DisruptionPlan, decision: Decision
    ) -> None:
        """Count and record a command that has started."""
        self._count(command, plan)
        await self._runtime.journal.record(decision)

    async def record_rejected(
        self,
        command: Command,
        plan: DisruptionPlan,
        *,
        rejection: CommandRejection | None,
        obstacles: Sequence[DecisionObstacle] = (),
    ) -> None:
        """Record a planned command that was not started."""
        decision = await self.prepare_record(
            command, plan, rejection=rejection, obstacles=obstacles
        )
        await self._runtime.journal.record(decision)

    async def record_rolled_back(self, decision: Decision, why: str) -> None:
        """Record that a command was rolled back, so its nodes stay."""
        at = self._runtime.clock.now()
        await self._runtime.journal.record(replace(decision, at=at, failure=why))

    def record_deleted(self, candidate: Candidate, command: Command) -> None:
        """Count the deletion of a candidate's claim and publish its Events."""
        reason = str(command.reason)
        policy = ""
        if command.reason is not DisruptionReason.DRIFTED:
            policy = _snake_case(candidate.pool.spec.disruption.consolidation_policy)
        labels = disrupted_labels(candidate.claim, reason.lower(), consolidation_policy=policy)
        pods = len(candidate.reschedulable_pods)
        self._writer.record_metrics(
            (
                MetricUpdate(metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=labels),
                MetricUpdate(
                    metric=LifecycleMetric.PODS_DISRUPTION_INITIATED, labels=labels, value=pods
                ),
            )
        )
        for what, ref in (("Node", node_ref(candidate.node)), ("NodeClaim", candidate.claim.ref)):
            text = f"Disrupting {what}: {reason}"
            self._writer.publish(command_notice(ref, "DisruptionTerminating", text, reason))

    def _count(self, command: Command, plan: DisruptionPlan) -> None:
        method, metrics = plan.method, self._runtime.metrics
        labels = {
            "decision": str(command.decision),
            "reason": str(command.reason).lower(),
            "consolidation_type": "" if method is None else method.consolidation_type,
        }
        metrics.disruption_decisions.labels(**labels).inc()
        for pool in command.pools:
            metrics.disruption_decisions_by_nodepool.labels(nodepool=pool, **labels).inc()


def command_notice(ref: ObjectRef, reason: str, message: str, *dedupe: str) -> Notice:
    """Return the Event on a NodeClaim or Node of a command."""
    return Notice(
        regarding=ref, type="Normal", reason=reason, message=message, dedupe=(ref.uid, *dedupe)
    )


def _snake_case(name: str) -> str:
    """Write `WhenEmptyOrUnderutilized` as `when_empty_or_underutilized`."""
    return _CAPITAL.sub("_", name).lower()


def command_obstacle(
    rejection: CommandRejection, message: str, *, kind: str, names: Sequence[str]
) -> DecisionObstacle:
    """Return the obstacle that stopped the whole command, for its record."""
    first = tuple(sorted(names)[:MAX_NAMED])
    return DecisionObstacle(
        kind=kind, reason=str(rejection), message=message, count=len(names), names=first
    )
