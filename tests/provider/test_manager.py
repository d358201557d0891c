"""Plug-ins are loaded or refused by name."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.errors import PluginError
from karpenter_core.provider.contract import BatchLimits, ObjectRead, PollingPeriods, SettingSpec
from karpenter_core.provider.host.manager import MANDATORY_HOOKS, load_plugins
from karpenter_core.provider.markers import hookimpl
from tests.provider.fakes import DataNodeClass, FakeProvider, WebNodeClass


def load(**plugins):
    return load_plugins(extra=plugins, entry_points=())


def entry_points(*names: str, value: str) -> list[importlib.metadata.EntryPoint]:
    return [importlib.metadata.EntryPoint(name, value, "karpenter") for name in names]


def test_installed_plugins_are_loaded_by_entry_point():
    """The kwok provider, as installed, is loaded from the group `karpenter`."""
    plugins = load_plugins(selected=["kwok"])
    assert plugins.names == ("kwok",)
    assert plugins.origin("kwok").startswith("karpenter-provider-kwok ")


def test_providers_of_different_kinds_live_together():
    plugins = load(web=FakeProvider(), data=FakeProvider("data", DataNodeClass))
    assert plugins.owners == {
        ("web.example.com", "WebNodeClass"): "web",
        ("data.example.com", "DataNodeClass"): "data",
    }


def test_a_caller_reaches_one_plugin_only():
    web, data = FakeProvider(), FakeProvider("data", DataNodeClass)
    plugins = load(web=web, data=data)
    plugins.caller("karpenter_terminate_instances", "data")(provider_ids=["fake://a"])
    assert (web.terminations, data.terminations) == ([], [["fake://a"]])


def test_two_owners_of_a_kind_are_both_named():
    with pytest.raises(PluginError) as error:
        load(web=FakeProvider(), other=FakeProvider("other"))
    assert str(error.value) == (
        'NodeClass kind WebNodeClass.web.example.com is served by plug-in "other" '
        '(given by the program) and by plug-in "web" (given by the program); '
        "load only one of them"
    )


def test_an_installed_and_a_given_plugin_of_one_name_are_both_named():
    with pytest.raises(PluginError, match=r"karpenter-provider-kwok .* and given by the program"):
        load_plugins(selected=["kwok"], extra={"kwok": FakeProvider("kwok")})


class MistypedHook(FakeProvider):
    @hookimpl
    def karpenter_lunch_instances(self, requests):
        return requests


class MistypedArgument(FakeProvider):
    @hookimpl
    def karpenter_gate_registration(self, nodeclaim):
        return nodeclaim


class Unmarked(FakeProvider):
    """Neither the name nor the marker is right."""

    def karpenter_chekc(self):
        return []


class ForgottenMarker(FakeProvider):
    def karpenter_check(self):
        return []


class Unfinished(FakeProvider):
    karpenter_terminate_instances = None


class BadLimits(FakeProvider):
    def __init__(self):
        super().__init__(batch_limits={"karpenter_launch": BatchLimits()})


class PollsTooOften(FakeProvider):
    @hookimpl
    def karpenter_provider_info(self):
        periods = PollingPeriods(instances=timedelta(seconds=5))
        return replace(super().karpenter_provider_info(), polling_periods=periods)


class PollsByNumber(FakeProvider):
    @hookimpl
    def karpenter_provider_info(self):
        periods = PollingPeriods(drift=600)
        return replace(super().karpenter_provider_info(), polling_periods=periods)


class ReadsAllDay(FakeProvider):
    @hookimpl
    def karpenter_provider_info(self):
        read = ObjectRead(resource="secrets", name="token", period=timedelta(days=1))
        return replace(super().karpenter_provider_info(), reads=(read,))


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (ReadsAllDay(), ["period of the read secrets/token is 24h", "must be from 10s to 1h"]),
        (
            PollsByNumber(),
            ['plug-in "web"', "polling_periods.drift must be a timedelta, not 600"],
        ),
        (
            PollsTooOften(),
            ['plug-in "web"', "polling_periods.instances is 5s", "must be from 30s to 30m"],
        ),
        (
            MistypedHook(),
            [
                'plug-in "web"',
                'unknown hook "karpenter_lunch_instances"',
                'did you mean "karpenter_launch_instances"?',
            ],
        ),
        (
            MistypedArgument(),
            [
                'plug-in "web"',
                'karpenter_gate_registration has no argument "nodeclaim"',
                'did you mean "node_claim"?',
            ],
        ),
        (
            Unmarked(),
            ['plug-in "web"', 'karpenter_chekc is not a hook; did you mean "karpenter_check"'],
        ),
        (ForgottenMarker(), ['plug-in "web"', "karpenter_check is not marked with @hookimpl"]),
        (Unfinished(), ['plug-in "web"', "lacks karpenter_terminate_instances"]),
        (BadLimits(), ['plug-in "web"', 'unknown hook "karpenter_launch"', "did you mean"]),
        (FakeProvider(version=7), ['plug-in "web"', "version 7", "supports version 1"]),
        (FakeProvider("webb"), ['plug-in "web"', 'returns the name "webb"']),
    ],
)
def test_an_unusable_plugin_stops_the_start(plugin, words):
    with pytest.raises(PluginError) as error:
        load(web=plugin)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_plugin_that_cannot_be_imported_is_named():
    points = entry_points("broken", value="no_such_module:Plugin")
    with pytest.raises(PluginError, match=r'plug-in "broken" .* no_such_module:Plugin'):
        load_plugins(entry_points=points)


def test_a_class_is_made_into_an_object_for_each_load():
    points = entry_points("web", value="tests.provider.fakes:FakeProvider")
    first, second = (load_plugins(entry_points=points).providers["web"] for _ in range(2))
    assert isinstance(first.plugin, FakeProvider)
    assert first.plugin is not second.plugin


def test_only_selected_plugins_are_loaded():
    points = entry_points("web", "broken", value="tests.provider.fakes:FakeProvider")
    assert load_plugins(selected=["web"], entry_points=points).names == ("web",)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("cloud", ""),
        ("otel", ""),
        ("aws", r"; in a checkout of karpenter-core: pip install \./providers/aws"),
    ],
)
def test_the_error_for_a_missing_plugin_names_the_installed_ones_and_the_command(name, remedy):
    points = entry_points("web", value="tests.provider.fakes:FakeProvider")
    with pytest.raises(
        PluginError, match=rf'"{name}" is not installed \(installed: web\){remedy}$'
    ):
        load_plugins(selected=[name], entry_points=points)


class Pricing:
    @hookimpl
    def karpenter_adjust_prices(self, offerings):
        return [None] * len(offerings)


class Unreachable:
    @hookimpl
    def karpenter_list_instances(self):
        return []


def test_a_plugin_need_not_be_a_provider():
    plugins = load(web=FakeProvider(), pricing=Pricing())
    assert set(plugins.providers) == {"web"}
    assert plugins.implementers("karpenter_adjust_prices") == ("pricing",)


def test_a_provider_hook_without_a_provider_is_refused():
    with pytest.raises(PluginError, match="karpenter_list_instances but not karpenter_provider_in"):
        load(stray=Unreachable())


class WithSetting(FakeProvider):
    def __init__(self, name, model, default):
        super().__init__(name, model)
        self.spec = SettingSpec(flag="--zone", env="ZONE", default=default, help="Zone.")

    @hookimpl
    def karpenter_add_settings(self):
        return [self.spec]


@pytest.mark.parametrize("default", ["a", "b"])
def test_plugins_may_share_a_setting_each_with_its_own_default(default):
    plugins = load(
        web=WithSetting("web", WebNodeClass, "a"), data=WithSetting("data", DataNodeClass, default)
    )
    result = plugins.settings()

    assert {name: spec.default for name, (spec,) in result.items()} == {"web": "a", "data": default}


@pytest.mark.parametrize("other", [{"default": 1}, {"env": "AREA"}, {"flag": "--area"}])
def test_a_setting_declared_differently_names_both(other):
    """Of another type, or one word of the two in common."""
    data = WithSetting("data", DataNodeClass, "a")
    data.spec = replace(data.spec, **other)
    plugins = load(web=WithSetting("web", WebNodeClass, "a"), data=data)

    with pytest.raises(PluginError, match=r'"(--zone|ZONE)" is declared by plug-in "data".*"web"'):
        plugins.settings()


def test_every_mandatory_hook_is_specified():
    assert all(hasattr(FakeProvider, hook) for hook in MANDATORY_HOOKS)
