"""Computes gauges of the cluster: nodes, NodePools, pods, the state itself.

They are computed from the snapshot every few seconds, not updated with each event. The series of Nodes
and pods are written when they are scraped (`node_series`); sums over all nodes are computed in batches
that let other tasks run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.api.quantities import parse_resources
from karpenter_core.controllers.observability.capacity import (
    show_devices,
    show_predictions,
    show_spot_shares,
)
from karpenter_core.controllers.observability.costs import BATCH_SIZE, CostMetrics
from karpenter_core.controllers.observability.node_series import (
    NodeSeries,
    amount_of,
    snake_case,
)
from karpenter_core.controllers.observability.pod_waits import PodWaitMetrics
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.commitments import commitment_balances, commitment_uses
from karpenter_core.state.node_pool_usage import PoolStatusSums
from karpenter_core.state.provisioning_input import ProblemSettings
from karpenter_core.state.static_pools import (
    StaticPoolClaims,
    is_managed_static,
    static_claims_by_pool,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Mapping

    from prometheus_client import Gauge

    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["ClusterMetricsController"]

PERIOD_SECONDS: Final = 10.0


@final
class ClusterMetricsController:
    """The controller `metrics`."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        runtime: ControllerRuntime,
        detailed: bool,
        solve: SolveOptions | None,
        unevaluated_pools: Callable[[], Container[str]] = frozenset,
        static_capacity: bool = False,
        counts_spending: bool = True,
        problem_settings: ProblemSettings | None,
    ) -> None:
        """`solve` has the reporting currency and the exchange rates.

        `unevaluated_pools` are those whose prices are not listed yet. `static_capacity` is the
        feature gate `StaticCapacity`. An observer does not count spending, which the leader counts.
        """
        self._static_capacity = static_capacity
        self._settings = problem_settings or ProblemSettings()
        self._cluster_state = cluster_state
        self._runtime = runtime
        self._metrics = runtime.metrics
        self._seen_version = -1
        solve = solve or SolveOptions()
        self._sums = PoolStatusSums({solve.currency: 1.0, **solve.exchange_rates})
        self._costs = CostMetrics(
            runtime.metrics,
            solve=solve,
            monotonic=runtime.clock.monotonic,
            unevaluated_pools=unevaluated_pools,
            counts_spending=counts_spending,
            logger=self.name,
        )
        self._waits = (
            PodWaitMetrics(cluster_state, runtime.metrics, started_at=runtime.clock.now())
            if detailed
            else None
        )
        self._loop = PeriodicLoop(self.name, self._step, runtime=runtime)
        self._series = NodeSeries(runtime.metrics, now=runtime.clock.now) if detailed else None

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "metrics"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    async def _step(self) -> float:
        snapshot = self._cluster_state.snapshot()
        self._metrics.cluster_state_node_count.set(len(snapshot.state_nodes))
        if self._waits is not None and self._series is not None and snapshot.synced:
            await self._waits.update(snapshot, self._runtime.clock.now())
            self._costs.add_spent()
            if snapshot.version != self._seen_version:
                self._series.show(snapshot)
                await self._pools(snapshot)
                await self._utilization(snapshot)
                self._seen_version = snapshot.version
        return PERIOD_SECONDS

    async def _pools(self, snapshot: Snapshot) -> None:
        limits: dict[str, Mapping[str, int]] = {}
        usage: dict[str, Mapping[str, int]] = {}
        for name, pool in snapshot.node_pools.items():
            if snapshot.manages(pool.spec.template.spec.node_class_ref):
                limits[name] = parse_resources(pool.spec.limits)
                usage[name] = self._sums.resources(snapshot, name)
                await asyncio.sleep(0)
        await self._costs.update(snapshot, limits)
        metrics = self._metrics
        for gauge, amounts in (
            (metrics.capacity.nodepools_limit, limits),
            (metrics.capacity.nodepools_usage, usage),
        ):
            gauge.clear()
            for name, of_pool in amounts.items():
                _set_amounts(gauge, of_pool, {"nodepool": name})
        show_spot_shares(metrics, snapshot)
        if not self._settings.ignores_devices:
            show_devices(metrics, snapshot)
        await show_predictions(metrics, snapshot, self._runtime.clock.now())
        if self._static_capacity:
            self._replicas(snapshot)
        if self._settings.commitments:
            self._commitments(snapshot)

    def _commitments(self, snapshot: Snapshot) -> None:
        """Show the use of commitments, with the prices of what they cover."""
        balances = commitment_balances(
            snapshot,
            self._settings.commitments,
            self._settings.launch_limits.rates,
            well_known=WELL_KNOWN | self._settings.well_known,
            aliases=self._settings.aliases,
        )
        metrics = self._metrics
        of_nodes: dict[tuple[str, ...], float] = {}
        of_pools: dict[tuple[str, ...], float] = {}
        for use in commitment_uses(snapshot, balances):
            commitment, used = use.balance.commitment, use.balance.used
            name, resource = commitment.name, commitment.resource
            labels = {"commitment": name, "resource_type": snake_case(resource)}
            metrics.capacity.commitments_amount.labels(**labels).set(
                amount_of(resource, commitment.amount)
            )
            metrics.capacity.commitments_usage.labels(**labels).set(amount_of(resource, used))
            currency = commitment.currency
            metrics.capacity.commitments_price.labels(name, currency).set(use.covered_price)
            metrics.capacity.commitments_list_price.labels(name, currency).set(use.list_price)
            for node, saved in use.savings:
                node_name = "" if node.node is None else node.node.name
                claim = "" if node.claim is None else node.claim.name
                of_nodes[node_name, claim, node.pool, name, currency] = saved
                pool = node.pool, name, currency
                of_pools[pool] = of_pools.get(pool, 0.0) + saved
        metrics.costs.nodes_commitment_savings.set_rows(of_nodes.items())
        metrics.costs.nodepools_commitment_savings.set_rows(of_pools.items())

    def _replicas(self, snapshot: Snapshot) -> None:
        gauge = self._metrics.capacity.nodepools_replicas
        gauge.clear()
        pools = {
            name: pool
            for name, pool in snapshot.node_pools.items()
            if is_managed_static(pool, snapshot)
        }
        if not pools:
            return
        claims = static_claims_by_pool(snapshot, frozenset(pools))
        for name, pool in pools.items():
            of_pool = claims.get(name, StaticPoolClaims())
            counts = {
                "desired": pool.spec.replicas or 0,
                "active": len(of_pool.active),
                "replacing": len(of_pool.pending),
                "deleting": len(of_pool.deleting),
            }
            for state, count in counts.items():
                gauge.labels(nodepool=name, state=state).set(count)

    async def _utilization(self, snapshot: Snapshot) -> None:
        allocatable: Counter[str] = Counter()
        requested: Counter[str] = Counter()
        async for state_nodes in _in_batches(snapshot):
            for state_node in state_nodes:
                if state_node.node is not None:
                    for name, amount in state_node.allocatable.items():
                        allocatable[name] += amount
                    for name, amount in state_node.requests.items():
                        requested[name] += amount
        self._metrics.cluster_utilization.clear()
        for name, amount in allocatable.items():
            if amount:
                share = 100.0 * requested[name] / amount
                self._metrics.cluster_utilization.labels(resource_type=snake_case(name)).set(share)


async def _in_batches(snapshot: Snapshot) -> AsyncIterator[tuple[StateNode, ...]]:
    """Yield the state nodes of a snapshot in batches that let other tasks run in between."""
    for start in range(0, len(snapshot.state_nodes), BATCH_SIZE):
        yield snapshot.state_nodes[start : start + BATCH_SIZE]
        await asyncio.sleep(0)


def _set_amounts(gauge: Gauge, amounts: Mapping[str, int], labels: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        gauge.labels(**labels, resource_type=snake_case(name)).set(amount_of(name, amount))
