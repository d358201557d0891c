"""Executes commands: taint nodes, launch replacements, wait, delete claims.

A claim is deleted only after its node was tainted and its replacements are ready. The taint keeps the
scheduler from using a node that is about to be deleted; the next pass cleans up marks that a crash
leaves behind. A command that fails or takes too long is rolled back; its replacements stay, and are
consolidated like any other node.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.disruption.command_records import command_notice, command_obstacle
from karpenter_core.controllers.provisioning.new_claims import DecisionRef
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import ExponentialBackoff, PeriodicLoop
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.command import with_candidates
from karpenter_core.disruption.command_queue import (
    StaleDisruptionMark,
    command_timeout,
    find_stale_mark,
    is_being_interrupted,
)
from karpenter_core.disruption.drift_backoff import DriftBackoff
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice
from karpenter_core.lifecycle.claim_status import with_condition, without_condition
from karpenter_core.lifecycle.node.termination import (
    disrupted_patch,
    tainted_patch,
    undisrupted_patch,
)
from karpenter_core.lifecycle.nodeclaim.registration import awaits_registration
from karpenter_core.lifecycle.nodeclaim.termination import without_deadline
from karpenter_core.state.events import (
    DeletionMarked,
    DeletionUnmarked,
    NodesNominated,
    PodsDecided,
)
from karpenter_core.state.termination_deadline import has_stale_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision, DecisionObstacle
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.disruption.command_records import CommandRecords
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionOptions
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.lifecycle.changes import NodePatch

__all__ = ["CommandQueue"]

ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 0.5
PERIOD_SECONDS: Final = 1.0  # upstream default
IDLE_SECONDS: Final = 60.0
DELETION_BACKOFF: Final = ExponentialBackoff(base_seconds=1.0, maximum_seconds=10.0)
"""Waits between attempts to delete claims that the API server refuses to delete; upstream's."""


class _CommandFailure(NamedTuple):
    """The reason why a command was not started, as a category and as a message."""

    rejection: CommandRejection
    why: str


@dataclass(slots=True, kw_only=True, eq=False)
class _RunningCommand:
    """A running command, and the replacements that it waits for."""

    command: Command
    decision: Decision
    limited_from: datetime
    """Start of the time limit: the command's start, or when a replacement last waited for its Node."""
    replacements: tuple[str, ...]
    """Names of all replacements."""
    pending_replacements: list[str]
    """Names of the replacements that are not ready yet."""
    delete_after: datetime
    """The time of the next attempt to delete the candidates' claims."""
    failed_deletions: int = 0

    def wait_to_delete(self, now: datetime) -> None:
        """Put off the next deletion after one that failed; nothing while one is put off."""
        if now >= self.delete_after:
            self.failed_deletions += 1
            wait = DELETION_BACKOFF.seconds(self.failed_deletions)
            self.delete_after = now + timedelta(seconds=wait)

    @property
    def provider_ids(self) -> frozenset[str]:
        return frozenset(candidate.provider_id for candidate in self.command.candidates)


