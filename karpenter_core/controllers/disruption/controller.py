"""The disruption loop: look every ten seconds, wait before acting, look again.

Which nodes go, and whether they still may after the wait, is decided by `disruption.plan`. No
other method starts anything while a command waits for its second look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.controllers.disruption.execution import CommandRunner
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.disruption.budgets import budget_errors
from karpenter_core.disruption.method import DisruptionOptions, Pass
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.queue import stale_marks
from karpenter_core.errors import ApiError
from karpenter_core.lifecycle.claim_status import without_condition
from karpenter_core.lifecycle.node_termination import undisrupted_patch

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method
    from karpenter_core.disruption.plan import DisruptionPlan
    from karpenter_core.disruption.queue import StaleMark
    from karpenter_core.provider.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["DisruptionController"]

PERIOD_SECONDS: Final = 10.0  # upstream default


@final
class DisruptionController:
    """The controller `disruption`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        options: DisruptionOptions | None = None,
    ) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._options = options or DisruptionOptions()
        self._runner = CommandRunner(hands=hands, providers=providers, runtime=runtime)
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
        await self._clean()
        snapshot = self._feed.snapshot()
        self._report_budgets(snapshot)
        started = self._runtime.clock.monotonic()
        found = plan(self._look(snapshot))
        self._measure(found, seconds=self._runtime.clock.monotonic() - started)
        self._hands.tell(found.notices)
        if found.command is None or found.method is None:
            return PERIOD_SECONDS
        self._log.info(
            "disruption command waits to be validated",
            command=str(found.command),
            seconds=self._options.validation_delay.total_seconds(),
        )
        await self._runtime.clock.sleep(self._options.validation_delay.total_seconds())
        command = await self._validated(found.command, found.method)
        if command is None:
            return PERIOD_SECONDS
        await self._runner.start(command, consolidation_type=found.method.consolidation_type)
        return 0.0

    def _look(self, snapshot: Snapshot) -> Pass:
        return Pass(
            snapshot=snapshot,
            now=self._runtime.clock.now(),
            command_id=self._runtime.new_id(),
            cause=f"snapshot {snapshot.version}",
            queued=self._runner.queued,
            options=self._options,
        )

    async def _validated(self, command: Command, method: Method) -> Command | None:
        """Return what of a command still holds, less what plug-ins keep."""
        self._feed.tick()
        verdict = method.validate(command, self._look(self._feed.snapshot()))
        if verdict.failed:
            self._runtime.metrics.disruption_failed_validations.labels(
                consolidation_type=method.consolidation_type
            ).inc(verdict.failed)
        if verdict.command is None:
            self._log.info(
                "disruption command no longer holds",
                command=str(command),
                reason=str(verdict.rejection),
            )
            return None
        kept = [
            candidate
            for candidate in verdict.command.candidates
            if not await self._is_vetoed(candidate)
        ]
        return replace(verdict.command, candidates=tuple(kept)) if kept else None

    async def _is_vetoed(self, candidate: Candidate) -> bool:
        vetoes = await self._providers.vetoes(candidate.machine)
        for plugin, reason in vetoes.items():
            self._log.info(
                "plug-in keeps node", Node={"name": candidate.node.name}, plugin=plugin, why=reason
            )
        return bool(vetoes)

    async def _clean(self) -> None:
        """Take marks off that a failed command or a dead process left; next time where it fails."""
        for mark in stale_marks(self._feed.snapshot(), queued=self._runner.queued):
            try:
                await self._clean_one(mark)
            except ApiError as error:
                self._log.warning(
                    "could not take the marks of a disruption off",
                    Node={"name": mark.node},
                    NodeClaim={"name": mark.claim},
                    error=str(error),
                )

    async def _clean_one(self, mark: StaleMark) -> None:
        snapshot = self._feed.snapshot()
        node = snapshot.nodes.get(mark.node)
        if node is not None and (patch := undisrupted_patch(node)) is not None:
            await self._hands.write_node(node, patch)
        claim = snapshot.node_claims.get(mark.claim)
        if claim is not None:
            await self._hands.write_claim(claim, without_condition(claim, DISRUPTION_REASON))

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
        for report in found.reports:
            metrics.disruption_evaluation_duration.labels(
                reason=report.reason.lower(), consolidation_type=report.consolidation_type
            ).observe(seconds / len(found.reports))
            metrics.disruption_eligible_nodes.labels(reason=report.reason.lower()).set(
                report.eligible
            )
            for pool, budget in report.budgets.items():
                labels = {"nodepool": pool, "reason": report.reason}
                metrics.nodepools_allowed_disruptions.labels(**labels).set(budget.allowed)
                metrics.nodepools_nodes_consuming_budgets.labels(**labels).set(budget.consuming)
