"""The disruption loop: look every ten seconds, wait before acting, look again.

Which nodes go, and whether they still may after the wait, is decided by `disruption.plan`. No
other method starts anything while a command waits for its second look; commands that are under way
are seen through by the queue meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.controllers.disruption.records import CommandRecords, obstacle
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.disruption.balanced import BALANCED
from karpenter_core.disruption.budgets import DisruptionReason, budget_errors
from karpenter_core.disruption.command import shortened
from karpenter_core.disruption.consolidation import candidate_notices, rejection_notices
from karpenter_core.disruption.isolation import validation_steps
from karpenter_core.disruption.method import DisruptionOptions, Effort, Pass
from karpenter_core.disruption.plan import METHODS, plan_steps
from karpenter_core.disruption.pricing import Prices
from karpenter_core.disruption.queue import stale_marks
from karpenter_core.disruption.stamp import Stamps, is_stale
from karpenter_core.disruption.validation import Rejection
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import DecisionObstacle
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.creation import ClaimCreator
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method, Room, Steps
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.disruption.stamp import Stamp
    from karpenter_core.disruption.validation import Verdict
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["DisruptionController"]

T = TypeVar("T")

PERIOD_SECONDS: Final = 10.0  # upstream default
UNSYNCED_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 60.0
"""What a look may take; upstream gives so much to the search for several nodes alone."""


@final
class DisruptionController:
    """The controller `disruption`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        creator: ClaimCreator,
        planner: Planner,
        runtime: Runtime,
        freshness: Freshness,
        options: DisruptionOptions | None = None,
    ) -> None:
        self._hands = hands
        self._freshness = freshness
        self._feed = hands.feed
        self._providers = providers
        self._planner = planner
        self._runtime = runtime
        self._options = options or DisruptionOptions()
        self._records = CommandRecords(
            hands=hands, planner=planner, runtime=runtime, currency=self._options.solve.currency
        )
        self.queue: Final = CommandQueue(
            hands=hands,
            creator=creator,
            runtime=runtime,
            freshness=freshness,
            options=self._options,
            records=self._records,
        )
        self._cache = CatalogueCache()
        self._stamps = Stamps()
        self._steady = SteadyClock(runtime.clock)
        self._settled: dict[str, tuple[Stamp, datetime, Room]] = {}
        self._unseen: dict[str, frozenset[str]] = {}
        self._reported: dict[str, tuple[str, ...]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._loop = Loop(self.name, self.step, runtime=runtime)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "disruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        await self._loop.run()

    async def step(self) -> float:
        """Look once, and act if there is something to do."""
        self._feed.tick()
        snapshot = self._feed.snapshot()
        if not snapshot.synced:
            return UNSYNCED_SECONDS
        if self._freshness.hold(Consumer.DISRUPTION, self.name, self._loop.wake):
            return PERIOD_SECONDS
        now = self._runtime.clock.now()
        await self.queue.clean_stale(stale_marks(snapshot, now=now, queued=self.queue.queued))
        methods: Sequence[Method] = METHODS
        while methods:
            self._report_budgets(self._feed.snapshot())
            found = await self._plan(methods)
            if found.method is None:
                return PERIOD_SECONDS
            if await self._act(found, found.method):
                return 0.0
            methods = methods[methods.index(found.method) + 1 :]
        return PERIOD_SECONDS

    async def _plan(self, methods: Sequence[Method]) -> DisruptionPlan:
        snapshot = self._feed.snapshot()
        stamp = self._stamps.of(snapshot)
        look, looked_at = self._look(snapshot, stamp), self._steady.now()
        started = self._runtime.clock.monotonic()
        found = await self._compute(plan_steps(look, methods=methods), look.effort)
        self._measure(found, seconds=self._runtime.clock.monotonic() - started)
        self._hands.tell(found.notices)
        # After a command was given up only the methods behind it are asked: another phase.
        self._hands.set_aside(found.set_aside, controller=self.name, phase=methods[0].name)
        for report in found.reports:
            name = report.method.name
            self._unseen[name] = report.unseen
            if report.is_settled and look.settled.get(name) != report.room:
                self._settled[name] = (stamp, looked_at, report.room)
        return found

    async def _act(self, found: DisruptionPlan, method: Method) -> bool:
        """Start commands, after a second look where the method wants one; say whether any was."""
        commands: Sequence[Command] = found.commands
        if method.is_validated:
            commands = await self._validated(found, method)
        started = False
        for command in commands:
            chosen, vetoes = await self._without_vetoed(command)
            if chosen is None:
                await self._records.given_up(
                    command, found, rejection=Rejection.VETO, obstacles=vetoes
                )
            elif await self.queue.start(chosen, found, obstacles=vetoes):
                started = True
        return started

    def _look(self, snapshot: Snapshot, stamp: Stamp | None = None) -> Pass:
        now, steady = self._runtime.clock.now(), self._steady.now()
        return Pass(
            snapshot=snapshot,
            now=now,
            command_id=self._runtime.new_id(),
            cause=f"snapshot {snapshot.version}",
            queued=self.queue.queued,
            settled={
                name: room
                for name, (known, at, room) in self._settled.items()
                if known == stamp and not is_stale(at, steady)
            },
            unseen=dict(self._unseen),
            resting=self.queue.resting,
            options=self._options,
            cache=self._cache,
            stamp=stamp,
        )

    async def _compute(self, steps: Steps[T], effort: Effort) -> T:
        def overtime() -> None:
            effort.is_spent = True

        return await self._planner.work(steps, limit_seconds=LIMIT_SECONDS, overtime=overtime)

    async def _validated(self, found: DisruptionPlan, method: Method) -> list[Command]:
        """Wait, and return what still holds then."""
        is_consolidation = method.reason is DisruptionReason.UNDERUTILIZED
        for command in found.commands:
            if is_consolidation:
                self._hands.tell(candidate_notices(command))
            self._log.info(
                "disruption command waits to be validated",
                command=str(command),
                seconds=self._options.validation_delay.total_seconds(),
            )
        await self._runtime.clock.sleep(self._options.validation_delay.total_seconds())
        self._feed.tick()
        look = self._look(self._feed.snapshot())
        kept: list[Command] = []
        for command in found.commands:
            verdict: Verdict = await self._compute(
                validation_steps(method, command, look), look.effort
            )
            if verdict.failed:
                self._runtime.metrics.disruption_failed_validations.labels(
                    consolidation_type=method.consolidation_type
                ).inc(verdict.failed)
            if verdict.command is not None:
                kept.append(verdict.command)
                continue
            reason = str(verdict.rejection)
            self._log.info(
                "disruption command no longer holds", command=str(command), reason=reason
            )
            if is_consolidation:
                self._hands.tell(rejection_notices(command, reason))
            await self._records.given_up(command, found, rejection=verdict.rejection)
        self._hands.set_aside(look.failed.found, controller=self.name, phase="validation")
        return kept

    async def _without_vetoed(
        self, command: Command
    ) -> tuple[Command | None, list[DecisionObstacle]]:
        """Return what plug-ins leave of a command, None when that is nothing; and what they say."""
        kept: list[Candidate] = []
        said: list[DecisionObstacle] = []
        for candidate in command.candidates:
            node = candidate.node.name
            vetoes = await self._providers.vetoes(candidate.machine)
            for plugin, why in vetoes.items():
                self._log.info("plug-in keeps node", Node={"name": node}, plugin=plugin, why=why)
                said.append(obstacle(Rejection.VETO, f"{plugin}: {why}", kind="Node", names=[node]))
            if not vetoes:
                kept.append(candidate)
        if len(kept) == len(command.candidates):
            return command, said
        if command.replacements or not kept:
            return None, said
        prices = Prices(self._feed.snapshot(), self._options.solve)
        return shortened(command, kept, prices), said

    def _report_budgets(self, snapshot: Snapshot) -> None:
        """Log budgets that cannot be read, once for each way they are wrong."""
        now = self._runtime.clock.now()
        for name, pool in snapshot.node_pools.items():
            errors = budget_errors(pool, now)
            if errors and self._reported.get(name) != errors:
                for error in errors:
                    self._log.error("budget cannot be read, nothing is disrupted", error=error)
            self._reported[name] = errors
        for gone in [name for name in self._reported if name not in snapshot.node_pools]:
            del self._reported[gone]

    def _measure(self, found: DisruptionPlan, *, seconds: float) -> None:
        metrics = self._runtime.metrics
        eligible: dict[str, int] = {}  # several methods have one reason
        for report in found.reports:
            reason, kind = str(report.method.reason), report.method.consolidation_type
            metrics.disruption_evaluation_duration.labels(
                reason=reason.lower(), consolidation_type=kind
            ).observe(seconds / len(found.reports))
            eligible[reason] = max(eligible.get(reason, 0), report.eligible)
            metrics.disruption_eligible_nodes.labels(reason=reason.lower()).set(eligible[reason])
            if report.is_cut_short:
                metrics.consolidation_timeouts.labels(consolidation_type=kind).inc()
            for pool, budget in report.budgets.items():
                labels = {"nodepool": pool, "reason": reason}
                metrics.nodepools_allowed_disruptions.labels(**labels).set(budget.allowed)
                metrics.nodepools_nodes_consuming_budgets.labels(**labels).set(budget.consuming)
            for score in report.scores:
                labels = {
                    "decision": "approved" if score.approved else "rejected",
                    "nodepool": score.pool,
                    "policy": score.policy,
                }
                metrics.consolidation_moves.labels(**labels).inc()
                if score.policy == BALANCED:
                    metrics.consolidation_score.labels(**labels).observe(score.score)
