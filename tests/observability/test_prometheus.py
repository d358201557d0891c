"""A real Prometheus scrapes a controller with three clouds: every panel and alert finds its series."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from karpenter_core.api.labels import SPOT_SHARE
from karpenter_core.cli.demo.demo_kubelets import find_simulated_cloud
from karpenter_core.cli.demo.demo_manifests import find_node_class
from karpenter_core.kube.resources import custom_kind
from karpenter_core.testing.scenarios import CountBounds, Expectation, ExpectedPods
from tests.e2e.kwok import KwokCloud
from tests.e2e.test_three_clouds import (
    CLOUDS,
    CRDS,
    deployment,
    node_class,
    pool,
    register_instances,
    restore,
)
from tests.observability.expressions import (
    ALERTS,
    alert_rules,
    documented_metrics,
    panel_expressions,
    variable_queries,
)
from tests.observability.late_series import LATE_SERIES
from tests.observability.prometheus_server import (
    PrometheusServer,
    groupings,
    selector_text,
    selectors,
)
from tests.support.local_clusters import EmbeddedLocalCluster
from tests.support.processes import wait_until
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

TARGET_LABELS = {"cluster", "job", "instance"}
PROCESS_METRICS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}
"""Those of the client library."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrometheusServer]:
    """Prometheus, after each cloud has launched nodes and terminated them again."""
    folder = tmp_path_factory.mktemp("observability")
    models = {name: find_node_class(name) for name in CLOUDS}
    with ExitStack() as open_clouds:
        clouds = {name: open_clouds.enter_context(find_simulated_cloud(name)) for name in CLOUDS}
        for cloud in clouds.values():
            for name, value in cloud.environment.items():
                open_clouds.callback(restore, name, os.environ.get(name))
                os.environ[name] = value
        async with AsyncExitStack() as stack:
            local_cluster = await stack.enter_async_context(EmbeddedLocalCluster())
            kinds = [custom_kind(model.resource) for model in models.values()]
            world = await stack.enter_async_context(
                ScenarioWorld(local_cluster, KwokCloud(), folder, crds=CRDS, kinds=kinds)
            )
            await register_instances(stack, local_cluster, clouds.values())
            for name, model in models.items():
                await world.create(node_class(model, clouds[name].node_class_spec))
                await world.create(with_limits_and_share(pool(name, model).manifest()))
                await world.create(deployment(name).manifest())
            controller = world.add_controller(
                options={"providers": ",".join(("kwok", *CLOUDS)), "memory-limit": str(2**31)}
            )
            server = PrometheusServer(
                folder / "prometheus",
                targets=[controller.metrics_url.removeprefix("http://").removesuffix("/metrics")],
                rule_files=ALERTS,
            )
            await stack.enter_async_context(server)
            await controller.start()
            await world.expect(
                Expectation(
                    within=timedelta(seconds=90),
                    pods=ExpectedPods(running=CountBounds(at_least=9, at_most=9)),
                    nodes=CountBounds(at_least=3),
                )
            )

            async def shows_nodes_and_pods() -> bool:
                requests = await server.series(
                    'karpenter_nodes_total_pod_requests{resource_type="cpu"}'
                )
                prices = await server.series("karpenter_nodes_price_per_hour")
                return bool(requests and prices)

            await wait_until(shows_nodes_and_pods, seconds=60)
            for name in CLOUDS:
                await world.scale(f"on-{name}", 0)
            await world.expect(
                Expectation(within=timedelta(seconds=90), nothing_left=True), where="the end"
            )

            async def has_rates_of_ends() -> bool:
                """Return whether what came last was scraped twice, as rates need it."""
                ends = ("nodeclaims_termination_duration", "nodes_lifetime_duration")
                rates = [
                    await server.query(f"rate(karpenter_{name}_seconds_count[30s])")
                    for name in ends
                ]
                return all(rates)

            await wait_until(has_rates_of_ends, seconds=30)
            yield server


