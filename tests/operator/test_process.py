"""What a process hands to its plug-ins."""

from __future__ import annotations

import asyncio
import threading

import pytest

from karpenter_core.controllers.planner import InlinePlanner
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.ports import Ports
from karpenter_core.operator.process import Process
from karpenter_core.operator.settings import load_settings
from karpenter_core.operator.wiring import solve_options
from karpenter_core.provider.contract import FeatureGates
from karpenter_core.provider.executor import ThreadExecutor
from karpenter_core.provider.manager import load_plugins
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import Observed
from karpenter_core.testing.machines import node_claim
from karpenter_provider_kwok.plugin import KwokProvider
from tests.kube.scripted import ScriptedTransport


def process_with_kwok(folder, *arguments):
    """Return a process that has not begun to run."""
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
        cache_folder=folder,
        serves_http=False,
    )
    return Process(load_settings(arguments, {}, plugin_options=specs), plugins, ports)


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
    process = process_with_kwok(tmp_path)
    context = process._context_for("kwok")

    assert await asyncio.to_thread(context.read_nodes) == {}

    assert builders == [threading.get_ident()]


async def test_plugins_read_nodeclaims_from_any_thread(tmp_path):
    """What they name is the last word on whose an instance is."""
    process = process_with_kwok(tmp_path)
    context = process._context_for("kwok")
    claim = node_claim("web-1")

    assert await asyncio.to_thread(context.read_claims) == {}
    process.feed.fold(Observed(claim))

    assert await asyncio.to_thread(context.read_claims) == {"web-1": claim}


async def test_plug_ins_are_told_the_feature_gates(tmp_path):
    """What the core leaves alone, a provider leaves alone too."""
    settings = ("--feature-gates", "ReservedCapacity=false,NodeOverlay=true")

    context = process_with_kwok(tmp_path, *settings)._context_for("kwok")

    assert context.feature_gates == FeatureGates(reserved_capacity=False, node_overlay=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_solver_uses_reservations_as_the_gate_says(is_on):
    """The feature gate ReservedCapacity."""
    settings = load_settings(("--feature-gates", f"ReservedCapacity={str(is_on).lower()}"), {})

    assert solve_options(settings, max_instance_types=60).reserved_capacity is is_on
