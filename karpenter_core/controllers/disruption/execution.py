"""Carry out commands: mark, order what comes instead, wait for it, then let the old claims go.

Nothing is deleted that could not be marked first, and nothing before its replacements are ready:
the taint keeps the scheduler from using what is about to vanish, and what a crash leaves marked is
found and cleaned by the next look. A command that fails or takes too long is rolled back; what was
ordered for it stays, and is consolidated like everything else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.disruption.records import notice_about, obstacle
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.provisioning.claims import Decided
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.command import shortened
from karpenter_core.disruption.pricing import Prices
from karpenter_core.disruption.queue import StaleMark, command_timeout, is_being_interrupted
from karpenter_core.disruption.resting import Resting
from karpenter_core.disruption.validation import Rejection
from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_core.lifecycle.claim_status import with_condition, without_condition
from karpenter_core.lifecycle.node.termination import (
    disrupted_patch,
    tainted_patch,
    undisrupted_patch,
)
from karpenter_core.state.events import (
    DeletionMarked,
    DeletionUnmarked,
    Nominated,
    PodsDecided,
)
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision, DecisionObstacle
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.disruption.records import CommandRecords
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.provisioning.creation import ClaimCreator
    from karpenter_core.controllers.reconciler import Runtime
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


class _Problem(NamedTuple):
    """Why a command was not begun, as a category and in words."""

    rejection: Rejection
    why: str


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """A command under way, and the replacements that are awaited."""

    command: Command
    begun: Decision
    started: datetime
    awaited: list[str] = field(default_factory=list[str])
    """Names of the replacements that have not been ready yet."""

    @property
    def provider_ids(self) -> frozenset[str]:
        return frozenset(candidate.provider_id for candidate in self.command.candidates)


@final
class CommandQueue:
    """The controller `disruption.queue`: starts commands and sees them through."""

    def __init__(
        self,
        *,
        hands: Hands,
        creator: ClaimCreator,
        runtime: Runtime,
        freshness: Freshness,
        options: DisruptionOptions,
        records: CommandRecords,
    ) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._creator = creator
        self._runtime = runtime
        self._freshness = freshness
        self._options = options
        self._records = records
        self._starting: set[str] = set()
        self._entries: list[_Entry] = []
        self._resting = Resting()
        self._steady = SteadyClock(runtime.clock)
        self._log: FilteringBoundLogger = structlog.get_logger("disruption")
        self._loop = Loop(self.name, self.step, runtime=runtime)
        self._feed.subscribe(Kind.NODE_CLAIM, self._note_claim)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "disruption.queue"

    @property
    def queued(self) -> frozenset[str]:
        """Provider ids of the machines that commands are working on."""
        return frozenset(self._starting).union(*(entry.provider_ids for entry in self._entries))

    @property
    def resting(self) -> frozenset[str]:
        """Pools whose drift is left alone for a while, since replacements kept failing."""
        return self._resting.pools(self._steady.now())

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    def _note_claim(self, name: str) -> None:
        """Look sooner at commands that wait for this claim."""
        if any(name in entry.awaited for entry in self._entries):
            self._loop.wake()

    # -- start -------------------------------------------------------------------------------------

    async def start(
        self,
        command: Command,
        found: DisruptionPlan,
        *,
        obstacles: Sequence[DecisionObstacle] = (),
    ) -> bool:
        """Mark the candidates and order the replacements; say whether the command is under way.

        `found` is the look it comes from, `obstacles` what has kept others out of it since.
        """
        ids = {candidate.provider_id for candidate in command.candidates}
        if ids & self.queued:
            problem = _Problem(Rejection.CONFLICT, "a candidate is being disrupted already")
        else:
            self._starting |= ids
            try:
                problem = await self._start(command, found, obstacles)
            finally:
                self._starting -= ids
        if problem is None:
            return True
        self._log.info("disruption command given up", command=str(command), why=problem.why)
        if problem.rejection is Rejection.LAUNCH:
            kind, names = "NodePool", sorted({planned.pool for planned in command.replacements})
        else:
            kind, names = "Node", [candidate.node.name for candidate in command.candidates]
        own = obstacle(problem.rejection, problem.why, kind=kind, names=names)
        await self._records.given_up(
            command, found, rejection=problem.rejection, obstacles=(own, *obstacles)
        )
        return False

    async def _start(
        self, command: Command, found: DisruptionPlan, obstacles: Sequence[DecisionObstacle]
    ) -> _Problem | None:
        if stale := self._freshness.stale_for(Consumer.DISRUPTION):
            kinds = ", ".join(str(each) for each in stale)
            return _Problem(Rejection.STALE, f"the API server no longer shows {kinds}")
        if why := self._creator.refusal(command.replacements):
            return _Problem(Rejection.LAUNCH, why)
        marked = await self._mark(command)
        if not marked or (command.replacements and len(marked) < len(command.candidates)):
            return _Problem(Rejection.CONFLICT, "not all candidates could be marked")
        if len(marked) < len(command.candidates):
            prices = Prices(self._feed.snapshot(), self._options.solve)
            command = shortened(command, marked, prices)
        # Made now: once machines are ordered, nothing may keep the command from being under way.
        begun = await self._records.prepared(command, found, obstacles=obstacles)
        names = await self._order(command)
        if None in names:
            return _Problem(Rejection.LAUNCH, "not all replacements could be created")
        # Only now: the provisioner would otherwise order the same machines a second time.
        self._feed.fold(DeletionMarked(names=tuple(item.name for item in marked), cause=command.id))
        self._expect(command)
        self._entries.append(
            _Entry(
                command=command,
                begun=begun,
                started=self._steady.now(),
                awaited=[name for name in names if name is not None],
            )
        )
        self._loop.wake()
        await self._records.begun(command, found, begun)
        return None

    async def _order(self, command: Command) -> tuple[str | None, ...]:
        if not command.replacements:
            return ()
        created = await self._creator.create(
            command.replacements,
            decided=Decided(id=command.id, cause=str(command)),
            reason=str(command.reason).lower(),
        )
        return created.names

    def _expect(self, command: Command) -> None:
        """Keep the machines that the pods will go to; they would be disrupted as well."""
        if not command.moves:
            return
        now, window = self._runtime.clock.now(), self._options.framing.nomination_window
        self._feed.fold(Nominated(names=tuple(command.moves), until=now + window))
        placed = {pod.uid: name for name, pods in command.moves.items() for pod in pods}
        self._feed.fold(PodsDecided(placed=placed, at=now))

    async def _mark(self, command: Command) -> tuple[Candidate, ...]:
        # Balancers are told at once where nothing is waited for: else a command may be taken back.
        patch = tainted_patch if command.replacements else disrupted_patch
        reason = str(command.reason)
        done = await asyncio.gather(
            *(self._mark_one(item, reason, patch) for item in command.candidates)
        )
        return tuple(item for item, ok in zip(command.candidates, done, strict=True) if ok)

    async def _mark_one(
        self, candidate: Candidate, reason: str, patch: Callable[[NodeView], NodePatch]
    ) -> bool:
        """Taint a node and say why on its claim; what others wrote meanwhile is read again."""
        for attempt in range(ATTEMPTS):
            snapshot = self._feed.snapshot()
            node = snapshot.nodes.get(candidate.node.name)
            claim = snapshot.node_claims.get(candidate.name)
            if node is None or claim is None or claim.uid != candidate.claim.uid:
                return False
            try:
                await self._hands.write_node(node, patch(node))
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
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
            else:
                return True
        return False

    # -- see through -------------------------------------------------------------------------------

    async def step(self) -> float:
        """Look at every command under way."""
        if self._entries and self._freshness.hold(Consumer.DISRUPTION, self.name, self._loop.wake):
            return PERIOD_SECONDS
        failure: Exception | None = None
        for entry in tuple(self._entries):
            try:
                await self._advance(entry)
            except Exception as error:
                failure = error  # the other commands are looked at all the same
        if failure is not None:
            raise failure
        return PERIOD_SECONDS if self._entries else IDLE_SECONDS

    async def _advance(self, entry: _Entry) -> None:
        problem = self._look_at_replacements(entry)
        late = "replacements were not ready in time"
        if not problem and not entry.awaited:
            if await self._delete_all(entry.command):
                self._entries.remove(entry)
                self._note_result(entry.command, succeeded=True)
                return
            late = "nodeclaims could not be deleted"
        if problem or self._is_late(entry):
            await self._roll_back(entry, problem or late)

    def _look_at_replacements(self, entry: _Entry) -> str:
        """Strike off what is ready; say what went wrong for good, if anything did."""
        claims = self._feed.snapshot().node_claims
        reason = str(entry.command.reason)
        for name in tuple(entry.awaited):
            claim = claims.get(name)
            if claim is None or claim.is_deleting:
                return f"replacement {name} failed"
            self._hands.publish(
                notice_about(
                    claim.ref, "DisruptionLaunching", f"Launching NodeClaim: {reason}", reason
                )
            )
            if is_true(claim.status.conditions, INITIALIZED):
                entry.awaited.remove(name)
                continue
            text = "Waiting on readiness to continue disruption"
            self._hands.publish(notice_about(claim.ref, "DisruptionWaitingReadiness", text))
        return ""

    def _is_late(self, entry: _Entry) -> bool:
        limit = command_timeout(len(self.queued))
        return self._steady.now() - entry.started > limit

    async def _delete_all(self, command: Command) -> bool:
        done = await asyncio.gather(*(self._delete(c, command) for c in command.candidates))
        return all(done)

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
            self._records.tell(candidate, command)
        return True

    async def _roll_back(self, entry: _Entry, problem: str) -> None:
        """Give a command up: its machines stay."""
        command = entry.command
        self._entries.remove(entry)
        self._feed.fold(DeletionUnmarked(names=tuple(item.name for item in command.candidates)))
        self._runtime.metrics.disruption_queue_failures.labels(
            decision=str(command.decision),
            reason=str(command.reason).lower(),
            consolidation_type=str(command.decision),  # as upstream fills it
        ).inc(max(len(entry.awaited), 1))
        self._log.error("disruption command failed", command=str(command), error=problem)
        self._note_result(command, succeeded=False)
        await self.clean_stale(
            StaleMark(node=item.node.name, claim=item.name) for item in command.candidates
        )
        await self._records.taken_back(entry.begun, problem)

    async def clean_stale(self, marks: Iterable[StaleMark]) -> None:
        """Take marks off that a failed command or a dead process left; next time where it fails."""
        for mark in marks:
            try:
                await self._clean(mark)
            except ApiError as error:
                self._log.warning(
                    "could not take the marks of a disruption off",
                    Node={"name": mark.node},
                    NodeClaim={"name": mark.claim},
                    error=str(error),
                )

    async def _clean(self, mark: StaleMark) -> None:
        snapshot = self._feed.snapshot()
        node = snapshot.nodes.get(mark.node)
        if node is not None and (patch := undisrupted_patch(node)) is not None:
            await self._hands.write_node(node, patch)
        claim = snapshot.node_claims.get(mark.claim)
        if claim is None or claim.is_deleting:
            return
        if not is_being_interrupted(claim, self._runtime.clock.now()):
            await self._hands.write_claim(claim, without_condition(claim, DISRUPTION_REASON))

    # -- what is said and counted ------------------------------------------------------------------

    def _note_result(self, command: Command, *, succeeded: bool) -> None:
        if command.reason is not DisruptionReason.DRIFTED:
            return
        now = self._steady.now()
        for pool in command.pools:
            self._resting = (
                self._resting.succeeded(pool)
                if succeeded
                else self._resting.failed(pool, now, command.id)
            )
