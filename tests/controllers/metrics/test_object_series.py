"""Series of objects are rendered right and cheaply."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.object_series import ObjectSeries
from karpenter_core.controllers.metrics.pod_metrics import POD_LABELS
from karpenter_core.controllers.metrics.process_metrics import NODE_LABELS, Metrics
from karpenter_core.controllers.observability import node_series
from karpenter_core.controllers.observability.cluster import BATCH_SIZE, ClusterMetricsController
from karpenter_core.controllers.observability.node_series import NodeSeries
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.exposition import exposition
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import InformersSynced, ObjectObserved
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import MANAGED_KINDS, node_and_claim, synced_state
from tests.properties import with_examples

LABELS = ("zone", "name")
ROWS = st.lists(
    st.tuples(st.tuples(st.text(max_size=6), st.text(max_size=6)), st.floats(allow_nan=False)),
    unique_by=lambda row: row[0],
    max_size=5,
)


def scraped(registry):
    return b"".join(exposition(registry)).decode()


def samples(text):
    """Return every series with its labels and value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(ROWS)
@with_examples(100)
def test_any_label_value_and_number_is_scraped_as_it_is(rows):
    """Quotes, backslashes and line breaks are escaped; infinity is a number."""
    registry = CollectorRegistry()
    ObjectSeries("depth", "Depth.", LABELS, registry=registry).set_rows(rows)

    expected = {
        ("depth", (("name", name), ("zone", zone))): number for (zone, name), number in rows
    }
    assert expected == samples(scraped(registry))
    assert expected == samples(generate_latest(registry).decode())


def test_a_label_s_odd_characters_are_escaped_in_names_of_owners():
    """An owner reference may have any name."""
    metrics = Metrics()
    series = NodeSeries(metrics, now=lambda: EPOCH)
    odd = replace(pod("web-1"), owner_name='a"b\\c\nd')
    series.show(synced_state(odd).snapshot())

    (labels,) = [
        dict(labels)
        for (name, labels), _ in samples(scraped(metrics.registry)).items()
        if name == "karpenter_pods_state"
    ]
    assert labels["owner"].endswith('/a"b\\c\nd')


def test_nodes_and_pods_have_their_labels_and_amounts():
    metrics = Metrics()
    view, claim = node_and_claim("web-1", capacity={"cpu": "4", "nvidia.com/gpu": "1"})
    there, waits = pod("a", node_name="web-1", phase="Running"), pod("b")
    astray = pod("c", node_name="gone")
    series = NodeSeries(metrics, now=lambda: EPOCH + timedelta(minutes=1))
    series.show(synced_state(view, claim, there, waits, astray, node_pool()).snapshot())

    result = samples(scraped(metrics.registry))

    def of(name):
        return [(dict(labels), value) for (key, labels), value in result.items() if key == name]

    allocatable = {
        each["resource_type"]: value for each, value in of("karpenter_nodes_allocatable")
    }
    assert allocatable["cpu"] == 4.0
    assert allocatable["nvidia_com_gpu"] == 1.0
    ((labels, age),) = of("karpenter_nodes_current_lifetime_seconds")
    assert age == 60.0
    assert labels.keys() == set(NODE_LABELS)
    assert (labels["node_name"], labels["nodepool"]) == ("web-1", "default")
    pods = {each["name"]: each for each, _ in of("karpenter_pods_state")}
    assert pods["a"].keys() == set(POD_LABELS)
    assert (pods["a"]["nodepool"], pods["a"]["zone"]) == ("default", "zone-a")
    assert (pods["a"]["scheduled"], pods["a"]["managed"]) == ("true", "true")
    assert (pods["b"]["scheduled"], pods["b"]["node"]) == ("false", "")
    assert (pods["c"]["scheduled"], pods["c"]["node"]) == ("true", "gone")
    assert (pods["c"]["nodepool"], pods["c"]["managed"]) == ("", "false")