@final
class CommandQueue:
    """The controller `disruption.queue`: starts commands and runs them to their end."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        creator: ClaimCreator,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        options: DisruptionOptions,
        records: CommandRecords,
    ) -> None:
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._creator = creator
        self._runtime = runtime
        self._freshness = freshness
        self._options = options
        self._records = records
        self._starting: set[str] = set()
        self._running: list[_RunningCommand] = []
        self._drift_backoff = DriftBackoff()
        self._steady = SteadyClock(runtime.clock)
        self._log: FilteringBoundLogger = structlog.get_logger("disruption")
        self._loop = PeriodicLoop(self.name, self.step, runtime=runtime)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "disruption.queue"

    @property
    def queued_provider_ids(self) -> frozenset[str]:
        """Provider IDs of the nodes that commands disrupt."""
        return frozenset(self._starting).union(*(entry.provider_ids for entry in self._running))

    @property
    def drift_backoff_pools(self) -> frozenset[str]:
        """Pools whose drift is left alone for a while, because replacements failed."""
        return self._drift_backoff.active_pools(self._steady.now())

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    # -- start -------------------------------------------------------------------------------------

    async def start(
        self,
        command: Command,
        plan: DisruptionPlan,
        *,
        obstacles: Sequence[DecisionObstacle] = (),
    ) -> bool:
        """Mark the candidates and create the replacements; tell whether the command has started.

        `plan` is the plan with the command; `obstacles` have removed candidates from it since.
        """
        ids = {candidate.provider_id for candidate in command.candidates}
        if ids & self.queued_provider_ids:
            problem = _CommandFailure(
                CommandRejection.CONFLICT, "a candidate is being disrupted already"
            )
        else:
            self._starting |= ids
            try:
                problem = await self._start(command, plan, obstacles)
            finally:
                self._starting -= ids
        if problem is None:
            return True
        self._log.debug("disruption command not started", command=str(command), why=problem.why)
        await self._remove_marks_of(command)  # a later pass may be far off, or fail in the same way
        if problem.rejection is CommandRejection.LAUNCH:
            kind, names = "NodePool", sorted({planned.pool for planned in command.replacements})
        else:
            kind, names = "Node", [candidate.node.name for candidate in command.candidates]
        own = command_obstacle(problem.rejection, problem.why, kind=kind, names=names)
        await self._records.record_rejected(
            command, plan, rejection=problem.rejection, obstacles=(own, *obstacles)
        )
        return False

    async def _start(
        self, command: Command, plan: DisruptionPlan, obstacles: Sequence[DecisionObstacle]
    ) -> _CommandFailure | None:
        if stale := self._freshness.stale_for(FreshnessConsumer.DISRUPTION):
            kinds = ", ".join(str(each) for each in stale)
            return _CommandFailure(
                CommandRejection.STALE, f"the API server no longer shows {kinds}"
            )
        leaving = frozenset(candidate.name for candidate in command.candidates)
        pools = _planned_pools(command)
        if why := self._creator.refusal(command.replacements, pools=pools, leaving=leaving):
            return _CommandFailure(CommandRejection.LAUNCH, why)
        marked = await self._taint_candidates(command)
        if not marked or (command.replacements and len(marked) < len(command.candidates)):
            return _CommandFailure(CommandRejection.CONFLICT, "not all candidates could be marked")
        if len(marked) < len(command.candidates):
            prices = NodePrices(self._cluster_state.snapshot(), self._options.solve)
            command = with_candidates(command, marked, prices)
        # Computed now: once replacements are created, the command must start without a wait.
        decision = await self._records.prepare_record(command, plan, obstacles=obstacles)
        names = await self._create_replacements(command)
        if None in names:
            if self._is_any_leaving(command):
                return _CommandFailure(
                    CommandRejection.CONFLICT, "a candidate is being removed already"
                )
            self._record_drift_result(command, succeeded=False)
            return _CommandFailure(CommandRejection.LAUNCH, "not all replacements could be created")
        created = tuple(name for name in names if name is not None)
        # Only now: the provisioner would otherwise launch replacements for the same pods.
        leaving_names = tuple(item.name for item in command.candidates)
        self._cluster_state.fold(DeletionMarked(names=leaving_names, cause=command.id))
        self._nominate_targets(command)
        self._running.append(
            _RunningCommand(
                command=command,
                decision=decision,
                limited_from=self._steady.now(),
                delete_after=self._steady.now(),
                replacements=created,
                pending_replacements=list(created),
            )
        )
        self._loop.wake()
        await self._records.record_started(command, plan, decision)
        return None

    async def _create_replacements(self, command: Command) -> tuple[str | None, ...]:
        if not command.replacements:
            return ()
        created = await self._creator.create(
            command.replacements,
            pools=_planned_pools(command),
            decision_ref=DecisionRef(id=command.id, cause=str(command)),
            reason=str(command.reason).lower(),
            leaving=frozenset(candidate.name for candidate in command.candidates),
            is_wanted=lambda: not self._is_any_leaving(command),
        )
        return created.names

    def _is_any_leaving(self, command: Command) -> bool:
        """Tell whether a candidate is removed by others: interrupted, or its claim deleted.

        Its pods, and the replica of a static NodePool, are then replaced like those of any such node.
        """
        state_nodes = self._cluster_state.snapshot().state_nodes_by_claim
        return any(
            (state_node := state_nodes.get(candidate.name)) is None
            or state_node.marked_for_deletion
            for candidate in command.candidates
        )

    def _nominate_targets(self, command: Command) -> None:
        """Nominate the nodes that the pods will move to, so that they are not disrupted as well."""
        if not command.moves:
            return
        now, window = self._runtime.clock.now(), self._options.problem_settings.nomination_window
        self._cluster_state.fold(NodesNominated(names=tuple(command.moves), until=now + window))
        placed = {pod.uid: name for name, pods in command.moves.items() for pod in pods}
        self._cluster_state.fold(PodsDecided(placed=placed, at=now))

    async def _taint_candidates(self, command: Command) -> tuple[Candidate, ...]:
        # Without replacements to wait for, nodes leave load balancers at once: no rollback follows.
        patch = tainted_patch if command.replacements else disrupted_patch
        reason = str(command.reason)
        done = await asyncio.gather(
            *(self._taint_candidate(item, reason, patch) for item in command.candidates)
        )
        return tuple(item for item, ok in zip(command.candidates, done, strict=True) if ok)

    async def _taint_candidate(
        self, candidate: Candidate, reason: str, patch: Callable[[NodeView], NodePatch]
    ) -> bool:
        """Taint a node and set the reason on its claim; retry after conflicting writes."""
        for attempt in range(ATTEMPTS):
            snapshot = self._cluster_state.snapshot()
            node = snapshot.nodes.get(candidate.node.name)
            claim = snapshot.node_claims.get(candidate.name)
            if node is None or claim is None or claim.uid != candidate.claim.uid:
                return False
            try:
                await self._writer.write_node(node, patch(node))
                await self._writer.write_claim(
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
                self._log.warning(
                    "could not taint node", Node={"name": node.name}, error=str(error)
                )
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
            else:
                return True
        return False

    # -- run ---------------------------------------------------------------------------------------

    async def step(self) -> float:
        """Advance every running command."""
        if self._running and self._freshness.stale_or_wake(
            FreshnessConsumer.DISRUPTION, self.name, self._loop.wake
        ):
            return PERIOD_SECONDS
        failure: Exception | None = None
        for entry in tuple(self._running):
            try:
                await self._advance(entry)
            except Exception as error:
                failure = error  # the other commands are advanced all the same
        if failure is not None:
            raise failure
        return PERIOD_SECONDS if self._running else IDLE_SECONDS

    async def _advance(self, entry: _RunningCommand) -> None:
        problem = self._check_replacements(entry)
        late = "replacements were not ready in time"
        if not problem and not entry.pending_replacements:
            if self._steady.now() >= entry.delete_after and await self._delete_all(entry.command):
                self._running.remove(entry)
                self._record_drift_result(entry.command, succeeded=True)
                return
            entry.wait_to_delete(self._steady.now())
            late = "nodeclaims could not be deleted"
        if problem or self._is_late(entry):
            await self._roll_back(entry, problem or late)

    def _check_replacements(self, entry: _RunningCommand) -> str:
        """Remove ready replacements from the pending ones; return why one failed, if any did.

        One that was ready may be lost while others start: pods would be evicted without a place.
        """
        claims = self._cluster_state.snapshot().node_claims
        reason = str(entry.command.reason)
        for name in entry.replacements:
            claim = claims.get(name)
            if claim is None or claim.is_deleting:
                return f"replacement {name} failed"
            if name not in entry.pending_replacements:
                continue
            self._writer.publish(
                command_notice(
                    claim.ref, "DisruptionLaunching", f"Launching NodeClaim: {reason}", reason
                )
            )
            if is_true(claim.status.conditions, INITIALIZED):
                entry.pending_replacements.remove(name)
                continue
            if awaits_registration(claim):  # limited by the registration timeout
                entry.limited_from = self._steady.now()
            text = "Waiting on readiness to continue disruption"
            self._writer.publish(command_notice(claim.ref, "DisruptionWaitingReadiness", text))
        return ""

    def _is_late(self, entry: _RunningCommand) -> bool:
        limit = command_timeout(len(self.queued_provider_ids))
        return self._steady.now() - entry.limited_from > limit

    async def _delete_all(self, command: Command) -> bool:
        done = await asyncio.gather(*(self._delete(c, command) for c in command.candidates))
        return all(done)

    async def _delete(self, candidate: Candidate, command: Command) -> bool:
        claim = self._cluster_state.snapshot().node_claims.get(candidate.name)
        if claim is None or claim.uid != candidate.claim.uid:
            return True
        try:
            deleted = await self._writer.delete_claim(claim)
        except ApiError as error:
            self._log.error(
                "could not delete nodeclaim", NodeClaim={"name": claim.name}, error=str(error)
            )
            if is_refusal(error):
                self._writer.publish(refused_write_notice(claim.ref, error))
            return False
        if deleted:
            self._records.record_deleted(candidate, command)
        return True

    async def _roll_back(self, entry: _RunningCommand, problem: str) -> None:
        """Roll a command back, so its nodes stay."""
        command = entry.command
        self._running.remove(entry)
        self._cluster_state.fold(
            DeletionUnmarked(names=tuple(item.name for item in command.candidates))
        )
        self._runtime.metrics.disruption_queue_failures.labels(
            decision=str(command.decision),
            reason=str(command.reason).lower(),
            consolidation_type=str(command.decision),  # as upstream fills it
        ).inc(max(len(entry.pending_replacements), 1))
        self._record_drift_result(command, succeeded=False)
        await self._remove_marks_of(command)
        await self._records.record_rolled_back(entry.decision, problem)

    async def _remove_marks_of(self, command: Command) -> None:
        """Remove the marks of a command that is not carried out, except from nodes that others remove."""
        state_nodes = self._cluster_state.snapshot().state_nodes_by_claim
        left = [state_nodes[item.name] for item in command.candidates if item.name in state_nodes]
        await self.remove_stale_marks(mark for mark in map(find_stale_mark, left) if mark)

    async def remove_stale_marks(self, marks: Iterable[StaleDisruptionMark]) -> None:
        """Remove marks of failed commands and ended processes; a failure is retried next pass.

        The marks of many nodes take a while to remove: another command may have set its own meanwhile.
        """
        for mark in marks:
            state_node = self._cluster_state.snapshot().state_node(mark.claim or mark.node)
            if state_node is not None and state_node.provider_id in self.queued_provider_ids:
                continue
            try:
                await self._remove_mark(mark)
            except ApiError as error:
                self._log.warning(
                    "could not remove the marks of a disruption",
                    Node={"name": mark.node},
                    NodeClaim={"name": mark.claim},
                    error=str(error),
                )

    async def _remove_mark(self, mark: StaleDisruptionMark) -> None:
        snapshot = self._cluster_state.snapshot()
        node = snapshot.nodes.get(mark.node)
        if node is not None and (patch := undisrupted_patch(node)) is not None:
            await self._writer.write_node(node, patch)
        claim = snapshot.node_claims.get(mark.claim)
        if claim is None or claim.is_deleting:
            return
        now = self._runtime.clock.now()
        if is_being_interrupted(claim, now):
            return
        unmarked = without_condition(claim, DISRUPTION_REASON)
        if has_stale_deadline(claim, now):
            unmarked = without_deadline(unmarked)
        await self._writer.write_claim(claim, unmarked)

    # -- drift back-off ----------------------------------------------------------------------------

    def _record_drift_result(self, command: Command, *, succeeded: bool) -> None:
        if command.reason is not DisruptionReason.DRIFTED:
            return
        now = self._steady.now()
        for pool in command.pools:
            self._drift_backoff = (
                self._drift_backoff.with_success(pool)
                if succeeded
                else self._drift_backoff.with_failure(pool, now, command.id)
            )


def _planned_pools(command: Command) -> dict[str, NodePool]:
    """Return the NodePools with which a command was planned, as far as its candidates tell."""
    return {candidate.pool.name: candidate.pool for candidate in command.candidates}
