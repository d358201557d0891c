"""The simulated cloud of a demo is found by its entry point, or an error says what to install."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Final

import msgspec
import pytest

from karpenter_core.cli.demo import demo_kubelets
from karpenter_core.cli.demo.cloud_scenario import controller_environment
from karpenter_core.errors import SettingsError
from karpenter_core.provider.markers import PROJECT

PROVIDER: Final = EntryPoint(name="web", value="web.plugin:WebProvider", group=PROJECT)
OTHER: Final = EntryPoint(name="other", value="other.demo:cloud", group=demo_kubelets.GROUP)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    """Take the given entry points for all that are installed."""

    def take(*points: EntryPoint) -> None:
        monkeypatch.setattr(demo_kubelets, "entry_points", EntryPoints(points).select)

    return take


def test_error_names_what_to_install_for_a_provider_without_its_simulated_cloud(install):
    install(PROVIDER, OTHER)
    with pytest.raises(SettingsError) as raised:
        demo_kubelets.find_simulated_cloud("web")
    assert str(raised.value) == (
        "--provider web: its simulated cloud is not installed; install "
        "the distribution that has it, or choose one of: kwok, other"
    )


def test_error_names_the_simulated_clouds_where_the_provider_is_unknown(install):
    install(PROVIDER, OTHER)
    with pytest.raises(SettingsError) as raised:
        demo_kubelets.find_simulated_cloud("wbe")
    assert str(raised.value) == (
        "--provider wbe: there is no simulated cloud of that name; there are: kwok, other"
    )


def test_error_names_the_module_that_a_simulated_cloud_lacks(install):
    install(
        PROVIDER, EntryPoint(name="web", value="no_such_module:cloud", group=demo_kubelets.GROUP)
    )
    with pytest.raises(SettingsError, match=r"'no_such_module'.*install its distribution again"):
        demo_kubelets.find_simulated_cloud("web")


def test_installed_simulated_cloud_is_called(install):
    """Any callable stands for it: what it returns is handed on."""
    install(PROVIDER, EntryPoint(name="web", value="builtins:dict", group=demo_kubelets.GROUP))
    assert demo_kubelets.find_simulated_cloud("web") == {}


@pytest.mark.parametrize("provider", ["alibabacloud", "aws", "azure"])
def test_simulated_cloud_of_each_shipped_provider_is_loaded(provider: str):
    with demo_kubelets.find_simulated_cloud(provider) as cloud:
        assert cloud.nodes() == {}


def test_controller_of_a_demo_gets_cluster_name_and_currency_unless_the_cloud_sets_them():
    cloud = SimpleNamespace(currency="EUR", environment={"MY_ENDPOINT": "http://127.0.0.1"})
    assert controller_environment(cloud) == {
        "CLUSTER_NAME": "karpenter-demo",
        "CURRENCY": "EUR",
        "MY_ENDPOINT": "http://127.0.0.1",
    }
    cloud.environment = {"CLUSTER_NAME": "own"}
    assert controller_environment(cloud)["CLUSTER_NAME"] == "own"


class FakeApi:
    """One Node at a time."""

    def __init__(self) -> None:
        self.node: dict = {}

    async def create(self, _kind, body):
        self.node = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}

    async def get(self, _kind, _name):
        return msgspec.json.encode(self.node)

    async def patch(self, _kind, _name, body, *, subresource, resource_version):
        assert (subresource, resource_version) == ("status", "1")
        self.node["status"] |= body["status"]

    async def delete(self, _kind, _name):
        self.node = {}


def test_conditions_that_come_after_a_node_registers_are_set_beside_those_that_it_has():
    ready = {"type": "Ready", "status": "True"}
    preempted = {"type": "PreemptionScheduled", "status": "True"}
    manifest = {"metadata": {"name": "n"}, "status": {}}
    cloud = SimpleNamespace(nodes=lambda: {"id": manifest}, instances=lambda: {"id": None})
    api = FakeApi()

    kubelets = demo_kubelets.DemoKubelets(cloud, api)

    async def scenario() -> None:
        await kubelets._follow()
        api.node["status"]["conditions"] = [ready]
        await kubelets._follow()
        assert api.node["status"]["conditions"] == [ready]
        manifest["status"] = {"conditions": [preempted]}
        await kubelets._follow()
        assert api.node["status"]["conditions"] == [ready, preempted]

    asyncio.run(scenario())
