"""Plug-ins inherit the hooks that every cloud implements alike."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError, PluginError, SettingsError
from karpenter_core.provider.contract import CONTRACT_VERSION, NodeClassHash, ProviderInfo
from karpenter_core.provider.host.hooks import HOOKS
from karpenter_core.provider.host.manager import MANDATORY_HOOKS, load_plugins
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_core.provider.kit.plugin import (
    CloudHooks,
    CloudPlugin,
    ProviderPlugin,
    repair_policies,
)
from karpenter_core.provider.markers import hookimpl
from karpenter_core.testing import builders
from tests.provider.fakes import WebNodeClass, node_class

INFO = ProviderInfo(name="mycloud", contract_version=CONTRACT_VERSION, node_classes=(WebNodeClass,))


class StartedMyCloud:
    """Answers each hook with its name and arguments."""

    def __init__(self):
        self.node_classes = NodeClassRegistry()
        self.recorded = []
        self.is_closed = False
        names = CloudHooks.__dataclass_fields__
        answers = {name: self._answer(name) for name in names}
        self.hooks = CloudHooks(**answers)

    def _answer(self, name):
        def answer(*arguments):
            self.recorded.append((name, arguments))
            return name

        return answer

    def hash_node_class(self, node_class):
        return NodeClassHash(value=node_class.name, version="v1")

    def tasks(self):
        return ("a task",)

    def check(self):
        return ("a finding",)

    def close(self):
        self.is_closed = True


class MyCloud(CloudPlugin):
    info, title = INFO, "My Cloud"

    def start_provider(self, context):
        if context is None:
            raise SettingsError("no context")
        return StartedMyCloud()

    @property
    def cloud(self):
        return self.running

    @hookimpl
    def karpenter_read_interruptions(self, node):
        return (node,)


@pytest.fixture
def plugin():
    plugin = MyCloud()
    plugin.karpenter_start(context="context")
    return plugin


def test_the_manager_finds_inherited_hooks_and_those_of_the_cloud():
    plugins = load_plugins(extra={"mycloud": MyCloud()}, entry_points=())

    found = {hook.name for hook in HOOKS if "mycloud" in plugins.implementers(hook.name)}

    assert found >= {*MANDATORY_HOOKS, "karpenter_detect_drift", "karpenter_read_interruptions"}
    assert "karpenter_gate_registration" not in found
    assert plugins.providers["mycloud"].info is INFO


def test_hooks_say_that_the_provider_is_not_started(plugin):
    stopped = MyCloud()
    with pytest.raises(CloudProviderError, match="the My Cloud provider is not started"):
        stopped.karpenter_list_instances()

    running = plugin.running
    plugin.karpenter_stop()
    assert running.is_closed
    with pytest.raises(CloudProviderError, match="not started"):
        plugin.karpenter_list_instances()
    plugin.karpenter_stop()


def test_a_second_start_closes_the_parts_of_the_first_one(plugin):
    first = plugin.running

    plugin.karpenter_start(context="again")

    assert first.is_closed
    assert not plugin.running.is_closed
    with pytest.raises(SettingsError):
        plugin.karpenter_start(context=None)
    with pytest.raises(CloudProviderError, match="not started"):
        _ = plugin.running


def test_a_provider_that_cannot_start_is_not_started():
    plugin = MyCloud()
    with pytest.raises(SettingsError):
        plugin.karpenter_start(context=None)
    with pytest.raises(CloudProviderError, match="not started"):
        plugin.karpenter_check()


def test_each_hook_calls_its_function_of_the_cloud(plugin):
    web = node_class(name="web")
    calls = {
        "fetch_instances": plugin.karpenter_fetch_instances(["i"]),
        "launch_instances": plugin.karpenter_launch_instances(["r"]),
        "list_instances": plugin.karpenter_list_instances(),
        "terminate_instances": plugin.karpenter_terminate_instances(["i"]),
        "detect_drift": plugin.karpenter_detect_drift(["c"], web),
        "poll_interruptions": plugin.karpenter_poll_interruptions(),
        "resolve_node_class": plugin.karpenter_resolve_node_class(web),
    }
    plugin.karpenter_sync_instance("claim", "node")
    plugin.karpenter_acknowledge_interruptions(["id"])

    assert calls == {name: name for name in calls}
    assert [name for name, _ in plugin.running.recorded] == [
        *calls,
        "sync_instance",
        "acknowledge_interruptions",
    ]
    assert plugin.running.recorded[4] == ("detect_drift", (["c"], web))
    assert plugin.karpenter_hash_node_class(web).value == "web"
    assert plugin.karpenter_declare_tasks() == ("a task",)
    assert plugin.karpenter_check() == ("a finding",)


def test_node_classes_and_node_pools_of_hooks_are_remembered_until_finalized(plugin):
    web, pool = node_class(name="web"), builders.node_pool("batch")

    types = plugin.karpenter_list_instance_types(pool, web)

    running = plugin.running
    assert running.recorded[-1] == ("record_offerings", ("batch", types))
    assert running.node_classes.node_class("web") is web
    plugin.karpenter_finalize_node_class(web)
    assert running.node_classes.node_class("web") is None


def test_a_plug_in_without_a_cloud_class_starts_and_stops():
    class Small(ProviderPlugin):
        info, title = INFO, "Small"

        def start_provider(self, context):
            return StartedMyCloud()

    plugin = Small()
    plugin.karpenter_start(context="context")

    assert not plugin.running.is_closed
    assert plugin.karpenter_add_settings() == ()
    assert not plugin.karpenter_classify_labels().well_known


def test_repair_policies_are_made_of_rows():
    (policy,) = repair_policies([("Ready", "False", timedelta(minutes=3))])

    assert (policy.condition_type, policy.condition_status) == ("Ready", "False")
    assert policy.toleration == timedelta(minutes=3)


class MisspeltHook(MyCloud):
    @hookimpl
    def karpenter_poll_interuptions(self):
        """A name that is not a hook."""


class UnmarkedHook(MyCloud):
    def karpenter_fetch_instances(self, provider_ids):
        """A replacement without `@hookimpl`, which pluggy would leave out."""


class MisspeltArgument(MyCloud):
    @hookimpl
    def karpenter_fetch_instances(self, provider_idz):
        """An argument that the hook does not have."""


@pytest.mark.parametrize(
    ("plugin_class", "complaint"),
    [
        (MisspeltHook, "karpenter_poll_interruptions"),
        (UnmarkedHook, "karpenter_fetch_instances is not marked with @hookimpl"),
        (MisspeltArgument, "provider_ids"),
    ],
)
def test_mistakes_in_hooks_of_a_subclass_stop_the_start(plugin_class, complaint):
    with pytest.raises(PluginError, match=complaint):
        load_plugins(extra={"mycloud": plugin_class()}, entry_points=())


def test_a_hook_of_a_subclass_replaces_the_inherited_one():
    class Other(MyCloud):
        @hookimpl
        def karpenter_fetch_instances(self, provider_ids):
            return [f"own {it}" for it in provider_ids]

    plugins = load_plugins(extra={"mycloud": Other()}, entry_points=())

    fetch = plugins.caller("karpenter_fetch_instances", "mycloud")
    assert fetch(provider_ids=["a"]) == ["own a"]
