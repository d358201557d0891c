"""Carry out a command: mark its machines, then let their claims go.

Nothing is deleted that could not be marked first: the taint keeps the scheduler from using what is
about to vanish, and what a crash leaves marked is found and cleaned by the next look.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.claim_status import disrupted_labels, with_condition
from karpenter_core.lifecycle.launch import DISRUPTED
from karpenter_core.lifecycle.node_termination import disrupted_patch, node_ref
from karpenter_core.provider.contract import Decision
from karpenter_core.state.events import DeletionMarked, DeletionUnmarked

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.provider.facade import Providers

__all__ = ["CommandRunner"]

ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 0.5


@final
class CommandRunner:
    """Starts commands; knows which machines are being worked on."""

    def __init__(self, *, hands: Hands, providers: Providers, runtime: Runtime) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._queued: set[str] = set()
        self._log: FilteringBoundLogger = structlog.get_logger("disruption")

    @property
    def queued(self) -> frozenset[str]:
        """Provider ids of the machines that commands are working on."""
        return frozenset(self._queued)

    async def start(self, command: Command, *, consolidation_type: str) -> None:
        """Mark the candidates and delete those that could be marked."""
        ids = {candidate.provider_id for candidate in command.candidates}
        self._queued |= ids
        try:
            marked = await self._mark(command)
            if not marked:
                self._log.warning("no candidate could be marked, command given up")
                return
            await self._carry_out(
                replace(command, candidates=marked), consolidation_type=consolidation_type
            )
        finally:
            self._queued -= ids

    async def _carry_out(self, command: Command, *, consolidation_type: str) -> None:
        names = tuple(candidate.name for candidate in command.candidates)
        self._feed.fold(DeletionMarked(names=names, cause=command.id))
        self._count(command, consolidation_type=consolidation_type)
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
            },
        )
        kept = [
            candidate.name
            for candidate, done in zip(
                command.candidates,
                await asyncio.gather(*(self._delete(c, command) for c in command.candidates)),
                strict=True,
            )
            if not done
        ]
        if kept:
            self._feed.fold(DeletionUnmarked(names=tuple(kept)))
        await self._providers.observe_decision(_journal_entry(command))

    async def _mark(self, command: Command) -> tuple[Candidate, ...]:
        done = await asyncio.gather(
            *(self._mark_one(item, str(command.reason)) for item in command.candidates)
        )
        return tuple(item for item, ok in zip(command.candidates, done, strict=True) if ok)

    async def _mark_one(self, candidate: Candidate, reason: str) -> bool:
        """Taint a node and say why on its claim; what others wrote meanwhile is read again."""
        for attempt in range(ATTEMPTS):
            snapshot = self._feed.snapshot()
            node = snapshot.nodes.get(candidate.node.name)
            claim = snapshot.node_claims.get(candidate.name)
            if node is None or claim is None or claim.uid != candidate.claim.uid:
                return False
            try:
                await self._hands.write_node(node, disrupted_patch(node))
                await self._hands.write_claim(
                    claim,
                    with_condition(
                        claim,
                        DISRUPTION_REASON,
                        now=self._runtime.clock.now(),
                        reason=reason,
                        message=reason,
                    ),
                )
            except NotFoundError:
                return False
            except ConflictError:
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
            except ApiError as error:
                self._log.warning("could not mark node", Node={"name": node.name}, error=str(error))
                return False
            else:
                return True
        return False

    async def _delete(self, candidate: Candidate, command: Command) -> bool:
        claim = self._feed.snapshot().node_claims.get(candidate.name)
        if claim is None or claim.uid != candidate.claim.uid:
            return True
        try:
            deleted = await self._hands.delete_claim(claim)
        except ApiError as error:
            self._log.error(
                "could not delete nodeclaim", NodeClaim={"name": claim.name}, error=str(error)
            )
            return False
        if deleted:
            self._tell(candidate, command)
        return True

    def _tell(self, candidate: Candidate, command: Command) -> None:
        reason = str(command.reason)
        labels = disrupted_labels(candidate.claim, reason.lower())
        pods = len(candidate.reschedulable_pods)
        self._hands.count(
            (
                Fact(metric=DISRUPTED, labels=labels),
                Fact(metric="pods_disruption_initiated", labels=labels, value=pods),
            )
        )
        for what, ref in (("Node", node_ref(candidate.node)), ("NodeClaim", candidate.claim.ref)):
            self._hands.publish(_terminating(ref, what, reason))

    def _count(self, command: Command, *, consolidation_type: str) -> None:
        metrics = self._runtime.metrics
        labels = {
            "decision": str(command.decision),
            "reason": str(command.reason).lower(),
            "consolidation_type": consolidation_type,
        }
        metrics.disruption_decisions.labels(**labels).inc()
        for pool in command.pools:
            metrics.disruption_decisions_by_nodepool.labels(nodepool=pool, **labels).inc()


def _terminating(ref: ObjectRef, what: str, reason: str) -> Notice:
    return Notice(
        regarding=ref,
        type="Normal",
        reason="DisruptionTerminating",
        message=f"Disrupting {what}: {reason}",
        dedupe=(ref.uid, reason),
    )


def _journal_entry(command: Command) -> Decision:
    refs = [ref for item in command.candidates for ref in (item.claim.ref, node_ref(item.node))]
    return Decision(
        id=command.id,
        cause=command.cause,
        kind="disrupt",
        at=command.created,
        summary=str(command),
        objects=tuple(refs),
    )
