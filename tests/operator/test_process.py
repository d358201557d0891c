"""The process passes context, settings and facts to its plug-ins."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from dataclasses import replace

import pytest
import structlog

from karpenter_core.controllers.planner import InlinePlanner
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator import launcher
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.cluster_facts import DNS_SERVICE, ClusterFactsReader
from karpenter_core.operator.process import Process
from karpenter_core.operator.process_platform import ProcessPlatform
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.operator.solve_options import solve_options
from karpenter_core.provider.contract import ClusterFacts, FeatureGates
from karpenter_core.provider.host.executor import InlineExecutor, ThreadExecutor
from karpenter_core.provider.host.facade import Providers
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import ObjectObserved
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_kwok.plugin import KwokProvider
from tests.kube.scripted import ScriptedTransport


def process_with_kwok(folder, *arguments, clock=None):
    """Return a process that has not started."""
    plugins = load_plugins(extra={"kwok": KwokProvider()}, entry_points=())
    specs = [spec for specs in plugins.settings().values() for spec in specs]
    ports = ProcessPlatform(
        clock=clock or SystemClock(),
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
    """The NodeClaims decide which claim an instance belongs to."""
    process = process_with_kwok(tmp_path)
    context = process._context_for("kwok")
    claim = node_claim("web-1")

    assert await asyncio.to_thread(context.read_claims) == {}
    process.cluster_state.fold(ObjectObserved(claim))

    assert await asyncio.to_thread(context.read_claims) == {"web-1": claim}


class Refusing:
    """An API server that refuses everything but, at last, what a cluster is asked for."""

    def __init__(self):
        self.answers = {}

    async def request(self, request):
        await asyncio.sleep(0)
        return self.answers.get(request.path, ApiResponse(status=403, body=b"no"))

    async def close(self):
        pass


def test_plugins_see_cluster_facts_that_arrive_later(tmp_path):
    """A refusal at the start is not the last word, and nothing is restarted."""

    async def scenario():
        transport, facts, clock = Refusing(), ClusterFacts(), LoopClock()
        reader = ClusterFactsReader(transport, facts, clock=clock)
        await reader.read()
        ports = replace(
            process_with_kwok(tmp_path).platform,
            clock=clock,
            executor=InlineExecutor(),
            objects=transport,
            lease=transport,
            cluster=facts,
            facts_reader=reader,
        )
        plugins = load_plugins(extra={"kwok": KwokProvider()}, entry_points=())
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        process = Process(load_settings((), {}, plugin_options=specs), plugins, ports)
        stop = asyncio.Event()
        running = asyncio.ensure_future(process.run(stop))
        context = process._context_for("kwok")

        await asyncio.sleep(60)
        assert context.cluster.ip_family == ""
        body = b'{"spec": {"clusterIP": "fd00::a"}}'
        transport.answers[DNS_SERVICE] = ApiResponse(status=200, body=body)
        await asyncio.sleep(15)
        assert (context.cluster.ip_family, context.cluster.dns_ip) == ("IPv6", "fd00::a")
        stop.set()
        await running

    run_virtual(scenario())


async def test_plugins_get_the_feature_gates(tmp_path):
    """A gate that is off in the core is off in a provider."""
    settings = ("--feature-gates", "ReservedCapacity=false,NodeOverlay=true")

    context = process_with_kwok(tmp_path, *settings)._context_for("kwok")

    assert context.feature_gates == FeatureGates(reserved_capacity=False, node_overlay=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_solver_uses_reservations_as_the_gate_says(is_on):
    """The feature gate ReservedCapacity."""
    settings = load_settings(("--feature-gates", f"ReservedCapacity={str(is_on).lower()}"), {})

    assert solve_options(settings, max_instance_types=60).reserved_capacity is is_on


async def test_a_metric_reports_whether_this_process_leads(tmp_path):
    """Under the name and label of Karpenter's."""
    standby = process_with_kwok(tmp_path, "--leader-election-name=blue")
    alone = process_with_kwok(tmp_path, "--disable-leader-election")

    def leads(process, name):
        sample = "leader_election_master_status"
        return process.metrics.registry.get_sample_value(sample, {"name": name})

    assert leads(standby, "blue") == 0
    standby._elector.fence.open_until(standby.platform.clock.monotonic() + 10)
    assert leads(standby, "blue") == 1
    assert leads(alone, "karpenter-leader-election") == 1


