"""A third party's provider beside the shipped one, each found by its entry point."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.errors import PluginError
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.testing.provider_world import ProviderWorld

EXAMPLE = Path(__file__).parents[2] / "examples" / "provider_minimal"


@pytest.fixture
def points(monkeypatch):
    """The entry points there would be if the example were installed."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["karpenter"]
    yield [
        *entry_points(group="karpenter", name="kwok"),
        *(EntryPoint(name, value, "karpenter") for name, value in declared.items()),
    ]
    sys.modules.pop("karpenter_provider_minimal", None)


async def test_each_serves_its_own_claims(points, tmp_path):
    loaded = load_plugins(entry_points=points)
    plugins = {name: provider.plugin for name, provider in loaded.providers.items()}
    async with ProviderWorld(plugins=plugins, cache_folder=tmp_path) as world:
        models = {info.name: info.node_classes[0] for info in world.providers.infos().values()}
        assert set(models) == {"kwok", "minimal"}
        requests = [
            await world.request(name, model(metadata=ObjectMeta(name="default", uid=name)))
            for name, model in models.items()
        ]
        outcomes = await asyncio.gather(*(world.providers.launch(r) for r in requests))
        await world.settle()
        assert {o.provider_id for o in outcomes} == {"kwok://kwok", "minimal://minimal"}
        for name in models:
            (instance,) = (await world.providers.list_instances(name)).instances
            assert instance.token == f"uid-of-{name}"
        assert set(world.nodes.nodes) == {"kwok", "minimal"}


def test_a_second_copy_of_a_provider_stops_the_start(points):
    copies = [
        *points,
        EntryPoint("second", "tests.provider.test_two_providers:SecondKwok", "karpenter"),
    ]
    with pytest.raises(PluginError) as error:
        load_plugins(entry_points=copies)
    for words in ('"kwok" (karpenter-provider-kwok ', '"second" (', "KWOKNodeClass"):
        assert words in str(error.value)


def __getattr__(name):
    """Make the copy when it is asked for, so that nothing of kwok is imported before."""
    if name != "SecondKwok":
        raise AttributeError(name)
    from dataclasses import replace

    from karpenter_core.provider.markers import hookimpl
    from karpenter_provider_kwok.plugin import KwokProvider

    class SecondKwok:
        def __init__(self):
            self._kwok = KwokProvider()
            for hook in dir(KwokProvider):
                if hook.startswith("karpenter_") and hook != "karpenter_provider_info":
                    setattr(self, hook, getattr(self._kwok, hook))

        @hookimpl
        def karpenter_provider_info(self):
            return replace(self._kwok.karpenter_provider_info(), name="second")

    return SecondKwok
