"""Plans what the controller would do, and records it, without any change.

Each pass plans the pods that wait, and estimates the savings of planning the whole cluster afresh
(`disruption.savings_estimate`). Results go to the decision journal, the metrics and the log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.disruption.savings_estimate import (
    SavingsEstimate,
    build_fresh_problem,
    estimate_savings,
    nodes_of_unplaced_pods,
    observed_decision,
)
from karpenter_core.lifecycle.capacity_buffer.declaration import buffer_declarations
from karpenter_core.scheduling.journal import plan_decision
from karpenter_core.state.events import VirtualPodsDeclared
from karpenter_core.state.provisioning_input import build_provisioning_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.observation.unjudged import UnjudgedNodePools
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.provisioner import ProvisioningOptions
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.disruption.savings_estimate import FreshProblem
    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ObservationController"]

PERIOD_SECONDS: Final = 60.0
FIRST_LISTING_SECONDS: Final = 60.0
"""The longest time that the first pass waits for lists of instance types."""
MAX_ROUNDS: Final = 5
"""Rounds in which nodes whose pods found no place are taken out of the comparison."""
SECONDS_PER_HOUR: Final = 3600.0


@final
class ObservationController:
    """The controller `observation`."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        planner: Planner,
        runtime: ControllerRuntime,
        options: ProvisioningOptions,
        other_nodes: Mapping[str, str | None],
        unevaluated_pools: Callable[[], tuple[str, ...]],
        unjudged: UnjudgedNodePools,
    ) -> None:
        """`other_nodes` are the labels of nodes of no NodePool that are compared too."""
        self._cluster_state = cluster_state
        self._planner = planner
        self._runtime = runtime
        self._options = options
        self._other_nodes = other_nodes
        self._unevaluated_pools = unevaluated_pools
        self._unjudged = unjudged
        self._counted: tuple[float, float] | None = None
        """The monotonic time of the last estimate, and its savings per hour."""
        self._recorded: dict[str, str] = {}
        """The inputs of the last record of each kind."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._loop = PeriodicLoop(self.name, self.step, runtime=runtime)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "observation"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._planner.warm()
        await self._cluster_state.wait_synced()
        await self._cluster_state.wait_until(
            lambda _: not self._unevaluated_pools(), seconds=FIRST_LISTING_SECONDS
        )
        await self._loop.run()

    async def step(self) -> float:
        """Run one pass; return the seconds until the next one."""
        self._cluster_state.tick()
        self._declare_buffers()
        snapshot = await self._unjudged.complete(self._cluster_state.snapshot())
        now = self._runtime.clock.now()
        provisioning_input = await self._planner.compute(
            partial(
                build_provisioning_input,
                snapshot,
                now=now,
                problem_settings=self._options.problem_settings,
            )
        )
        await self._plan_pending(provisioning_input.problem, now)
        await self._estimate(snapshot, provisioning_input.problem, now)
        return PERIOD_SECONDS

    def _declare_buffers(self) -> None:
        """Have the pods of CapacityBuffers in the state, as the controller of buffers does."""
        snapshot = self._cluster_state.snapshot()
        declarations, _ = buffer_declarations(snapshot)
        for declaration in declarations:
            self._cluster_state.fold(declaration)
        for source in snapshot.virtual_pods.keys() - {each.source for each in declarations}:
            self._cluster_state.fold(VirtualPodsDeclared(source=source, pods=None))

    async def _plan_pending(self, problem: SchedulingProblem, now: datetime) -> None:
        """Plan the pods that wait, and record the plan."""
        if not problem.pods:
            self._recorded.pop("pending", None)
            return
        plan = await self._planner.plan(problem, self._options.solve)
        decision = await self._planner.compute(
            partial(
                plan_decision,
                plan,
                problem,
                options=self._options.solve,
                id=self._runtime.new_id(),
                cause=f"observed {len(problem.pods)} pod(s) without a placement",
                at=now,
            )
        )
        if not decision.is_empty and self._is_new("pending", decision.inputs):
            await self._runtime.journal.record(decision)

    async def _estimate(
        self, snapshot: Snapshot, problem: SchedulingProblem, now: datetime
    ) -> None:
        """Compare the cluster with a fresh plan; count, and record if anything has changed."""
        found = await self._fresh_plan(snapshot, problem, now)
        if found is None:
            self._forget_estimate()
            self._log.warning("the cluster cannot be compared: pods found no place in any round")
            return
        fresh, plan = found
        estimate = estimate_savings(fresh, plan, currency=self._options.solve.currency)
        self._measure(estimate)
        decision = await self._planner.compute(
            partial(
                observed_decision,
                fresh,
                plan,
                estimate,
                id=self._runtime.new_id(),
                cause=f"snapshot {snapshot.version}",
                at=now,
            )
        )
        if self._is_new("estimate", f"{decision.inputs} {decision.summary}"):
            await self._runtime.journal.record(decision)

    async def _fresh_plan(
        self, snapshot: Snapshot, problem: SchedulingProblem, now: datetime
    ) -> tuple[FreshProblem, SchedulingPlan] | None:
        """Return a plan with a place for each pod; None if there is none after some rounds."""
        keep: frozenset[str] = frozenset()
        for _ in range(MAX_ROUNDS):
            fresh = await self._planner.compute(
                partial(
                    build_fresh_problem,
                    snapshot,
                    problem,
                    now=now,
                    problem_settings=self._options.problem_settings,
                    options=self._options.solve,
                    other_nodes=self._other_nodes,
                    keep=keep,
                )
            )
            plan = await self._planner.plan(fresh.problem, self._options.solve)
            unplaced = nodes_of_unplaced_pods(fresh, plan)
            if not unplaced:
                return fresh, plan
            keep |= unplaced
        return None

    def _forget_estimate(self) -> None:
        """Count nothing until the next comparison: it is not known what could be saved meanwhile."""
        self._counted = None
        self._runtime.metrics.observed_price.clear()
        self._runtime.metrics.observed_planned_price.clear()

    def _measure(self, estimate: SavingsEstimate) -> None:
        metrics, currency = self._runtime.metrics, estimate.currency
        metrics.observed_price.labels(currency=currency).set(estimate.price_per_hour)
        metrics.observed_planned_price.labels(currency=currency).set(
            estimate.planned_price_per_hour
        )
        now = self._runtime.clock.monotonic()
        if self._counted is not None:
            since, per_hour = self._counted
            hours = (now - since) / SECONDS_PER_HOUR
            metrics.observed_savings.labels(currency=currency).inc(per_hour * hours)
        self._counted = now, estimate.savings_per_hour

    def _is_new(self, kind: str, inputs: str) -> bool:
        """Tell whether inputs differ from those of the last record of this kind."""
        if self._recorded.get(kind) == inputs:
            return False
        self._recorded[kind] = inputs
        return True
