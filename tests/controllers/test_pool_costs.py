"""Machines without a known price: the cost of their NodePool misses them, and that is counted."""

from __future__ import annotations

from itertools import count

import pytest
import structlog
from prometheus_client import generate_latest

from karpenter_core.controllers.feed import Feed
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.controllers.observability.cluster import Observability
from karpenter_core.controllers.reconciler import Runtime
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.events import CataloguePublished, Observed
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, offering
from karpenter_core.testing.machines import machine, state

ERRORS = "karpenter_nodepools_cost_tracker_errors_total"
COST = "karpenter_nodepools_cost_total"


def sold(name, price):
    return instance_type(name, offerings=[offering("zone-a", "on-demand", price)])


class Board:
    """The gauges of a cluster."""

    def __init__(self, *objects, catalogues=None, pending=(), solve=None):
        metrics, clock = Metrics(), SystemClock()
        self.feed = Feed(state(node_pool(), *objects, catalogues=catalogues), clock)
        runtime = Runtime(clock=clock, new_id=map(str, count()).__next__, metrics=metrics)
        self._controller = Observability(
            feed=self.feed,
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


async def test_what_can_be_priced_is_no_error():
    """Even when it costs nothing."""
    types = catalogue(sold("paid", 0.4), sold("free", 0.0))
    board = Board(
        *machine("a", instance_type="paid"),
        *machine("b", instance_type="free"),
        catalogues={"default": types},
    )

    assert await board.value(COST) == pytest.approx(0.4)
    assert await board.value(ERRORS) == 0


async def test_a_machine_of_unknown_type_is_counted_once():
    """However often it is looked at; again when its price is lost once more."""
    board = Board(
        *machine("a", instance_type="paid"),
        *machine("b", instance_type="odd"),
        catalogues={"default": catalogue(sold("paid", 0.4))},
    )
    assert await board.value(ERRORS) == 1
    assert await board.value(COST) == pytest.approx(0.4)

    board.feed.fold(Observed(node_pool("other")))
    assert await board.value(ERRORS) == 1

    both = catalogue(sold("paid", 0.4), sold("odd", 0.1), version="2")
    board.feed.fold(CataloguePublished("default", both))
    assert await board.value(COST) == pytest.approx(0.5)
    board.feed.fold(CataloguePublished("default", None))
    assert await board.value(ERRORS) == 3


async def test_a_currency_without_a_rate_is_an_error():
    """Its amount cannot be added to the others."""
    types = catalogue(sold("paid", 0.4))
    board = Board(
        *machine("a", instance_type="paid"),
        catalogues={"default": types},
        solve=SolveOptions(currency="EUR"),
    )

    assert (await board.value(COST), await board.value(ERRORS)) == (0, 1)


async def test_the_log_tells_a_missing_rate_from_a_missing_price():
    """What to set is another thing than what to look for in the catalogue."""
    types = catalogue(
        instance_type("euro", offerings=[offering("zone-a", "on-demand", 0.4, currency="EUR")])
    )
    with structlog.testing.capture_logs() as logs:
        board = Board(
            *machine("a", instance_type="euro"),
            *machine("b", instance_type="odd"),
            catalogues={"default": types},
            solve=SolveOptions(),
        )
        await board.value(COST)

    told = {line["offering"][0]: line for line in logs if line["log_level"] == "warning"}
    assert told["euro"]["event"].startswith("no exchange rate from EUR to USD")
    assert "--exchange-rates" in told["euro"]["event"]
    assert told["odd"]["event"].startswith("price of a machine is not known")


async def test_prices_that_are_on_their_way_are_waited_for():
    """Right after the start no pool has been listed."""
    board = Board(*machine("a"), catalogues={}, pending=("default",))

    assert await board.value(ERRORS) == 0
