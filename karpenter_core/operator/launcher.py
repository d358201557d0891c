"""Builds a process from a command line: plug-ins, settings, logs, signals."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

from karpenter_core import __version__
from karpenter_core.errors import SettingsError
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.cluster_facts import ClusterFactsReader
from karpenter_core.operator.logs import commit, configure_logs
from karpenter_core.operator.process import Process
from karpenter_core.operator.process_platform import ProcessPlatform
from karpenter_core.operator.settings import Settings
from karpenter_core.operator.settings_loader import load_settings, selected_plugins
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.host.manager import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.kube.contact import ContactTimes
    from karpenter_core.operator.dashboard_content import DashboardContent
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.tracing import Tracer

__all__ = [
    "load_process",
    "own_namespace",
    "run_from_command_line",
    "run_process",
    "stop_on_signals",
]

DEFAULT_CACHE: Final = "~/.cache/karpenter"
DEFAULT_NAMESPACE: Final = "kube-system"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def run_from_command_line(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    contact: ContactTimes | None = None,
    dashboard: DashboardContent | None = None,
) -> int:
    """Run the controller with the given flags and environment; return the exit code.

    `dashboard` makes the contents of the dashboard, which `--dashboard-port` needs. `contact` says how long kinds may be silent; tests that wait for it give less.

    Raises:
        KarpenterError: it cannot start like this.
    """
    plugins, settings = load_process(arguments, environment)
    close_logs = configure_logs(settings)
    log = structlog.get_logger("operator")
    for warning in settings.warnings:
        log.warning("setting is not used as given", setting=warning)
    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        return await run_process(
            settings,
            plugins,
            stop=stop,
            environment=environment,
            contact=contact,
            dashboard=dashboard,
        )
    finally:
        close_logs()


def load_process(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[Plugins, Settings]:
    """Load plug-ins and read settings, those of the plug-ins among them.

    Raises:
        KarpenterError: a plug-in or a setting cannot be used.
    """
    plugins = load_plugins(selected=selected_plugins(arguments, environment))
    specs = [spec for specs in plugins.settings().values() for spec in specs]
    return plugins, load_settings(arguments, environment, plugin_options=specs)


async def run_process(
    settings: Settings,
    plugins: Plugins,
    *,
    stop: asyncio.Event,
    environment: Mapping[str, str],
    contact: ContactTimes | None = None,
    dashboard: DashboardContent | None = None,
) -> int:
    """Connect, run until `stop` is set, and return the exit code."""
    from karpenter_core.kube.garbage_collector import tune_gc

    if settings.enable_profiling:
        from karpenter_core.operator.profiling import start_profiling

        start_profiling()
    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    tracing = _start_tracing(settings)
    ports = replace(await _connect(settings, environment), contact=contact, dashboard=dashboard)
    if tracing is not None:
        ports = replace(ports, tracer=tracing[0])
    process = Process(settings, plugins, ports, registry=registry)
    _describe(process)
    undo = tune_gc(clock=process.platform.clock, metrics=process.kube_metrics)
    try:
        return await process.run(stop)
    finally:
        undo()
        if tracing is not None:
            await asyncio.to_thread(tracing[1])


def _start_tracing(settings: Settings) -> tuple[Tracer, Callable[[], None]] | None:
    if not settings.otlp_traces_endpoint:
        return None
    from karpenter_core.operator.open_telemetry import start_tracing

    return start_tracing(settings)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set the event on SIGTERM and SIGINT; a second SIGINT ends the process at once."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if stop.is_set():
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)


async def _connect(settings: Settings, environment: Mapping[str, str]) -> ProcessPlatform:
    from karpenter_core.controllers.planner import ThreadPlanner
    from karpenter_core.kube.client import connect
    from karpenter_core.kube.lease import default_identity
    from karpenter_core.provider.host.executor import ThreadExecutor

    clock = SystemClock()
    kubeconfig, context = settings.kubeconfig or None, settings.context or None
    objects = await connect(kubeconfig=kubeconfig, context=context, clock=clock)
    if settings.leader_election_kubeconfig:
        lease = await connect(kubeconfig=settings.leader_election_kubeconfig, clock=clock)
    else:
        lease = await connect(kubeconfig=kubeconfig, context=context, clock=clock)
    workload = None
    if settings.workload_kubeconfig:
        workload = await connect(kubeconfig=settings.workload_kubeconfig, clock=clock)
    nodes = workload or objects
    facts = ClusterFacts(name=settings.cluster_name, endpoint=nodes.host, ca_bundle=nodes.ca_pem)
    reader = ClusterFactsReader(nodes, facts, clock=clock)
    await reader.read()
    return ProcessPlatform(
        clock=clock,
        new_id=random_id,
        executor=ThreadExecutor(),
        planner=ThreadPlanner(clock),
        background=ThreadPlanner(clock, name="disruption"),
        objects=objects,
        lease=lease,
        workload=workload,
        identity=default_identity(environment.get("POD_NAME", "")),
        namespace=own_namespace(environment),
        cache_folder=_cache_folder(settings),
        cluster=facts,
        facts_reader=reader,
        owns_memory=True,
    )


def _cache_folder(settings: Settings) -> Path:
    folder = Path(settings.cache_folder or DEFAULT_CACHE)
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:
        message = f"cache-folder: cannot make {folder}: the home folder is not known"
        raise SettingsError(message) from error
    except OSError as error:
        message = f"cache-folder: cannot make {folder}: {error.strerror}"
        raise SettingsError(message) from error
    return folder


def own_namespace(environment: Mapping[str, str]) -> str:
    """Return the namespace that the process runs in, where its lease is kept."""
    if namespace := environment.get("SYSTEM_NAMESPACE", ""):
        return namespace
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _describe(process: Process) -> None:
    import platform

    process.metrics.build_info.labels(
        version=__version__,
        goversion=f"python{platform.python_version()}",
        goarch=platform.machine(),
        commit=commit(),
    ).set(1)
    structlog.get_logger("operator").info(
        "starting",
        version=__version__,
        providers=list(process.providers.names),
        cluster=process.platform.cluster.endpoint,
        kubernetes=process.platform.cluster.version,
    )
