"""Computes costs per node, NodePool and cluster, and the money spent.

Costs per hour are added up anew from each snapshot, never changed by differences, so that a missed event
cannot leave them wrong or below zero. A node whose price is unknown has no price series; `nodes_without_price`
counts it. Amounts are in the currency of the price list. Only the leader computes them: after a change of
leader the counters of money spent begin again at 0, as any counter of a restarted process does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.disruption.pricing import NodePrices

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.prices import Price
    from karpenter_core.controllers.metrics.object_series import Row
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["BATCH_SIZE", "CostMetrics"]

BATCH_SIZE: Final = 250
"""The number of state nodes that are added up before other tasks run."""
SECONDS_PER_HOUR: Final = 3600.0

CostKey: TypeAlias = tuple[str, str, str]
"""NodePool, capacity type and currency."""


@dataclass(slots=True)
class _Totals:
    """The sums over the nodes of one snapshot."""

    rows: list[Row] = field(default_factory=list["Row"])
    """A series for each node with a price."""
    by_key: dict[CostKey, float] = field(default_factory=dict[CostKey, float])
    """Price per hour, in the currency of the key."""
    by_pool: dict[str, float] = field(default_factory=dict[str, float])
    """Price per hour in the reporting currency."""
    without_price: Counter[str] = field(default_factory=Counter[str])
    """Number of nodes without a known price, by pool."""
    unpriced: dict[str, StateNode] = field(default_factory=dict[str, "StateNode"])
    """Nodes that are missing in `by_pool`, by provider ID."""


@final
class CostMetrics:
    """The gauges of cost and the counter of money spent; call `update` regularly."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        solve: SolveOptions,
        monotonic: Callable[[], float],
        unevaluated_pools: Callable[[], Container[str]],
        counts_spending: bool = True,
        logger: str,
    ) -> None:
        """`solve` has the reporting currency and the exchange rates.

        `unevaluated_pools` are those whose prices are not listed yet.
        """
        self._series = metrics.costs
        self._solve = solve
        self._monotonic = monotonic
        self._unevaluated_pools = unevaluated_pools
        self._counts_spending = counts_spending
        self._unpriced: frozenset[str] = frozenset()
        self._hourly: Mapping[CostKey, float] = {}
        """Price per hour since `_spent_until`."""
        self._spent_until = monotonic()
        self._log: FilteringBoundLogger = structlog.get_logger(logger)

    def add_spent(self) -> None:
        """Add the cost of the time since the last call, at the prices of the last update."""
        now = self._monotonic()
        hours = max(now - self._spent_until, 0.0) / SECONDS_PER_HOUR
        self._spent_until = now
        for (pool, capacity_type, currency), price_per_hour in self._hourly.items():
            self._series.nodepools_spent.labels(
                nodepool=pool, capacity_type=capacity_type, currency=currency
            ).inc(price_per_hour * hours)

    async def update(self, snapshot: Snapshot, managed_pools: Iterable[str]) -> None:
        """Show the costs of this snapshot; pools without a node have series of 0 nodes unpriced."""
        prices, pending = NodePrices(snapshot, self._solve), self._unevaluated_pools()
        totals = _Totals()
        for start in range(0, len(snapshot.state_nodes), BATCH_SIZE):
            for state_node in snapshot.state_nodes[start : start + BATCH_SIZE]:
                # A launched instance costs money before its Node exists.
                if state_node.managed and state_node.pool and state_node.provider_id:
                    _add_node(totals, state_node, prices, is_listed=state_node.pool not in pending)
            await asyncio.sleep(0)
        self._report_unpriced(totals.unpriced, prices)
        self.add_spent()
        self._hourly = totals.by_key if self._counts_spending else {}
        self._show(totals, managed_pools)

    def _show(self, totals: _Totals, managed_pools: Iterable[str]) -> None:
        series = self._series
        series.nodes_price.set_rows(totals.rows)
        series.nodepools_price.set_rows(totals.by_key.items())
        in_cluster: dict[tuple[str, ...], float] = {}
        for (_pool, *key), price_per_hour in totals.by_key.items():
            in_cluster[tuple(key)] = in_cluster.get(tuple(key), 0.0) + price_per_hour
        series.cluster_price.set_rows(in_cluster.items())
        series.nodes_without_price.set_rows(
            ((pool,), totals.without_price[pool])
            for pool in sorted({*managed_pools, *totals.without_price})
        )
        series.nodepools_cost.clear()
        for pool, cost in totals.by_pool.items():
            series.nodepools_cost.labels(nodepool=pool).set(cost)
        for pool, capacity_type, currency in self._hourly:  # from 0, so that no increase is lost
            series.nodepools_spent.labels(
                nodepool=pool, capacity_type=capacity_type, currency=currency
            )

    def _report_unpriced(self, unpriced: Mapping[str, StateNode], prices: NodePrices) -> None:
        """Count and log nodes that start to be missing from the cost of their pool."""
        for provider_id, state_node in unpriced.items():
            if provider_id in self._unpriced:
                continue
            unrated = prices.missing_rates_message([prices.price_of(state_node).currency])
            self._series.nodepools_cost_tracker_errors.labels(nodepool=state_node.pool).inc()
            self._log.warning(
                f"{unrated} (--exchange-rates), the cost of the nodepool does not include a node"
                if unrated
                else "price of a node is not known, the cost of its nodepool does not include it",
                NodePool={"name": state_node.pool},
                **{"provider-id": provider_id},
                offering=[
                    state_node.labels.get(key, "") for key in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE)
                ],
            )
        self._unpriced = frozenset(unpriced)


def _add_node(
    totals: _Totals, state_node: StateNode, prices: NodePrices, *, is_listed: bool
) -> None:
    pool = state_node.pool
    cost = prices.hourly_cost_of(state_node)
    totals.by_pool[pool] = totals.by_pool.get(pool, 0.0) + (cost or 0.0)
    if cost is None and is_listed:
        totals.unpriced[state_node.provider_id] = state_node
    price = prices.listed_price_of(state_node)
    if price is None:
        totals.without_price[pool] += 1
        return
    capacity_type = state_node.labels.get(CAPACITY_TYPE, "")
    key = pool, capacity_type, price.currency
    totals.by_key[key] = totals.by_key.get(key, 0.0) + price.amount
    totals.rows.append((_node_labels(state_node, price), price.amount))


def _node_labels(state_node: StateNode, price: Price) -> tuple[str, ...]:
    """Return the label values of a node's price series, in the order of `PRICE_LABELS`."""
    labels = state_node.labels
    return (
        "" if state_node.node is None else state_node.node.name,
        "" if state_node.claim is None else state_node.claim.name,
        state_node.pool,
        labels.get(INSTANCE_TYPE, ""),
        labels.get(ZONE, ""),
        labels.get(CAPACITY_TYPE, ""),
        price.currency,
    )
