"""Gauges of the cluster as it is: nodes, NodePools, pods, the state itself.

They are computed from the Snapshot now and then, not kept up to date event by event, and what is no
longer there loses its series with the next look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    CPU,
    INSTANCE_TYPE,
    NODE_POOL,
    OS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.quantities import parse_resources
from karpenter_core.controllers.metrics import NODE_LABELS, POD_LABELS
from karpenter_core.controllers.pod_waits import PodWaits
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.disruption.pricing import Prices
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.resources import merge
from karpenter_core.state.usage import pool_status_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping
    from datetime import datetime

    from prometheus_client import Gauge
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.object_series import Row
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Observability"]

PERIOD_SECONDS: Final = 10.0


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
        self._born: tuple[tuple[tuple[str, ...], datetime], ...] = ()
        if detailed:
            self._metrics.nodes_current_lifetime.follow(self._lifetimes)

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
        if self._waits is not None and snapshot.synced:
            self._waits.look(snapshot, self._runtime.clock.now())
            if snapshot.version != self._seen_version:
                self._pools(snapshot)
                self._nodes(snapshot)
                self._pods(snapshot)
                self._seen_version = snapshot.version
        return PERIOD_SECONDS

    def _state(self, snapshot: Snapshot) -> None:
        metrics = self._metrics
        metrics.cluster_state_node_count.set(len(snapshot.state_nodes))
        metrics.cluster_state_synced.set(1 if snapshot.synced else 0)
        unsynced = 0.0 if snapshot.synced else self._runtime.clock.monotonic() - self._started
        metrics.cluster_state_unsynced_time.set(unsynced)

    def _pools(self, snapshot: Snapshot) -> None:
        self._metrics.nodepools_limit.clear()
        self._metrics.nodepools_usage.clear()
        for name, pool in snapshot.node_pools.items():
            if not snapshot.manages(pool.spec.template.spec.node_class_ref):
                continue
            limits = parse_resources(pool.spec.limits)
            _set_amounts(self._metrics.nodepools_limit, limits, {"nodepool": name})
            used = pool_status_resources(snapshot, name)
            _set_amounts(self._metrics.nodepools_usage, used, {"nodepool": name})
        self._metrics.nodepools_cost.clear()
        for name, cost in self._costs(snapshot).items():
            self._metrics.nodepools_cost.labels(nodepool=name).set(cost)

    def _costs(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return what the machines of each pool cost an hour, in the reporting currency."""
        prices, pending = Prices(snapshot, self._solve), self._unevaluated_pools()
        costs: dict[str, float] = {}
        unpriced: dict[str, StateNode] = {}
        for machine in snapshot.state_nodes:
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

    def _nodes(self, snapshot: Snapshot) -> None:
        metrics = self._metrics
        gauges = (
            metrics.nodes_allocatable,
            metrics.nodes_total_pod_requests,
            metrics.nodes_total_daemon_requests,
            metrics.nodes_total_pod_limits,
            metrics.nodes_total_daemon_limits,
            metrics.nodes_system_overhead,
        )
        rows: tuple[list[Row], ...] = tuple([] for _ in gauges)
        shown = [machine for machine in snapshot.state_nodes if machine.node is not None]
        self._born = tuple(
            (_node_labels(machine), machine.node.created)
            for machine in shown
            if machine.node is not None and machine.node.created is not None
        )
        for machine in shown:
            labels = _node_labels(machine)
            overhead = {
                name: machine.capacity.get(name, 0) - amount
                for name, amount in machine.allocatable.items()
            }
            amounts = (
                machine.allocatable,
                machine.requests,
                machine.daemon_requests,
                merge(pod.shape.limits for pod in machine.pods),
                merge(pod.shape.limits for pod in machine.pods if pod.is_daemon),
                overhead,
            )
            for column, values in zip(rows, amounts, strict=True):
                column.extend(
                    ((*labels, _snake(name)), _amount(name, amount))
                    for name, amount in values.items()
                )
        for gauge, column in zip(gauges, rows, strict=True):
            gauge.replace(column)
        self._utilization(shown)

    def _utilization(self, machines: list[StateNode]) -> None:
        requested = merge(machine.requests for machine in machines)
        self._metrics.cluster_utilization.clear()
        for name, amount in merge(machine.allocatable for machine in machines).items():
            if amount:
                share = 100.0 * requested.get(name, 0) / amount
                self._metrics.cluster_utilization.labels(resource_type=_snake(name)).set(share)

    def _lifetimes(self) -> Iterator[Row]:
        """Yield the age of every Node, for whoever scrapes now."""
        now = self._runtime.clock.now()
        for labels, created in self._born:
            yield labels, max((now - created).total_seconds(), 0.0)

    def _pods(self, snapshot: Snapshot) -> None:
        self._metrics.pods_state.replace(
            (_pod_labels(pod, snapshot), 1.0) for pod in snapshot.pods.values()
        )


def _set_amounts(gauge: Gauge, amounts: Mapping[str, int], labels: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        gauge.labels(**labels, resource_type=_snake(name)).set(_amount(name, amount))


def _amount(resource: str, amount: int) -> float:
    return amount / 1000 if resource == CPU else float(amount)


def _snake(resource: str) -> str:
    return resource.lower().replace("-", "_").replace("/", "_").replace(".", "_")


def _node_labels(machine: StateNode) -> tuple[str, ...]:
    node = machine.node
    labels = machine.labels
    values = {
        "node_name": machine.name if node is None else node.name,
        "phase": "" if node is None else ("Terminating" if node.is_deleting else ""),
        "managed": str(machine.managed).lower(),
        "nodepool": labels.get(NODE_POOL, ""),
        "zone": labels.get(ZONE, ""),
        "region": labels.get(REGION, ""),
        "instance_type": labels.get(INSTANCE_TYPE, ""),
        "arch": labels.get(ARCH, ""),
        "os": labels.get(OS, ""),
        "capacity_type": labels.get(CAPACITY_TYPE, ""),
        "windows_build": labels.get(WINDOWS_BUILD, ""),
    }
    return tuple(values[name] for name in NODE_LABELS)


def _pod_labels(pod: PodView, snapshot: Snapshot) -> tuple[str, ...]:
    machine = snapshot.state_nodes_by_node.get(pod.node_name)
    labels: Mapping[str, str] = {} if machine is None else machine.labels
    owner = ""
    if pod.owner_name:
        api, kind = pod.shape.owner_api_version, pod.shape.owner_kind.lower()
        owner = f"/apis/{api}/namespaces/{pod.namespace}/{kind}s/{pod.owner_name}"
    values = {
        "name": pod.name,
        "namespace": pod.namespace,
        "owner": owner,
        "node": pod.node_name,
        "scheduled": str(bool(pod.node_name)).lower(),
        "nodepool": labels.get(NODE_POOL, ""),
        "zone": labels.get(ZONE, ""),
        "arch": labels.get(ARCH, ""),
        "capacity_type": labels.get(CAPACITY_TYPE, ""),
        "instance_type": labels.get(INSTANCE_TYPE, ""),
        "phase": pod.phase,
        "ready": str(pod.ready is True).lower(),
        "managed": str(machine is not None and machine.managed).lower(),
    }
    return tuple(values[name] for name in POD_LABELS)
