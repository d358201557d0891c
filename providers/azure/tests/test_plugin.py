"""Tests the plug-in as a whole: its start, its periodic work, and what it reads over the SDK."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.errors import CloudProviderError, SettingsError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.provider.contract import ClusterFacts, ProviderContext
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.testing.provider_world import FakeNodes, node_pool_for
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.catalogue.prices import UNKNOWN_PRICE
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_provider_azure.setting_specs import SETTINGS
from karpenter_simulated_azure.testing import node_class_for, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_simulated_azure.cloud import SimulatedAzure

RETRIES = RetryPolicy(throttled_attempts=1, transient_attempts=1)
PERIODS = {
    "quotas": timedelta(minutes=1),
    "prices": timedelta(hours=12),
    "extensions": timedelta(seconds=15),
    "orphaned-resources": timedelta(minutes=5),
}


@pytest.fixture
def context(cloud: SimulatedAzure, tmp_path: Path) -> ProviderContext:
    nodes = FakeNodes()
    settings = {each.flag.removeprefix("--"): each.default for each in SETTINGS}
    return ProviderContext(
        settings={**settings, **settings_for(cloud)},
        clock=SystemClock(),
        cache_folder=tmp_path,
        metrics=CollectorRegistry(),
        cluster=ClusterFacts(name=cloud.world.cluster_name, version="v1.34.1"),
        nodes=nodes,
        read_nodes=nodes,
        wake=lambda _task: None,
    )


def having(context: ProviderContext, **settings: str | float | bool) -> ProviderContext:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return replace(context, settings={**context.settings, **named})


@pytest.fixture
def plugin() -> Iterator[AzureProvider]:
    made = AzureProvider(retries=RETRIES)
    yield made
    made.karpenter_stop()


def list_types(plugin: AzureProvider) -> dict[str, InstanceType]:
    """Return the types of a NodeClass by name."""
    node_class = node_class_for()
    types = plugin.karpenter_list_instance_types(node_pool_for(node_class), node_class)
    return {it.name: it for it in types}


def run_task(plugin: AzureProvider, name: str) -> None:
    next(task for task in plugin.karpenter_declare_tasks() if task.name == name).run()


def test_the_plugin_is_loaded_by_its_entry_point() -> None:
    (found,) = entry_points(group="karpenter", name="azure")

    assert found.load() is AzureProvider


def test_all_missing_settings_are_named_at_once(
    context: ProviderContext, plugin: AzureProvider
) -> None:
    with pytest.raises(SettingsError) as raised:
        plugin.karpenter_start(having(context, location="", ssh_public_key=""))

    assert "--location: must be given" in str(raised.value)
    assert "--ssh-public-key: must be given" in str(raised.value)


def test_a_start_makes_no_call(
    context: ProviderContext, plugin: AzureProvider, cloud: SimulatedAzure
) -> None:
    """Rule PC-007: a cloud that is down keeps no controller from starting."""
    plugin.karpenter_start(context)
    plugin.karpenter_declare_tasks()

    assert not list(cloud.calls.all)


def test_a_failed_start_leaves_no_metrics(context: ProviderContext, plugin: AzureProvider) -> None:
    with pytest.raises(SettingsError):
        plugin.karpenter_start(having(context, location=""))

    plugin.karpenter_start(context)
    plugin.karpenter_stop()
    plugin.karpenter_start(context)


def test_a_start_that_fails_late_closes_what_it_opened(
    context: ProviderContext, plugin: AzureProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []

    def broken(_services: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("karpenter_provider_azure.started_provider.ProviderParts", broken)
    monkeypatch.setattr(ArmClient, "close", lambda _: closed.append(1))

    with pytest.raises(OSError, match="no space left"):
        plugin.karpenter_start(context)

    assert not list(context.metrics.collect())
    assert closed == [1]


def test_periodic_work_has_the_periods_of_the_documentation(
    context: ProviderContext, plugin: AzureProvider
) -> None:
    plugin.karpenter_start(context)
    tasks = {task.name: task for task in plugin.karpenter_declare_tasks()}

    assert {name: tasks[name].period for name in PERIODS} == PERIODS
    assert timedelta(hours=10) < tasks["vm-sizes"].period < timedelta(hours=14)
    assert {name for name, task in tasks.items() if task.leader_only} == {
        "extensions",
        "orphaned-resources",
    }


def test_sizes_are_listed_over_the_sdk(
    context: ProviderContext, plugin: AzureProvider, cloud: SimulatedAzure
) -> None:
    plugin.karpenter_start(context)

    types = list_types(plugin)

    assert {"Standard_D4s_v5", "Standard_NC4as_T4_v3"} <= types.keys()
    assert "Standard_B1ms" not in types
    assert list_types(plugin) == types
    assert cloud.calls.count("skus:list") == 1


def test_without_sizes_nothing_is_listed(
    context: ProviderContext, plugin: AzureProvider, cloud: SimulatedAzure
) -> None:
    plugin.karpenter_start(context)  # case 39

    with (
        cloud.fail("skus:list", code="InternalServerError", status=500, times=None),
        pytest.raises(CloudProviderError, match="skus:list"),
    ):
        list_types(plugin)


def test_prices_are_read_over_http(context: ProviderContext, plugin: AzureProvider) -> None:
    plugin.karpenter_start(context)
    shipped = {it: t.offerings[0].price for it, t in list_types(plugin).items()}

    run_task(plugin, "prices")

    prices = {it: t.offerings[0].price for it, t in list_types(plugin).items()}
    assert prices != shipped
    assert UNKNOWN_PRICE not in {prices["Standard_D4s_v5"], prices["Standard_D2s_v5"]}


def test_a_used_up_quota_of_a_family_makes_its_offerings_unavailable(
    context: ProviderContext, plugin: AzureProvider, cloud: SimulatedAzure
) -> None:
    plugin.karpenter_start(context)
    family = plugin.running.parts.catalogue.region.current()[0]["Standard_D4s_v5"].family
    cloud.usages.set_limit(family, 0)

    run_task(plugin, "quotas")

    types = list_types(plugin)
    capacity_types = {o.capacity_type for o in types["Standard_D4s_v5"].offerings if o.available}
    assert capacity_types == {"spot"}
    assert any(o.available for o in types["Standard_D4s_v3"].offerings)


@pytest.mark.parametrize(
    ("settings", "has_list"),
    [({}, True), ({"azure_pricing_url": ""}, False)],
)
def test_prices_are_read_where_there_is_a_list(
    context: ProviderContext,
    plugin: AzureProvider,
    cloud: SimulatedAzure,
    settings: dict[str, str],
    has_list: bool,
) -> None:
    plugin.karpenter_start(having(context, **settings))  # case 53

    run_task(plugin, "prices")

    prices = plugin.running.parts.catalogue.prices
    assert (prices.read_at("on-demand") is not None) is has_list


def test_repair_policies_are_those_of_the_documentation() -> None:
    policies = {
        (each.condition_type, each.condition_status): each.toleration
        for each in AzureProvider.info.repair_policies
    }

    assert policies == {
        ("Ready", "False"): timedelta(minutes=10),  # case 130
        ("Ready", "Unknown"): timedelta(minutes=10),
        ("kubernetes.azure.com/NodeHealthy", "False"): timedelta(),
        ("PreemptionScheduled", "True"): timedelta(),
    }


def test_a_hook_of_a_provider_that_is_not_started_says_so(plugin: AzureProvider) -> None:
    with pytest.raises(CloudProviderError, match="Azure provider is not started"):
        plugin.karpenter_list_instances()


def test_the_objects_of_the_cluster_are_read_less_than_150_times_an_hour():
    reads = AzureProvider.info.reads
    assert len(reads) == 7
    assert sum(timedelta(hours=1) / each.period for each in reads) < 150
