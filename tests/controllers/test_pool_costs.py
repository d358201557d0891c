"""Nodes without a known price are missing from costs, which is counted."""

from __future__ import annotations

import asyncio
import re
from itertools import count

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.cluster import ClusterMetricsController
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.exposition import exposition
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.events import CataloguePublished, ObjectObserved, ObjectRemoved
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, offering
from karpenter_core.testing.state_builders import node_and_claim, node_claim, synced_state
from tests.controllers.clocks import TwoClocks
from tests.properties import with_examples

ERRORS = "karpenter_nodepools_cost_tracker_errors_total"
COST = "karpenter_nodepools_cost_total"


def sold(name, price):
    return instance_type(name, offerings=[offering("zone-a", "on-demand", price)])


class ClusterGauges:
    """The gauges of a cluster."""

    def __init__(self, *objects, catalogues=None, pending=(), solve=None, clock=None):
        metrics, clock = Metrics(), clock or SystemClock()
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
            problem_settings=None,
        )
        self._registry = metrics.registry

    async def text(self):
        """All metrics, after a pass."""
        await self._controller._step()
        return b"".join(exposition(self._registry)).decode()

    async def value(self, series, pool="default"):
        rows = (await self.text()).splitlines()
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


PRICED = catalogue(
    sold("paid", 0.4),
    instance_type("euro", offerings=[offering("zone-a", "spot", 0.3, currency="EUR")]),
)


def series(text, name):
    """The values of a metric by the values of its labels, in alphabetical order of the labels."""
    rows = [row for row in text.splitlines() if row.startswith(f"karpenter_{name}{{")]
    return {tuple(re.findall(r'="([^"]*)"', row)): float(row.rpartition(" ")[2]) for row in rows}


async def test_prices_are_shown_by_node_pool_and_cluster():
    """In the currency of the price list; a node without a price has no series but is counted."""
    board = ClusterGauges(
        *node_and_claim("a", instance_type="paid"),
        *node_and_claim("b", instance_type="paid"),
        *node_and_claim("c", instance_type="euro", capacity_type="spot"),
        *node_and_claim("d", instance_type="odd"),
        node_claim("e", instance_type="paid", provider_id="kwok://e", stage="Launched"),
        catalogues={"default": PRICED},
    )
    text = await board.text()

    prices = series(text, "nodes_price_per_hour")
    assert {labels[4]: (labels[3], price) for labels, price in prices.items()} == {
        "a": ("a", 0.4),
        "b": ("b", 0.4),
        "c": ("c", 0.3),
        "e": ("", 0.4),
    }
    assert series(text, "nodepools_price_per_hour") == {
        ("on-demand", "USD", "default"): pytest.approx(1.2),
        ("spot", "EUR", "default"): 0.3,
    }
    assert series(text, "cluster_price_per_hour") == {
        ("on-demand", "USD"): pytest.approx(1.2),
        ("spot", "EUR"): 0.3,
    }
    assert series(text, "nodes_without_price") == {("default",): 1}


async def test_a_pool_whose_nodes_all_have_prices_says_so():
    """An alert needs the 0."""
    board = ClusterGauges(catalogues={"default": PRICED})
    assert series(await board.text(), "nodes_without_price") == {("default",): 0}


async def test_prices_end_with_the_node():
    """Sums are made anew, so none is left over and none is negative."""
    objects = node_and_claim("a", instance_type="paid")
    board = ClusterGauges(*objects, catalogues={"default": PRICED})
    await board.text()
    for item in objects:
        board.cluster_state.fold(ObjectRemoved(item))
    text = await board.text()

    for name in ("nodes_price_per_hour", "nodepools_price_per_hour", "cluster_price_per_hour"):
        assert series(text, name) == {}


async def test_money_is_spent_at_the_price_of_the_time_that_passed():
    """Nothing is spent before the first pass, and what was spent stays when the node is gone."""
    objects = node_and_claim("a", instance_type="paid")
    clock = TwoClocks()
    clock.passes(7200)
    board = ClusterGauges(*objects, catalogues={"default": PRICED}, clock=clock)
    spent = [series(await board.text(), "nodepools_spent_total")]
    clock.passes(1800)
    spent.append(series(await board.text(), "nodepools_spent_total"))
    for item in objects:
        board.cluster_state.fold(ObjectRemoved(item))
    clock.passes(3600)
    spent.append(series(await board.text(), "nodepools_spent_total"))
    clock.passes(3600)
    spent.append(series(await board.text(), "nodepools_spent_total"))

    key = ("on-demand", "USD", "default")
    assert [each[key] for each in spent] == [0, *map(pytest.approx, (0.2, 0.6, 0.6))]


@with_examples(100)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["paid", "euro", "odd", None]),
            st.floats(0, 4000),
        ),
        max_size=12,
    )
)
def test_costs_are_never_negative_and_spending_never_shrinks(steps):
    """Whatever nodes come, change and go."""

    async def scenario():
        clock = TwoClocks()
        board = ClusterGauges(catalogues={"default": PRICED}, clock=clock)
        before = {}
        for name, kind, seconds in steps:
            clock.passes(seconds)
            objects = node_and_claim(
                name,
                instance_type=kind or "paid",
                capacity_type="spot" if kind == "euro" else "on-demand",
            )
            fold = ObjectRemoved if kind is None else ObjectObserved
            for item in objects:
                board.cluster_state.fold(fold(item))
            text = await board.text()
            shown = series(text, "nodepools_price_per_hour") | series(text, "nodes_without_price")
            assert all(value >= 0 for value in shown.values())
            spent = series(text, "nodepools_spent_total")
            assert all(spent[key] >= value for key, value in before.items())
            nodes = board.cluster_state.snapshot().state_nodes
            priced = len(series(text, "nodes_price_per_hour"))
            unpriced = sum(series(text, "nodes_without_price").values())
            assert priced + unpriced == len(nodes)
            before = spent

    asyncio.run(scenario())