def test_amounts_of_a_node_tell_daemons_from_other_pods():
    """Each gauge in its order: allocatable, asked by all and by daemons, limits likewise, the rest."""
    plain, its_daemon = (
        msgspec.structs.replace(made, shape=msgspec.structs.replace(made.shape, limits=limits))
        for made, limits in (
            (pod("web", node_name="a", phase="Running", cpu="1"), {"cpu": 3000}),
            (
                pod("log", node_name="a", phase="Running", cpu="100m", owner_kind="DaemonSet"),
                {"cpu": 200},
            ),
        )
    )
    builder = synced_state(*node_and_claim("a"), plain, its_daemon)
    (state_node,) = builder.snapshot().state_nodes
    amounts = node_series._amounts_of(state_node)
    allocatable = state_node.allocatable["cpu"]
    assert [each.get("cpu") for each in amounts] == [
        allocatable,
        1100,
        100,
        3200,
        200,
        state_node.capacity["cpu"] - allocatable,
    ]


def test_only_changed_nodes_are_rendered_again(monkeypatch):
    """A scrape of a quiet cluster formats no node."""
    written = Counter()
    node_text = node_series._node_text

    def counted(found, names):
        written[found.name] += 1
        return node_text(found, names)

    monkeypatch.setattr(node_series, "_node_text", counted)
    metrics = Metrics()
    series = NodeSeries(metrics, now=lambda: EPOCH)
    builder = synced_state(*(each for name in "abc" for each in node_and_claim(name)))
    series.show(builder.snapshot())
    scraped(metrics.registry)
    scraped(metrics.registry)
    assert written == {"a": 1, "b": 1, "c": 1}

    builder.apply_event(ObjectObserved(pod("web", node_name="b", phase="Running")))
    series.show(builder.snapshot())
    scraped(metrics.registry)

    assert written == {"a": 1, "b": 2, "c": 1}


def test_nodes_that_have_gone_leave_no_text_behind():
    metrics = Metrics()
    series = NodeSeries(metrics, now=lambda: EPOCH)
    series.show(synced_state(*node_and_claim("a")).snapshot())
    assert "karpenter_nodes_allocatable{" in scraped(metrics.registry)

    series.show(synced_state().snapshot())

    assert "karpenter_nodes_allocatable{" not in scraped(metrics.registry)
    assert not series._texts


async def test_the_gauges_of_a_large_cluster_give_the_event_loop_back():
    """At least once for every few hundred nodes, and nothing is formatted on it."""
    node_count = 4 * BATCH_SIZE
    clock = SystemClock()
    cluster_state = ClusterState(StateBuilder(MANAGED_KINDS), clock)
    cluster_state.fold(ObjectObserved(node_pool()))
    for number in range(node_count):
        for made in node_and_claim(f"web-{number}"):
            cluster_state.fold(ObjectObserved(made))
    cluster_state.fold(InformersSynced())
    runtime = ControllerRuntime(clock=clock, new_id=random_id, metrics=Metrics())
    observability = ClusterMetricsController(
        cluster_state=cluster_state,
        runtime=runtime,
        detailed=True,
        solve=None,
        problem_settings=None,
    )
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    await observability._step()
    working.cancel()

    assert turns >= node_count / BATCH_SIZE
    assert not observability._series._texts
    share = runtime.metrics.registry.get_sample_value(
        "karpenter_nodepools_usage", {"resource_type": "nodes", "nodepool": "default"}
    )
    assert share == pytest.approx(node_count)


async def test_no_object_has_a_series_while_some_are_not_listed_yet():
    """Pods without the nodes that they run on would count as waiting, and pools as empty."""
    clock, metrics = SystemClock(), Metrics()
    cluster_state = ClusterState(StateBuilder(MANAGED_KINDS), clock)
    observability = ClusterMetricsController(
        cluster_state=cluster_state,
        runtime=ControllerRuntime(clock=clock, new_id=random_id, metrics=metrics),
        detailed=True,
        solve=None,
        problem_settings=None,
    )
    for made in (node_pool(limits={"cpu": "9"}), *node_and_claim("a"), pod("web")):
        cluster_state.fold(ObjectObserved(made))
    by_object = ("karpenter_nodes_allocatable", "karpenter_nodepools_limit", "karpenter_pods_state")

    await observability._step()
    before = scraped(metrics.registry)
    cluster_state.fold(InformersSynced())
    await observability._step()
    after = scraped(metrics.registry)

    for name in by_object:
        assert f"\n{name}{{" not in before
        assert f"\n{name}{{" in after


