"""The demo's counts and output."""

from __future__ import annotations

import asyncio
import io
import os

import pytest
from rich.console import Console

from karpenter_core.api.crd import render_crd
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import NodeConditionView, NodeView, PodShape, PodView
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.cli.demo import command
from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics, price_by, read_prices
from karpenter_core.cli.demo.demo_manifests import NAME, DemoManifests, find_node_class
from karpenter_core.cli.demo.processes import next_line
from karpenter_core.cli.demo.view import StepReport, choose_view, summarise
from karpenter_core.errors import BadInputError
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.events import ObjectObserved, ObjectRemoved

PRICES = {("large", "a", "on-demand"): 3.6}


def node(name: str, *, ready: str = "True", pool: str = NAME) -> NodeView:
    labels = {NODE_POOL: pool, INSTANCE_TYPE: "large", ZONE: "a", CAPACITY_TYPE: "on-demand"}
    conditions = (NodeConditionView(type="Ready", status=ready),)
    return NodeView(uid=name, name=name, labels=labels, conditions=conditions)


def pod(name: str, *, phase: str, namespace: str = NAME) -> PodView:
    ready = True if phase == "Running" else None
    return PodView(
        uid=name, name=name, shape=PodShape(namespace=namespace), phase=phase, ready=ready
    )


def test_census_counts_its_own_pods_and_nodes_and_their_cost():
    """Others' are left out; a node is paid from its first sight to its last, by the second."""

    async def scenario():
        clock = LoopClock()
        cluster_statistics = ClusterStatistics(clock, price_by(PRICES))
        for each in (
            node("one"),
            node("two", ready="Unknown"),
            node("other", pool="other"),
            pod("p", phase="Running"),
            pod("q", phase="Pending"),
            pod("r", phase="Running", namespace="other"),
        ):
            cluster_statistics.on_event(ObjectObserved(each))
        seen = (
            cluster_statistics.running,
            cluster_statistics.pods,
            cluster_statistics.ready_nodes,
            cluster_statistics.nodes,
        )
        price = cluster_statistics.price_per_hour
        await clock.sleep(100)
        cluster_statistics.on_event(ObjectRemoved(node("one")))
        await clock.sleep(100)
        return (
            seen,
            price,
            cluster_statistics.price_per_hour,
            cluster_statistics.spent,
            cluster_statistics.node_types,
        )

    seen, price, left, spent, types = run_virtual(scenario())

    assert seen == (1, 2, 1, 2)
    assert (price, left) == (7.2, 3.6)
    assert spent == pytest.approx(0.3)
    assert types == {"large": 2}


def test_an_installation_without_the_embedded_cluster_says_so(monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda _: None)

    with pytest.raises(BadInputError, match="the embedded cluster is not installed"):
        command.demo()


def test_scene_is_accepted_by_the_schema():
    """The API server will not refuse the demo's own pool."""
    demo_manifests = DemoManifests(node_class=find_node_class("kwok"))
    schema = render_crd(NodePool)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    validator = SchemaValidator(schema)

    assert validator.validate(validator.default(demo_manifests.node_pool())) == []


async def test_prices_come_from_the_provider():
    """Each instance type in each zone and capacity type, in one currency."""
    prices, currency = await read_prices(DemoManifests(node_class=find_node_class("kwok")))

    assert currency == "USD"
    assert len({zone for _, zone, _ in prices}) >= 3
    assert all(price > 0 for price in prices.values())


def test_plain_view_writes_lines_at_a_pace():
    """The first at once, then one a second; the end of an act in any case."""

    async def scenario():
        text = io.StringIO()
        clock = LoopClock()
        view = choose_view(Console(file=text, width=120), clock, "USD")
        cluster_statistics = ClusterStatistics(clock, price_by(PRICES))
        step_report = StepReport(title="scale nginx to 4", replicas=4, started=clock.monotonic())
        for index in range(4):
            cluster_statistics.on_event(ObjectObserved(pod(f"p{index}", phase="Running")))
            view.show(step_report, cluster_statistics)
            await clock.sleep(0.4)
        step_report.seconds = 1.6
        view.show(step_report, cluster_statistics)
        summarise(Console(file=text, width=120), [step_report], cluster_statistics, "USD")
        return text.getvalue()

    text = run_virtual(scenario())

    assert "1/4 pods running" in text
    assert "2/4 pods running" not in text
    assert "4/4 pods running" in text
    assert "scale nginx to 4" in text
    assert "1.6 s" in text


def test_live_view_draws_a_panel():
    """In a terminal."""

    async def scenario():
        text = io.StringIO()
        clock = LoopClock()
        console = Console(file=text, width=100, force_terminal=True)
        view = choose_view(console, clock, "USD")
        cluster_statistics = ClusterStatistics(clock, price_by(PRICES))
        cluster_statistics.on_event(ObjectObserved(node("one")))
        view.show(StepReport(title="scale nginx to 4", replicas=4, started=0.0), cluster_statistics)
        view.close()
        return text.getvalue()

    text = run_virtual(scenario())

    assert "1/1 ready" in text
    assert "3.60" in text


async def test_a_step_waits_for_a_line_while_other_tasks_go_on():
    controlling, terminal = os.openpty()
    with os.fdopen(terminal) as stream:
        waiting = asyncio.create_task(next_line(stream))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        os.write(controlling, b"\n")
        await asyncio.wait_for(waiting, 5)
        ended = asyncio.create_task(next_line(stream))
        await asyncio.sleep(0.05)
        ended.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended
    os.close(controlling)
