"""What a process hands to its plug-ins."""

from __future__ import annotations

import asyncio
import threading

from karpenter_core.controllers.planner import InlinePlanner
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.ports import Ports
from karpenter_core.operator.process import Process
from karpenter_core.operator.settings import load_settings
from karpenter_core.provider.executor import ThreadExecutor
from karpenter_core.provider.manager import load_plugins
from karpenter_core.state.builder import StateBuilder
from karpenter_provider_kwok.plugin import KwokProvider
from tests.kube.scripted import ScriptedTransport


async def test_plugins_read_nodes_from_any_thread_and_the_state_stays_on_the_loop(
    tmp_path, monkeypatch
):
    """A snapshot built in a thread while something is folded in would lose half of it."""
    builders = []
    snapshot = StateBuilder.snapshot

    def watched(self):
        builders.append(threading.get_ident())
        return snapshot(self)

    monkeypatch.setattr(StateBuilder, "snapshot", watched)
    plugins = load_plugins(extra={"kwok": KwokProvider()}, entry_points=())
    specs = [spec for specs in plugins.settings().values() for spec in specs]
    ports = Ports(
        clock=SystemClock(),
        new_id=random_id,
        executor=ThreadExecutor(),
        planner=InlinePlanner(),
        background=InlinePlanner(),
        objects=ScriptedTransport(),
        lease=ScriptedTransport(),
        identity="test",
        cache_folder=tmp_path,
        serves_http=False,
    )
    process = Process(load_settings((), {}, plugin_options=specs), plugins, ports)
    context = process._context_for("kwok")

    assert await asyncio.to_thread(context.read_nodes) == {}

    assert builders == [threading.get_ident()]
