"""Commands on record: begun, given up before anything was done, or taken back afterwards.

On record means in the decision journal, in the log, in numbers and in Events.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.decisions import MOST_NAMED, DecisionObstacle
from karpenter_core.api.notices import Notice
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.journal import command_decision
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.claim_status import disrupted_labels
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.lifecycle.nodeclaim.launch import DISRUPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision
    from karpenter_core.api.notices import ObjectRef
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.disruption.validation import Rejection

__all__ = ["CommandRecords", "notice_about", "obstacle"]

_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


@final
class CommandRecords:
    """Tells what becomes of commands."""

    def __init__(self, *, hands: Hands, planner: Planner, runtime: Runtime, currency: str) -> None:
        self._hands = hands
        self._planner = planner
        self._runtime = runtime
        self._currency = currency
        self._log: FilteringBoundLogger = structlog.get_logger("disruption")

    async def prepared(
        self,
        command: Command,
        found: DisruptionPlan,
        *,
        rejection: Rejection | None = None,
        obstacles: Sequence[DecisionObstacle] = (),
    ) -> Decision:
        """Return the record of a command; with `rejection` one that is given up for `obstacles`.

        That may have to wait for a long pass.
        """
        made = partial(
            command_decision,
            command,
            found,
            rejection="" if rejection is None else str(rejection),
            obstacles=obstacles,
            currency=self._currency,
        )
        # What stood in the way of others is said of every machine: not for the event loop.
        return await self._planner.prepare(made)

    async def begun(self, command: Command, found: DisruptionPlan, decision: Decision) -> None:
        """Count, log and record a command that is under way."""
        self._count(command, found)
        self._say(command)
        await self._runtime.journal.record(decision)

    async def given_up(
        self,
        command: Command,
        found: DisruptionPlan,
        *,
        rejection: Rejection | None,
        obstacles: Sequence[DecisionObstacle] = (),
    ) -> None:
        """Record a command of a look that was not begun."""
        decision = await self.prepared(command, found, rejection=rejection, obstacles=obstacles)
        await self._runtime.journal.record(decision)

    async def taken_back(self, begun: Decision, why: str) -> None:
        """Record that what had begun came to nothing: its machines stay."""
        at = self._runtime.clock.now()
        await self._runtime.journal.record(replace(begun, at=at, failure=why))

    def tell(self, candidate: Candidate, command: Command) -> None:
        """Count and tell that a candidate's claim was deleted."""
        reason = str(command.reason)
        policy = ""
        if command.reason is not DisruptionReason.DRIFTED:
            policy = _snake_case(candidate.pool.spec.disruption.consolidation_policy)
        labels = disrupted_labels(candidate.claim, reason.lower(), consolidation_policy=policy)
        pods = len(candidate.reschedulable_pods)
        self._hands.count(
            (
                Fact(metric=DISRUPTED, labels=labels),
                Fact(metric="pods_disruption_initiated", labels=labels, value=pods),
            )
        )
        for what, ref in (("Node", node_ref(candidate.node)), ("NodeClaim", candidate.claim.ref)):
            text = f"Disrupting {what}: {reason}"
            self._hands.publish(notice_about(ref, "DisruptionTerminating", text, reason))

    def _say(self, command: Command) -> None:
        self._log.info(
            "disrupting node(s)",
            command=str(command),
            decision=str(command.decision),
            cause=command.cause,
            **{
                "command-id": command.id,
                "disrupted-node-count": len(command.candidates),
                "replacement-node-count": len(command.replacements),
                "pod-count": command.pod_count,
                "disrupted-nodes": [item.node.name for item in command.candidates],
                "replacement-nodes": [
                    planned.cheapest.capacity_type for planned in command.replacements
                ],
            },
        )

    def _count(self, command: Command, found: DisruptionPlan) -> None:
        method, metrics = found.method, self._runtime.metrics
        labels = {
            "decision": str(command.decision),
            "reason": str(command.reason).lower(),
            "consolidation_type": "" if method is None else method.consolidation_type,
        }
        metrics.disruption_decisions.labels(**labels).inc()
        for pool in command.pools:
            metrics.disruption_decisions_by_nodepool.labels(nodepool=pool, **labels).inc()


def notice_about(ref: ObjectRef, reason: str, message: str, *dedupe: str) -> Notice:
    """Return the Event on a NodeClaim or Node of a command."""
    return Notice(
        regarding=ref, type="Normal", reason=reason, message=message, dedupe=(ref.uid, *dedupe)
    )


def _snake_case(name: str) -> str:
    """Write `WhenEmptyOrUnderutilized` as `when_empty_or_underutilized`."""
    return _CAPITAL.sub("_", name).lower()


def obstacle(
    rejection: Rejection, message: str, *, kind: str, names: Sequence[str]
) -> DecisionObstacle:
    """Return what stood in the way of a command itself, for its record."""
    first = tuple(sorted(names)[:MOST_NAMED])
    return DecisionObstacle(
        kind=kind, reason=str(rejection), message=message, count=len(names), names=first
    )
