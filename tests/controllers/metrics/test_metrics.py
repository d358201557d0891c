"""Every metric is documented, under its exposed name."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from karpenter_core.controllers.metrics.declarations import NAMESPACE
from karpenter_core.controllers.metrics.process_metrics import Metrics, metrics_table
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.scheduling.offerings import offering_price
from karpenter_provider_kwok.catalogue import load_catalogue
from karpenter_provider_kwok.catalogue_default import default_catalogue_text
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_every_metric_is_documented():
    """The page holds the table as the code renders it."""
    assert metrics_table(Metrics()) in DOCUMENTATION.read_text(encoding="utf-8")


def test_metrics_are_exposed_under_the_names_they_are_declared_with():
    """The client library adds suffixes of its own; what is documented is what is scraped."""
    metrics = Metrics()
    exposed = generate_latest(metrics.registry).decode()

    for name in metrics.declared:
        assert f"# TYPE {name} " in exposed


@pytest.mark.parametrize("metric", LifecycleMetric)
def test_every_metric_of_a_step_is_a_declared_one(metric):
    """An update reaches the metric that its name says, and no other."""
    metrics = Metrics()
    result = metrics.of(metric)

    group = metrics.pods if metric.startswith("pods_") else metrics
    assert result is getattr(group, metric.removeprefix("pods_"))
    (family,) = result.collect()
    assert family.name == f"{NAMESPACE}_{metric}" + ("_seconds" * metric.endswith("_duration"))


def test_an_unknown_metric_is_an_error():
    writer = ObjectWriter(
        kube_writer=None, cluster_state=None, publish=None, metrics=Metrics(), owns_nodes=True
    )

    with pytest.raises(KeyError, match="nodeclaims_forgotten"):
        writer.record_metrics([MetricUpdate(metric="nodeclaims_forgotten", labels={})])


def test_series_of_objects_are_replaced_all_together():
    """Series of deleted objects are removed."""
    metrics = Metrics()
    name = f"{NAMESPACE}_pods_unbound_time_seconds"

    def exposed():
        lines = generate_latest(metrics.registry).decode().splitlines()
        return [line for line in lines if line.startswith(f"{name}{{")]

    metrics.pods.unbound_time.set_rows([(("a", "default"), 3.0), (("b", "default"), 4.0)])
    both = exposed()
    metrics.pods.unbound_time.set_rows([(("b", "default"), 5.0)])

    assert both == [
        f'{name}{{name="a",namespace="default"}} 3.0',
        f'{name}{{name="b",namespace="default"}} 4.0',
    ]
    assert exposed() == [f'{name}{{name="b",namespace="default"}} 5.0']


def test_pods_and_nodes_have_series_while_they_are_there(tmp_path):
    """One state a pod, an amount of every resource a node."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 2)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await scene.cluster.clock.sleep(20)
        there, nodes = series(running), len(scene.nodes())
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=120)
        await scene.cluster.clock.sleep(20)
        gone = series(running)

        assert there["pods_state"] == 2
        assert there["nodes_current_lifetime_seconds"] == nodes > 0
        assert there["nodes_allocatable"] > 2 * nodes
        assert gone == {
            "pods_state": 0,
            "nodes_current_lifetime_seconds": 0,
            "nodes_allocatable": 0,
        }

    def series(running):
        text = generate_latest(running.process.metrics.registry).decode()
        names = ("pods_state", "nodes_current_lifetime_seconds", "nodes_allocatable")
        return {name: text.count(f"\n{NAMESPACE}_{name}{{") for name in names}

    run_controller(tmp_path, scenario)


def test_durations_are_counted_in_upstreams_buckets():
    """Dashboards compare them; the last one is for all that took longer."""
    metrics = Metrics()
    metrics.pods.bound_duration.observe(1.0)
    name = f"{NAMESPACE}_pods_bound_duration_seconds_bucket"
    bounds = [
        sample.labels["le"]
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == name
    ]
    tenths = [n / 10 for n in (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)]
    ones = [1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50]
    minutes = [60 * n for n in (1, 2, 2.5, 5, 7.5, 10)]
    assert [float(bound) for bound in bounds] == [
        *map(pytest.approx, (*tenths, *ones, *minutes)),
        float("inf"),
    ]