def of_objects(metrics):
    """Return the series of Nodes and pods."""
    prefixes = ("karpenter_nodes_", "karpenter_pods_state")
    return {
        key: value
        for key, value in samples(scraped(metrics.registry)).items()
        if key[0].startswith(prefixes) and not key[0].endswith("_created")
    }


@given(st.data())
@with_examples(30)
def test_a_scrape_after_changes_equals_a_first_scrape(data):
    """Kept texts are thrown away with the state that they were written from."""
    nodes = {name: node_and_claim(name) for name in "ab"}
    builder = synced_state(node_pool(), *(each for pair in nodes.values() for each in pair))
    kept_metrics = Metrics()
    kept = NodeSeries(kept_metrics, now=lambda: EPOCH)
    for version in range(1, 6):
        name = data.draw(st.sampled_from(["web-1", "web-2", "web-3"]))
        node = data.draw(st.sampled_from(["", "a", "b", "gone"]))
        phase = data.draw(st.sampled_from(["Pending", "Running", "Succeeded"]))
        changed = pod(name, node_name=node, phase=phase)
        builder.apply_event(ObjectObserved(replace(changed, resource_version=version)))
        view = nodes["a"][0]
        labels = {**view.labels, "topology.kubernetes.io/zone": data.draw(st.sampled_from("xy"))}
        builder.apply_event(ObjectObserved(replace(view, labels=labels, resource_version=version)))
        snapshot = builder.snapshot()
        fresh_metrics = Metrics()
        NodeSeries(fresh_metrics, now=lambda: EPOCH).show(snapshot)
        kept.show(snapshot)

        assert of_objects(kept_metrics) == of_objects(fresh_metrics)


def test_the_lines_of_pods_are_kept_until_a_pod_of_their_node_changes(monkeypatch):
    written = Counter()
    line = node_series._PodWriter.line

    def counted(self, of_pod, labels):
        written[of_pod.name] += 1
        return line(self, of_pod, labels)

    monkeypatch.setattr(node_series._PodWriter, "line", counted)
    metrics = Metrics()
    series = NodeSeries(metrics, now=lambda: EPOCH)
    builder = synced_state(
        *(each for name in "ab" for each in node_and_claim(name)),
        *(pod(f"on-{name}", node_name=name, phase="Running") for name in "ab"),
    )
    series.show(builder.snapshot())
    scraped(metrics.registry)
    builder.apply_event(ObjectObserved(pod("new", node_name="b", phase="Running")))
    series.show(builder.snapshot())
    scraped(metrics.registry)

    assert written == {"on-a": 1, "on-b": 2, "new": 1}


def test_the_gauges_follow_the_cluster_every_ten_seconds():
    """A pool is added every half second; all of one pass appear together."""

    async def scenario():
        clock, metrics = LoopClock(), Metrics()
        cluster_state = ClusterState(synced_state(), clock)
        runtime = ControllerRuntime(clock=clock, new_id=random_id, metrics=metrics)
        gauges = ClusterMetricsController(
            cluster_state=cluster_state,
            runtime=runtime,
            detailed=True,
            solve=None,
            problem_settings=None,
        )
        working = asyncio.create_task(gauges.run())
        shown: dict[str, float] = {}
        for number in range(125):
            cluster_state.fold(ObjectObserved(node_pool(f"pool-{number}", limits={"cpu": "9"})))
            await clock.sleep(0.5)
            text = scraped(metrics.registry)
            for name in re.findall(r'karpenter_nodepools_limit{.*nodepool="([^"]+)"', text):
                shown.setdefault(name, clock.monotonic())
        working.cancel()
        return sorted(set(shown.values()))

    at = run_virtual(scenario())

    assert len(at) > 5
    assert {later - earlier for earlier, later in pairwise(at)} == {10.0}