async def test_pauses_of_the_garbage_collector_are_observed(monkeypatch, tmp_path):
    """By the process that `karpenter run` starts."""
    started = process_with_kwok(tmp_path)

    async def connect(_settings, _environment):
        return started.platform

    async def run(process, _stop):
        gc.collect()
        name, generation = "karpenter_core_gc_pause_seconds_count", {"generation": "2"}
        return int(process.metrics.registry.get_sample_value(name, generation))

    monkeypatch.setattr(launcher, "_connect", connect)
    monkeypatch.setattr(Process, "run", run)
    pauses = await launcher.run_process(
        started.settings, started._plugins, stop=asyncio.Event(), environment={}
    )

    assert pauses >= 1


@pytest.mark.parametrize(
    ("arguments", "owns_memory", "expected"),
    [
        ([], False, []),
        ([], True, ["freed memory"]),
        (["--memory-limit=1000"], False, ["memory"]),
        (["--memory-limit=1000"], True, ["freed memory", "memory"]),
    ],
)
async def test_memory_is_returned_and_a_limit_watched(tmp_path, arguments, owns_memory, expected):
    """By a process that shares its memory with no other; a limit of -1 is none."""
    process = process_with_kwok(tmp_path, *arguments)
    process.platform = replace(process.platform, owns_memory=owns_memory)

    async with asyncio.TaskGroup() as group:
        process.watch_memory(group)
        tasks = [task for task in asyncio.all_tasks() if "memory" in task.get_name()]
        for task in tasks:
            task.cancel()

    assert sorted(task.get_name() for task in tasks) == expected


async def test_settings_that_are_not_in_effect_are_logged_at_start(monkeypatch, tmp_path):
    """With the variable, the value, and what is used."""

    async def run_process(settings, plugins, **_):
        return 0

    monkeypatch.setattr(launcher, "run_process", run_process)
    file = tmp_path / "log"
    arguments = [f"--log-output-paths={file}", "--log-format=json", "--providers=kwok"]
    environment = {"KUBE_CLIENT_QPS": "0", "FEATURE_GATES": "Nonsense=true"}

    await launcher.run_from_command_line(arguments, environment)

    results = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["level"], line["setting"]) for line in results] == [
        (
            "WARN",
            'KUBE_CLIENT_QPS: must be a whole number of 1 or more, not "0"; the default 200 is used',
        ),
        (
            "WARN",
            'FEATURE_GATES: there is no gate "Nonsense"; it has no effect',
        ),
    ]
    structlog.reset_defaults()


@pytest.mark.parametrize("hanging", ["start", "stop"])
def test_a_plug_in_that_hangs_holds_up_the_end_for_a_moment_only(monkeypatch, tmp_path, hanging):
    """A pod has 30 s to end; Events and the journal are written before that."""

    async def hang(*_, **__):
        await asyncio.Event().wait()

    async def nothing(*_, **__):
        pass

    async def play():
        clock = LoopClock()
        process = process_with_kwok(tmp_path, "--disable-leader-election", clock=clock)
        stop, began = asyncio.Event(), clock.monotonic()
        clock.call_later(1, stop.set)
        code = await process.run(stop)
        return code, clock.monotonic() - began

    monkeypatch.setattr(Process, "_serve", hang)
    for name in ("start", "stop"):
        monkeypatch.setattr(Providers, name, hang if name == hanging else nothing)
    code, seconds = run_virtual(play())

    assert code == 0
    assert seconds <= 20
