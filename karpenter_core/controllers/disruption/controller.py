"""Runs the disruption loop: plan, wait, validate, start commands.

`disruption.plan` decides which nodes are disrupted, and whether a command is still valid after the
wait. No other method starts a command while one waits for its validation; the queue continues with
running commands meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.disruption.command_records import CommandRecords, command_obstacle
from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.disruption.balanced import BALANCED
from karpenter_core.disruption.budgets import DisruptionReason, budget_errors
from karpenter_core.disruption.command import with_candidates
from karpenter_core.disruption.command_queue import StaleMarkFinder
from karpenter_core.disruption.consolidation import candidate_notices, rejection_notices
from karpenter_core.disruption.fingerprint import FingerprintBuilder, is_stale
from karpenter_core.disruption.isolation import isolated_validation_steps
from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass, PassTimeLimit
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.plan import methods_of, plan_steps
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.disruption.repetition import is_repeatable
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.state.capacity_buffers import undeclared_buffers
from karpenter_core.state.pool_schedules import shuts_down_pools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import DecisionObstacle
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.fingerprint import ConsolidationFingerprint
    from karpenter_core.disruption.method import DisruptionMethod, RemainingBudgets, WorkSteps
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.disruption.validation import ValidationVerdict
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["DisruptionController"]

T = TypeVar("T")

PERIOD_SECONDS: Final = 10.0  # upstream default
UNSYNCED_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 60.0
"""Time limit of a pass; upstream allows this for the multi-node search alone."""


@final
class DisruptionController:
    """The controller `disruption`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        creator: ClaimCreator,
        planner: Planner,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        options: DisruptionOptions | None,
    ) -> None:
        self._writer = writer
        self._freshness = freshness
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._planner = planner
        self._runtime = runtime
        self._options = options or DisruptionOptions()
        self._records = CommandRecords(
            writer=writer, planner=planner, runtime=runtime, currency=self._options.solve.currency
        )
        self.queue: Final = CommandQueue(
            writer=writer,
            creator=creator,
            runtime=runtime,
            freshness=freshness,
            options=self._options,
            records=self._records,
        )
        self._cache, self._memory = CatalogueCache(), DisruptionMemory()
        self._fingerprints = FingerprintBuilder()
        self._stale_marks = StaleMarkFinder()
        self._steady = SteadyClock(runtime.clock)
        self._settled_passes: dict[
            str, tuple[ConsolidationFingerprint, datetime, RemainingBudgets]
        ] = {}
        self._repeatable: tuple[tuple[object, ...], DisruptionPlan] | None = None
        """The last plan that any later pass would repeat, after the inputs of its pass."""
        self._unseen: dict[str, frozenset[str]] = {}
        self._reported: dict[str, tuple[str, ...]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._loop = PeriodicLoop(self.name, self.step, runtime=runtime)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "disruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        await self._loop.run()

    async def step(self) -> float:
        """Run one pass and start the commands that it plans."""
        self._cluster_state.tick()
        snapshot = self._cluster_state.snapshot()
        if not snapshot.synced or undeclared_buffers(snapshot):
            return UNSYNCED_SECONDS
        if self._freshness.stale_or_wake(FreshnessConsumer.DISRUPTION, self.name, self._loop.wake):
            return PERIOD_SECONDS
        with self._runtime.tracer.span("disruption.pass", nodes=len(snapshot.state_nodes)):
            return await self._run_pass(snapshot)

    async def _run_pass(self, snapshot: Snapshot) -> float:
        now = self._runtime.clock.now()
        await self.queue.remove_stale_marks(
            self._stale_marks.find(snapshot, now=now, queued=self.queue.queued_provider_ids)
        )
        methods: Sequence[DisruptionMethod] = methods_of(
            self._options, shuts_down=shuts_down_pools(snapshot.pool_schedules)
        )
        while methods:
            self._report_budgets(self._cluster_state.snapshot())
            with self._runtime.tracer.span("disruption.plan") as span:
                plan = await self._plan(methods)
                span.note(commands=len(plan.commands), **_method_counts(plan))
            if plan.method is None:
                return PERIOD_SECONDS
            with self._runtime.tracer.span(
                "disruption.start", method=plan.method.name, commands=len(plan.commands)
            ):
                is_started = await self._start_commands(plan, plan.method)
            if is_started:
                return 0.0
            methods = methods[methods.index(plan.method) + 1 :]
        return PERIOD_SECONDS

    async def _plan(self, methods: Sequence[DisruptionMethod]) -> DisruptionPlan:
        snapshot = self._cluster_state.snapshot()
        fingerprint = self._fingerprints.fingerprint(snapshot)
        pass_, planned_at = self._new_pass(snapshot, fingerprint), self._steady.now()
        started = self._runtime.clock.monotonic()
        inputs = (
            pass_.snapshot,
            pass_.queued,
            pass_.idle_methods,
            pass_.drift_backoff_pools,
            methods,
        )
        if self._repeatable is not None and self._repeatable[0] == inputs:
            plan = self._repeatable[1]  # the metrics show it already
        else:
            plan = await self._compute(plan_steps(pass_, methods=methods), pass_.time_limit)
            self._repeatable = (inputs, plan) if is_repeatable(pass_, plan) else None
            self._measure(plan)
        self._measure_duration(plan, seconds=self._runtime.clock.monotonic() - started)
        self._writer.publish_all(plan.notices)
        # After a rejected command only the later methods run, which is another phase.
        self._writer.report_failed_judgements(
            plan.set_aside, controller=self.name, phase=methods[0].name
        )
        for report in plan.reports:
            name = report.method.name
            self._unseen[name] = report.unexamined_pools
            if report.is_idle and pass_.idle_methods.get(name) != report.remaining_budgets:
                self._settled_passes[name] = (fingerprint, planned_at, report.remaining_budgets)
        return plan

    async def _start_commands(self, plan: DisruptionPlan, method: DisruptionMethod) -> bool:
        """Start commands, after validation if the method requires it; tell whether any started."""
        commands: Sequence[Command] = plan.commands
        if method.is_validated:
            commands = await self._validated_commands(plan, method)
        started = False
        for command in commands:
            chosen, vetoes = await self._without_vetoed(command)
            if chosen is None:
                await self._records.record_rejected(
                    command, plan, rejection=CommandRejection.VETO, obstacles=vetoes
                )
            elif await self.queue.start(chosen, plan, obstacles=vetoes):
                started = True
        return started

    def _new_pass(
        self, snapshot: Snapshot, fingerprint: ConsolidationFingerprint | None = None
    ) -> DisruptionPass:
        now, steady = self._runtime.clock.now(), self._steady.now()
        return DisruptionPass(
            snapshot=snapshot,
            now=now,
            command_id=self._runtime.new_id(),
            cause=f"snapshot {snapshot.version}",
            queued=self.queue.queued_provider_ids,
            idle_methods={
                name: budgets
                for name, (settled, at, budgets) in self._settled_passes.items()
                if settled == fingerprint and not is_stale(at, steady)
            },
            unexamined_pools=dict(self._unseen),
            drift_backoff_pools=self.queue.drift_backoff_pools,
            options=self._options,
            cache=self._cache,
            memory=self._memory,
            fingerprint=fingerprint,
        )

    async def _compute(self, steps: WorkSteps[T], effort: PassTimeLimit) -> T:
        def overtime() -> None:
            effort.is_reached = True

        return await self._planner.run_steps(steps, limit_seconds=LIMIT_SECONDS, overtime=overtime)

    async def _validated_commands(
        self, plan: DisruptionPlan, method: DisruptionMethod
    ) -> list[Command]:
        """Wait, then return the commands that are still valid."""
        is_consolidation = method.reason is DisruptionReason.UNDERUTILIZED
        for command in plan.commands:
            if is_consolidation:
                self._writer.publish_all(candidate_notices(command))
            self._log.info(
                "disruption command waits for its validation",
                command=str(command),
                seconds=self._options.validation_delay.total_seconds(),
            )
        await self._runtime.clock.sleep(self._options.validation_delay.total_seconds())
        self._cluster_state.tick()
        pass_ = self._new_pass(self._cluster_state.snapshot())
        kept: list[Command] = []
        for command in plan.commands:
            verdict: ValidationVerdict = await self._compute(
                isolated_validation_steps(method, command, pass_), pass_.time_limit
            )
            if verdict.failed_candidates:
                self._runtime.metrics.disruption_failed_validations.labels(
                    consolidation_type=method.consolidation_type
                ).inc(verdict.failed_candidates)
            if verdict.command is not None:
                kept.append(verdict.command)
                continue
            reason = str(verdict.rejection)
            self._log.debug(
                "disruption command is no longer valid", command=str(command), reason=reason
            )
            if is_consolidation:
                self._writer.publish_all(rejection_notices(command, reason))
            await self._records.record_rejected(command, plan, rejection=verdict.rejection)
        self._writer.report_failed_judgements(
            pass_.failed.found, controller=self.name, phase="validation"
        )
        return kept

    async def _without_vetoed(
        self, command: Command
    ) -> tuple[Command | None, list[DecisionObstacle]]:
        """Return the command without vetoed candidates, None if it is impossible, and the vetoes."""
        kept: list[Candidate] = []
        obstacles: list[DecisionObstacle] = []
        for candidate in command.candidates:
            node = candidate.node.name
            vetoes = await self._providers.vetoes(candidate.state_node)
            for plugin, why in vetoes.items():
                self._log.info(
                    "plug-in vetoes disruption of node", Node={"name": node}, plugin=plugin, why=why
                )
                obstacles.append(
                    command_obstacle(
                        CommandRejection.VETO, f"{plugin}: {why}", kind="Node", names=[node]
                    )
                )
            if not vetoes:
                kept.append(candidate)
        if len(kept) == len(command.candidates):
            return command, obstacles
        if command.replacements or not kept:
            return None, obstacles
        prices = NodePrices(self._cluster_state.snapshot(), self._options.solve)
        return with_candidates(command, kept, prices), obstacles

    def _report_budgets(self, snapshot: Snapshot) -> None:
        """Log budgets that cannot be parsed, once for each set of errors of a pool."""
        now = self._runtime.clock.now()
        for name, pool in snapshot.node_pools.items():
            errors = budget_errors(pool, now)
            if errors and self._reported.get(name) != errors:
                for error in errors:
                    self._log.error("budget cannot be parsed, nothing is disrupted", error=error)
            self._reported[name] = errors
        for gone in [name for name in self._reported if name not in snapshot.node_pools]:
            del self._reported[gone]
            metrics = self._runtime.metrics
            metrics.capacity.nodepools_allowed_disruptions.remove_by_labels({"nodepool": gone})
            metrics.capacity.nodepools_nodes_consuming_budgets.remove_by_labels({"nodepool": gone})

    def _measure_duration(self, plan: DisruptionPlan, *, seconds: float) -> None:
        metric = self._runtime.metrics.disruption_evaluation_duration
        for report in plan.reports:
            reason, kind = str(report.method.reason).lower(), report.method.consolidation_type
            metric.labels(reason=reason, consolidation_type=kind).observe(
                seconds / len(plan.reports)
            )

    def _measure(self, plan: DisruptionPlan) -> None:
        metrics = self._runtime.metrics
        eligible: dict[str, int] = {}  # several methods have one reason
        for report in plan.reports:
            reason, kind = str(report.method.reason), report.method.consolidation_type
            eligible[reason] = max(eligible.get(reason, 0), report.eligible)
            metrics.disruption_eligible_nodes.labels(reason=reason.lower()).set(eligible[reason])
            if report.is_cut_short:
                metrics.consolidation_timeouts.labels(consolidation_type=kind).inc()
            for pool, budget in report.budgets.items():
                labels = {"nodepool": pool, "reason": reason}
                metrics.capacity.nodepools_allowed_disruptions.labels(**labels).set(budget.allowed)
                metrics.capacity.nodepools_nodes_consuming_budgets.labels(**labels).set(
                    budget.consuming
                )
            for score in report.scores:
                labels = {
                    "decision": "approved" if score.approved else "rejected",
                    "nodepool": score.pool,
                    "policy": score.policy,
                }
                metrics.consolidation_moves.labels(**labels).inc()
                if score.policy == BALANCED:
                    metrics.consolidation_score.labels(**labels).observe(score.score)


def _method_counts(plan: DisruptionPlan) -> dict[str, int]:
    """Return the number of eligible nodes of each method that ran, as attributes of a span."""
    return {f"eligible.{report.method.name}": report.eligible for report in plan.reports}