def test_each_wait_of_a_pod_is_measured_once(tmp_path):
    """Also of pods that are Ready within one pass; gauges exist only while a pod waits."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        await scene.cluster.clock.sleep(60)
        scene.cluster.scale(DEPLOYMENTS, "web", 4)
        await scene.cluster.clock.sleep(60)
        assert len(scene.pods("Running")) == 4

        bound = running.metric(f"{NAMESPACE}_pods_bound_duration_seconds_count")
        started = running.metric(f"{NAMESPACE}_pods_startup_duration_seconds_count")
        assert (bound, started) == (4, 4)
        planned = [
            running.metric(f"{NAMESPACE}_pods_provisioning_{end}_duration_seconds_count")
            for end in ("bound", "startup")
        ]
        assert planned in ([3, 3], [4, 4])
        text = generate_latest(running.process.metrics.registry).decode()
        for gauge in ("unbound", "unstarted", "scheduling_undecided"):
            assert f"{NAMESPACE}_pods_provisioning_{gauge}_time_seconds{{" not in text
        assert f'{NAMESPACE}_nodepools_cost_total{{nodepool="general"}}' in text

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=120)
        await scene.cluster.clock.sleep(20)
        text = generate_latest(running.process.metrics.registry).decode()
        assert f"{NAMESPACE}_nodepools_cost_total{{" not in text

    run_controller(tmp_path, scenario)


def test_pods_that_cannot_be_placed_have_no_plan_to_wait_for(tmp_path):
    """They wait to be bound all the same (case 273)."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("huge", 1, cpu="9999")])
        running = scene.start("--disable-leader-election")
        await scene.cluster.clock.sleep(60)

        text = generate_latest(running.process.metrics.registry).decode()
        assert f"{NAMESPACE}_pods_unbound_time_seconds{{" in text
        assert f"{NAMESPACE}_pods_provisioning_unbound_time_seconds{{" not in text

    run_controller(tmp_path, scenario)


def test_requests_and_limits_of_pods_are_added_up_by_node(tmp_path):
    """Those of DaemonSets are part of the whole and shown apart too (case 271)."""

    def limited(kind, name, cpu):
        manifest = {**deployment(name, 2, cpu="100m"), "kind": kind}
        resources = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
        resources["limits"] = {"cpu": cpu, "memory": "1Gi"}
        if kind == "DaemonSet":
            del manifest["spec"]["replicas"]
        return manifest

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.cluster.apply(
            [limited("Deployment", "web", "500m"), limited("DaemonSet", "log", "1")]
        )
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        await scene.cluster.clock.sleep(20)

        def total(name):
            lines = generate_latest(running.process.metrics.registry).decode().splitlines()
            return sum(
                float(line.rpartition(" ")[2])
                for line in lines
                if line.startswith(f"{NAMESPACE}_{name}{{") and 'resource_type="cpu"' in line
            )

        assert len(scene.nodes()) == 1
        assert total("nodes_total_pod_requests") == pytest.approx(0.3)
        assert total("nodes_total_daemon_requests") == pytest.approx(0.1)
        assert total("nodes_total_pod_limits") == pytest.approx(2.0)
        assert total("nodes_total_daemon_limits") == pytest.approx(1.0)

    run_controller(tmp_path, scenario)


def test_pool_cost_is_the_sum_of_its_nodes(tmp_path):
    """By type, zone and capacity type (case 276)."""
    sold = {item.name: item for item in load_catalogue(default_catalogue_text(), file="shipped")}

    def price(claim):
        labels = claim["metadata"]["labels"]
        return offering_price(
            sold[labels["node.kubernetes.io/instance-type"]],
            zone=labels["topology.kubernetes.io/zone"],
            capacity_type=labels["karpenter.sh/capacity-type"],
        )

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 2, cpu="20")])
        scene.cluster.apply([deployment("db", 1, cpu="60", memory="300Gi")])
        running = scene.start("--disable-leader-election")
        line = f'{NAMESPACE}_nodepools_cost_total{{nodepool="general"}}'
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        await scene.cluster.clock.sleep(20)
        expected = sum(price(claim) for claim in scene.claims())
        assert running.metric(line) == pytest.approx(expected)

        scene.cluster.apply([deployment("more", 2, cpu="60")])
        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=60)
        await scene.cluster.clock.sleep(20)
        grown = sum(price(claim) for claim in scene.claims())
        assert running.metric(line) == pytest.approx(grown)
        assert grown > expected > 0

    run_controller(tmp_path, scenario)


def test_budgets_of_a_deleted_pool_have_no_series(tmp_path):
    """An alert about a pool that is gone would never end."""
    budget = f'{NAMESPACE}_nodepools_allowed_disruptions{{nodepool="general"'
    in_use = f'{NAMESPACE}_nodepools_nodes_consuming_budgets{{nodepool="general"'

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)
        before = generate_latest(running.process.metrics.registry).decode()
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        scene.cluster.delete(NODE_POOLS, "general")
        await scene.settle(lambda: not scene.nodes(), seconds=120)
        await scene.cluster.clock.sleep(30)
        after = generate_latest(running.process.metrics.registry).decode()

        assert budget in before
        assert in_use in before
        assert budget not in after
        assert in_use not in after

    run_controller(tmp_path, scenario)
