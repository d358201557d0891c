"""Gauges of the cluster as it is: nodes, NodePools, pods, the state itself.

They are computed from the Snapshot now and then, not kept up to date event by event. The series of
Nodes and pods are written when they are scraped (`machine_series`); what is added up here gives the
event loop back every few hundred machines.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.controllers.observability.machine_series import (
    MachineSeries,
    amount_of,
    snake_case,
)
from karpenter_core.controllers.observability.pod_waits import PodWaits
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.disruption.pricing import Prices
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.usage import pool_status_resources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Mapping

    from prometheus_client import Gauge
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Observability"]

PERIOD_SECONDS: Final = 10.0
AT_ONCE: Final = 250
"""How many machines are added up before others have a turn."""


@final
class Observability:
    """The controller `metrics`."""

    def __init__(
        self,
        *,
        feed: Feed,
        runtime: Runtime,
        detailed: bool,
        solve: SolveOptions | None = None,
        unevaluated_pools: Callable[[], Container[str]] = frozenset,
    ) -> None:
        """`solve` has the reporting currency and the rates of the others.

        Of `unevaluated_pools` the prices are still on their way.
        """
        self._feed = feed
        self._runtime = runtime
        self._metrics = runtime.metrics
        self._solve = solve or SolveOptions()
        self._started = runtime.clock.monotonic()
        self._seen_version = -1
        self._unevaluated_pools = unevaluated_pools
        self._unpriced: frozenset[str] = frozenset()
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._waits = (
            PodWaits(feed, runtime.metrics, began=runtime.clock.now()) if detailed else None
        )
        self._loop = Loop(self.name, self._step, runtime=runtime)
        self._series = MachineSeries(runtime.metrics, now=runtime.clock.now) if detailed else None

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "metrics"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    async def _step(self) -> float:
        snapshot = self._feed.snapshot()
        self._state(snapshot)
        if self._waits is not None and self._series is not None and snapshot.synced:
            await self._waits.look(snapshot, self._runtime.clock.now())
            if snapshot.version != self._seen_version:
                self._series.show(snapshot)
                await self._pools(snapshot)
                await self._utilization(snapshot)
                self._seen_version = snapshot.version
        return PERIOD_SECONDS

    def _state(self, snapshot: Snapshot) -> None:
        metrics = self._metrics
        metrics.cluster_state_node_count.set(len(snapshot.state_nodes))
        metrics.cluster_state_synced.set(1 if snapshot.synced else 0)
        unsynced = 0.0 if snapshot.synced else self._runtime.clock.monotonic() - self._started
        metrics.cluster_state_unsynced_time.set(unsynced)

    async def _pools(self, snapshot: Snapshot) -> None:
        limits: dict[str, Mapping[str, int]] = {}
        usage: dict[str, Mapping[str, int]] = {}
        for name, pool in snapshot.node_pools.items():
            if snapshot.manages(pool.spec.template.spec.node_class_ref):
                limits[name] = parse_resources(pool.spec.limits)
                usage[name] = pool_status_resources(snapshot, name)
                await asyncio.sleep(0)
        costs = await self._costs(snapshot)
        metrics = self._metrics
        for gauge, amounts in ((metrics.nodepools_limit, limits), (metrics.nodepools_usage, usage)):
            gauge.clear()
            for name, of_pool in amounts.items():
                _set_amounts(gauge, of_pool, {"nodepool": name})
        metrics.nodepools_cost.clear()
        for name, cost in costs.items():
            metrics.nodepools_cost.labels(nodepool=name).set(cost)

    async def _costs(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return what the machines of each pool cost an hour, in the reporting currency."""
        prices, pending = Prices(snapshot, self._solve), self._unevaluated_pools()
        costs: dict[str, float] = {}
        unpriced: dict[str, StateNode] = {}
        async for machines in _in_turns(snapshot):
            for machine in machines:
                if machine.managed and machine.pool and machine.provider_id:
                    cost = prices.cost_of(machine)
                    costs[machine.pool] = costs.get(machine.pool, 0.0) + (cost or 0.0)
                    if cost is None and machine.pool not in pending:
                        unpriced[machine.provider_id] = machine
        for machine in unpriced.values():
            if machine.provider_id not in self._unpriced:
                self._say_unpriced(machine, prices.unrated([prices.known(machine).currency]))
        self._unpriced = frozenset(unpriced)
        return costs

    def _say_unpriced(self, machine: StateNode, unrated: str) -> None:
        """Count a machine that the cost of its pool misses, when that begins."""
        self._metrics.nodepools_cost_tracker_errors.labels(nodepool=machine.pool).inc()
        self._log.warning(
            f"{unrated} (--exchange-rates), the cost of the nodepool misses a machine"
            if unrated
            else "price of a machine is not known, the cost of its nodepool misses it",
            NodePool={"name": machine.pool},
            **{"provider-id": machine.provider_id},
            offering=[machine.labels.get(key, "") for key in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE)],
        )

    async def _utilization(self, snapshot: Snapshot) -> None:
        allocatable: Counter[str] = Counter()
        requested: Counter[str] = Counter()
        async for machines in _in_turns(snapshot):
            for machine in machines:
                if machine.node is not None:
                    for name, amount in machine.allocatable.items():
                        allocatable[name] += amount
                    for name, amount in machine.requests.items():
                        requested[name] += amount
        self._metrics.cluster_utilization.clear()
        for name, amount in allocatable.items():
            if amount:
                share = 100.0 * requested[name] / amount
                self._metrics.cluster_utilization.labels(resource_type=snake_case(name)).set(share)


async def _in_turns(snapshot: Snapshot) -> AsyncIterator[tuple[StateNode, ...]]:
    """Yield the machines of a snapshot in batches, and let others work in between."""
    for start in range(0, len(snapshot.state_nodes), AT_ONCE):
        yield snapshot.state_nodes[start : start + AT_ONCE]
        await asyncio.sleep(0)


def _set_amounts(gauge: Gauge, amounts: Mapping[str, int], labels: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        gauge.labels(**labels, resource_type=snake_case(name)).set(amount_of(name, amount))
