"""Nodes without a known price are missing from costs, which is counted."""

from __future__ import annotations

from itertools import count

import pytest
import structlog
from prometheus_client import generate_latest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.cluster import ClusterMetricsController
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.events import CataloguePublished, ObjectObserved
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, offering
from karpenter_core.testing.state_builders import node_and_claim, synced_state

ERRORS = "karpenter_nodepools_cost_tracker_errors_total"
COST = "karpenter_nodepools_cost_total"


def sold(name, price):
    return instance_type(name, offerings=[offering("zone-a", "on-demand", price)])


class ClusterGauges:
    """The gauges of a cluster."""

    def __init__(self, *objects, catalogues=None, pending=(), solve=None):
        metrics, clock = Metrics(), SystemClock()
        self.cluster_state = ClusterState(
            synced_state(node_pool(), *objects, catalogues=catalogues), clock
        )
        runtime = ControllerRuntime(clock=clock, new_id=map(str, count()).__next__, metrics=metrics)
        self._controller = ClusterMetricsController(
            cluster_state=self.cluster_state,
            runtime=runtime,
            detailed=True,
            solve=solve,
            unevaluated_pools=lambda: pending,
        )
        self._registry = metrics.registry

    async def value(self, series, pool="default"):
        await self._controller._step()
        rows = generate_latest(self._registry).decode().splitlines()
        line = f'{series}{{nodepool="{pool}"}} '
        return next((float(row.removeprefix(line)) for row in rows if row.startswith(line)), 0.0)


async def test_priced_nodes_count_no_error():
    """Even when it costs nothing."""
    types = catalogue(sold("paid", 0.4), sold("free", 0.0))
    board = ClusterGauges(
        *node_and_claim("a", instance_type="paid"),
        *node_and_claim("b", instance_type="free"),
        catalogues={"default": types},
    )

    assert await board.value(COST) == pytest.approx(0.4)
    assert await board.value(ERRORS) == 0


async def test_node_of_unknown_type_is_counted_once():
    """However often it is read; again when its price is lost once more."""
    board = ClusterGauges(
        *node_and_claim("a", instance_type="paid"),
        *node_and_claim("b", instance_type="odd"),
        catalogues={"default": catalogue(sold("paid", 0.4))},
    )
    assert await board.value(ERRORS) == 1
    assert await board.value(COST) == pytest.approx(0.4)

    board.cluster_state.fold(ObjectObserved(node_pool("other")))
    assert await board.value(ERRORS) == 1

    both = catalogue(sold("paid", 0.4), sold("odd", 0.1), version="2")
    board.cluster_state.fold(CataloguePublished("default", both))
    assert await board.value(COST) == pytest.approx(0.5)
    board.cluster_state.fold(CataloguePublished("default", None))
    assert await board.value(ERRORS) == 3


async def test_a_currency_without_a_rate_is_an_error():
    """Its amount cannot be added to the others."""
    types = catalogue(sold("paid", 0.4))
    board = ClusterGauges(
        *node_and_claim("a", instance_type="paid"),
        catalogues={"default": types},
        solve=SolveOptions(currency="EUR"),
    )

    assert (await board.value(COST), await board.value(ERRORS)) == (0, 1)


async def test_the_log_distinguishes_a_missing_rate_from_a_missing_price():
    """A missing rate needs a setting, a missing price a catalogue entry."""
    types = catalogue(
        instance_type("euro", offerings=[offering("zone-a", "on-demand", 0.4, currency="EUR")])
    )
    with structlog.testing.capture_logs() as logs:
        board = ClusterGauges(
            *node_and_claim("a", instance_type="euro"),
            *node_and_claim("b", instance_type="odd"),
            catalogues={"default": types},
            solve=SolveOptions(),
        )
        await board.value(COST)

    told = {line["offering"][0]: line for line in logs if line["log_level"] == "warning"}
    assert told["euro"]["event"].startswith("no exchange rate from EUR to USD")
    assert "--exchange-rates" in told["euro"]["event"]
    assert told["odd"]["event"].startswith("price of a node is not known")


async def test_unlisted_prices_count_no_error():
    """Right after the start no pool has been listed."""
    board = ClusterGauges(*node_and_claim("a"), catalogues={}, pending=("default",))

    assert await board.value(ERRORS) == 0