def with_limits_and_share(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a NodePool with limits that are far away, and with a share of spot."""
    metadata = manifest["metadata"] | {"annotations": {SPOT_SHARE: "50%"}}
    limited = manifest["spec"] | {"limits": {"cpu": "1000"}}
    return manifest | {"metadata": metadata, "spec": limited}


async def missing_series(prometheus: PrometheusServer, expression: str) -> set[str]:
    """Return the selectors that match no series; check that metrics and labels are documented."""
    documented = documented_metrics()
    missing: set[str] = set()
    tree = await prometheus.parse(expression)
    used = {name for name, _ in selectors(tree)}
    known = frozenset().union(*(documented.get(name, ()) for name in used)) | TARGET_LABELS
    assert set(groupings(tree)) <= known, (expression, known)
    for name, matchers in selectors(tree):
        if name in PROCESS_METRICS:
            assert set(matchers) <= TARGET_LABELS
        else:
            assert name in documented, f"{name} in {expression}"
            assert set(matchers) <= documented[name] | TARGET_LABELS, (name, matchers)
        text = ",".join(f'{label}{kind}"{value}"' for label, (kind, value) in matchers.items())
        if not await prometheus.series(f"{name}{{{text}}}"):
            missing.add(selector_text(name, matchers))
    return missing


async def test_every_panel_finds_its_series(prometheus: PrometheusServer):
    """Those that exist only after a fault are listed with the fault."""
    missing: dict[str, set[str]] = {}
    for title, expression in panel_expressions():
        for name in await missing_series(prometheus, expression):
            missing.setdefault(name, set()).add(title)
    lines = [f"{name}: {found}" for name, found in missing.items() if name not in LATE_SERIES]
    assert not lines, "\n".join(lines)


async def test_every_panel_shows_something(prometheus: PrometheusServer):
    """At some time of the run: joins of several metrics find each other's series."""
    empty: list[str] = []
    for title, expression in panel_expressions():
        is_late = any(
            selector_text(name, matchers) in LATE_SERIES
            for name, matchers in selectors(await prometheus.parse(expression))
        )
        if not is_late and not await prometheus.query_all(expression):
            empty.append(f"{title}: {expression}")
    assert not empty, "\n".join(empty)


async def test_every_alert_finds_its_series(prometheus: PrometheusServer):
    missing: dict[str, set[str]] = {}
    for name, rule in alert_rules().items():
        for metric in await missing_series(prometheus, rule["expr"]):
            missing.setdefault(metric, set()).add(name)
    lines = [f"{name}: {found}" for name, found in missing.items() if name not in LATE_SERIES]
    assert not lines, "\n".join(lines)


async def test_every_excused_series_is_used(prometheus: PrometheusServer):
    """The list of faults has no entry that outlived its panel or alert."""
    expressions = [expression for _, expression in panel_expressions()]
    expressions += [rule["expr"] for rule in alert_rules().values()]
    used = {
        selector_text(name, matchers)
        for expression in expressions
        for name, matchers in selectors(await prometheus.parse(expression))
    }
    assert set(LATE_SERIES) - used == set()


async def test_every_variable_has_values(prometheus: PrometheusServer):
    """And the clouds are among those of the provider."""
    values = {
        title: await prometheus.label_values(label, selector)
        for title, selector, label in variable_queries()
    }
    assert all(values.values()), values
    (providers,) = (found for title, found in values.items() if title.endswith(": provider"))
    assert set(CLOUDS) <= set(providers)


async def test_alerts_are_evaluated_without_errors_and_none_fires(prometheus: PrometheusServer):
    """A healthy controller alerts nobody."""
    rules = await prometheus.rules()
    assert {rule["name"] for rule in rules} == set(alert_rules())
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"} == {}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


async def test_the_money_spent_is_that_of_the_prices(prometheus: PrometheusServer):
    """Each cloud's nodes have cost something, in the currency of its price list."""
    spent = await prometheus.query("last_over_time(karpenter_nodepools_spent_total[5m])")
    by_pool = {row["metric"]["nodepool"]: float(row["value"][1]) for row in spent}
    assert set(by_pool) == set(CLOUDS)
    assert all(0 < amount < 1 for amount in by_pool.values()), by_pool
    unpriced = await prometheus.query("sum(last_over_time(karpenter_nodes_without_price[5m]))")
    assert float(unpriced[0]["value"][1]) == 0
