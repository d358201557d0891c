"""Runs the process: its order of start, the election, and its end.

Plug-ins start first, since a bad setting should end the process before it has any effect. Then the
process waits until its kinds are served, starts its watches, and takes part in the election. A standby
watches too, so that it can lead at once; it writes nothing. A process that loses the lease ends with
exit code 1, as upstream does, and is restarted: its memory (open launches, nominations) belongs to a
term that is over, and the new process begins with an empty ledger instead of a stale one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import node_class_label
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer, FreshnessGuard
from karpenter_core.controllers.reconciling.passes import pass_failure_gauge
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.controllers.reconciling.tasks import PluginTasks
from karpenter_core.errors import FencedError
from karpenter_core.kube.events import EventRecorder
from karpenter_core.kube.fence import AlwaysLeaderFence, ObserverFence
from karpenter_core.kube.garbage_collector import freeze_after_sync
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.lease import LeaseElector
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.kube.resources import DEVICE_KINDS, VERTICAL_POD_AUTOSCALERS, custom_kind
from karpenter_core.kube.server_clock import ServerClock
from karpenter_core.kube.wire.codecs import (
    CAPACITY_BUFFERS,
    CAPACITY_QUOTAS,
    NODE_CLAIMS,
    NODE_OVERLAYS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
    Codecs,
)
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.kube.writer import KubeWriter, ProviderNodeWriter
from karpenter_core.operator.crd_wait import CrdWaiter
from karpenter_core.operator.decision_log import log_decision
from karpenter_core.operator.declared_reads import DeclaredReads
from karpenter_core.operator.journal_file import JournalFile
from karpenter_core.operator.kind_groups import kind_groups
from karpenter_core.operator.loop_calls import on_loop
from karpenter_core.operator.memory_limit import MemoryLimit, return_memory_regularly
from karpenter_core.operator.process_clients import ProcessClients
from karpenter_core.operator.process_gauges import show_process
from karpenter_core.operator.process_servers import make_servers, readiness_checks
from karpenter_core.operator.wiring import (
    ControllerDependencies,
    build_controllers,
    build_observers,
)
from karpenter_core.provider.contract import ProviderContext
from karpenter_core.provider.host.facade import Providers
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import InformersSynced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.notices import Notice
    from karpenter_core.controllers.reconciling.reconciler import Controller
    from karpenter_core.kube.fence import WriteFence
    from karpenter_core.kube.wire.kind_codec import InvalidObject
    from karpenter_core.operator.dashboard.process_dashboard import ProcessDashboard
    from karpenter_core.operator.dashboard_content import Role
    from karpenter_core.operator.process_platform import ProcessPlatform
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["Process"]

DRAIN_SECONDS: Final = 2.0
STOP_SECONDS: Final = 8.0
"""Time that plug-ins have to stop: a pod has 30 s, in which Events and the journal are written too."""

OK: Final = 0
FAILED: Final = 1


@final
class Process:
    """One controller process; `run` is its life."""

    def __init__(
        self,
        settings: Settings,
        plugins: Plugins,
        platform: ProcessPlatform,
        *,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.settings: Final = settings
        self.platform: Final = platform
        self.metrics: Final = Metrics(
            registry,
            node_class_labels=[node_class_label(*kind) for kind in sorted(plugins.owners)],
            now=platform.clock.monotonic,
        )
        self.clock: Final = ServerClock(platform.clock)
        """The clock of whatever compares times: that of the API server that keeps NodeClaims."""
        self.runtime: Final = self._make_runtime()
        self.runtime.passes.subscribe(pass_failure_gauge(self.metrics))
        self._plugins: Final = plugins
        self._log: FilteringBoundLogger = structlog.get_logger("operator")
        self.kube_metrics: Final = KubeMetrics(self.metrics.registry)
        self.clients: Final = ProcessClients(
            settings,
            platform,
            metrics=self.kube_metrics,
            server_clock=self.clock,
            node_class_groups=frozenset(group for group, _ in plugins.owners),
        )
        self.apis: Final = self.clients.for_objects()
        self._elector: Final = self._stand_for_election()
        self._fence: Final = self._make_fence()
        self.providers: Final = self._make_providers(plugins)
        self._journal_file: Final = self._keep_journal()
        models = self.providers.node_class_models()
        groups = kind_groups(settings)
        self.cluster_state: Final = ClusterState(
            StateBuilder(plugins.owners, overlays=KindGroup.OVERLAYS in groups), self.clock
        )
        codecs = Codecs(models.values(), groups=groups)
        self.informers: Final = self._make_informers(codecs)
        show_process(self)
        self.freshness: Final = FreshnessGuard(
            self.informers,
            metrics=self.metrics,
            node_class_groups=frozenset(group for group, _ in plugins.owners),
        )
        self.kube_writer: Final = self._make_writer(codecs)
        self.recorder: Final = EventRecorder(
            self.clients.for_events(), clock=self.clock, metrics=self.kube_metrics
        )
        self._crds: Final = CrdWaiter(
            self.apis,
            (
                NODE_POOLS,
                NODE_CLAIMS,
                *((NODE_OVERLAYS,) if KindGroup.OVERLAYS in groups else ()),
                *((CAPACITY_BUFFERS,) if KindGroup.BUFFERS in groups else ()),
                *(custom_kind(model.resource) for model in models.values()),
            ),
            device_kinds=DEVICE_KINDS if KindGroup.DEVICES in groups else (),
            clock=platform.clock,
        )
        self._tasks: list[PluginTasks] = []
        self._reads: Final = DeclaredReads(
            platform.workload or platform.objects,
            [read for provider in plugins.providers.values() for read in provider.info.reads],
            clock=platform.clock,
        )
        self.dashboard: Final = self._make_dashboard()
        self.servers: Final = make_servers(
            settings,
            platform,
            registry=self.metrics.registry,
            runtime=self.runtime,
            checks=readiness_checks(
                informers=self.informers,
                crds=self._crds,
                providers=self.providers,
                runtime=self.runtime,
            ),
            dashboard=None if self.dashboard is None else self.dashboard.feed,
        )

    def _make_fence(self) -> WriteFence:
        if self.settings.observe:
            return ObserverFence()
        return AlwaysLeaderFence() if self._elector is None else self._elector.fence

    def _make_runtime(self) -> ControllerRuntime:
        platform = self.platform
        return ControllerRuntime(
            clock=self.clock,
            new_id=platform.new_id,
            metrics=self.metrics,
            tracer=platform.tracer,
            cpu_requests=self.settings.cpu_requests,
            jitter=platform.jitter or Random().random,  # noqa: S311 - spreads retries only
        )

    def _make_providers(self, plugins: Plugins) -> Providers:
        return Providers(
            plugins,
            executor=self.platform.executor,
            clock=self.clock,
            fence=self._fence,
            registry=self.metrics.registry,
            observing=self.settings.observe,
            tracer=self.platform.tracer,
        )

    def _make_informers(self, codecs: Codecs) -> Informers:
        return Informers(
            self.apis,
            codecs,
            clock=self.platform.clock,
            sink=self.cluster_state.fold,
            metrics=self.kube_metrics,
            on_invalid=self._log_invalid,
            jitter=self.platform.jitter,
            times=self.platform.contact,
            optional=(CAPACITY_QUOTAS, PROVISIONING_REQUESTS, VERTICAL_POD_AUTOSCALERS),
        )

    def _make_writer(self, codecs: Codecs) -> KubeWriter:
        return KubeWriter(
            self.apis,
            codecs,
            clock=self.platform.clock,
            fence=self._fence,
            sink=self.cluster_state.fold,
            on_written=self.informers.note_written,
            metrics=self.kube_metrics,
            faults=self.platform.faults,
            jitter=self.platform.jitter,
        )

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        if self.settings.observe:
            return False
        return self._elector is None or self._elector.fence.seconds_left > 0

    async def run(self, stop: asyncio.Event) -> int:
        """Live until asked to stop or unable to go on; return the exit code.

        Raises:
            KarpenterError: it cannot start with these settings or plug-ins.
        """
        loop = asyncio.get_running_loop()
        self.kube_metrics.tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
        if self.platform.serves_http:
            await self.servers.start()
        if self._journal_file is not None:
            self._journal_file.start()
        showing = None if self.dashboard is None else asyncio.create_task(self.dashboard.run())
        recording = asyncio.create_task(self.recorder.run())
        reading = self._start_reading_facts()
        await self._reads.fetch()
        rereading = asyncio.create_task(self._reads.run())
        try:
            if not await self._start_providers(stop):
                return OK
            return await self._run_until_stopped(stop)
        finally:
            rereading.cancel()
            if showing is not None:
                showing.cancel()
            if reading is not None:
                reading.cancel()
            await self._end_soon(asyncio.create_task(self.providers.stop()), STOP_SECONDS)
            await self._end_soon(asyncio.create_task(self.recorder.drain()), DRAIN_SECONDS)
            await self._end_soon(recording, 0)
            if self._journal_file is not None:
                await asyncio.to_thread(self._journal_file.close)
            await self._disconnect()
            await self.servers.stop()

    async def _start_providers(self, stop: asyncio.Event) -> bool:
        """Start the plug-ins; return False if the process is asked to stop meanwhile."""
        starting = asyncio.create_task(self.providers.start(self._context_for))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                return starting.result() is None
        finally:
            stopping.cancel()
            starting.cancel()
        await self._end_soon(starting, STOP_SECONDS)
        return False

    def _start_reading_facts(self) -> asyncio.Task[None] | None:
        """Keep reading facts that are not known yet, also as a standby."""
        reader = self.platform.facts_reader
        return None if reader is None else asyncio.create_task(reader.run())

    async def _run_until_stopped(self, stop: asyncio.Event) -> int:
        serving = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                self._log.info("stopping")
                return OK
            serving.result()
        except* FencedError as lost:
            self._log.error("lost the leader lease, ending", error=str(lost.exceptions[0]))
        finally:
            stopping.cancel()
            serving.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await serving
        return FAILED

    async def _serve(self) -> None:
        await self._crds.run()
        tasks = self.providers.tasks()
        everywhere = PluginTasks(
            (task for task in tasks if not task.leader_only), runtime=self.runtime, name="tasks"
        )
        leading = PluginTasks(
            (task for task in tasks if task.leader_only), runtime=self.runtime, name="leader-tasks"
        )
        self._tasks = [everywhere, leading]
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.run())
            group.create_task(self._note_sync())
            self.watch_memory(group)
            group.create_task(everywhere.run())
            if self.settings.observe:
                group.create_task(self._observe())
                return
            work = self._leader_work(leading)
            if self._elector is None:
                group.create_task(_run(work))
            else:
                group.create_task(self._elector.lead(work))

    def watch_memory(self, group: asyncio.TaskGroup) -> None:
        """Start to return freed memory, and the watch over memory if there is a limit."""
        if self.platform.owns_memory:
            group.create_task(return_memory_regularly(self.platform.clock), name="freed memory")
        if self.settings.memory_limit > 0:
            limit = MemoryLimit(self.settings.memory_limit, clock=self.platform.clock)
            group.create_task(limit.run(), name="memory")

    async def _note_sync(self) -> None:
        await self.informers.wait_synced()
        self.cluster_state.fold(InformersSynced())
        snapshot = self.cluster_state.snapshot()
        if self.platform.owns_memory:
            freeze_after_sync()
        self._log.info("watching", nodes=len(snapshot.nodes), pods=len(snapshot.pods))

    def _leader_work(self, tasks: PluginTasks) -> Callable[[], Awaitable[None]]:
        async def lead() -> None:
            controllers: list[Controller] = [*build_controllers(self._controller_parts()), tasks]
            self._log.info("starting controllers", controllers=[item.name for item in controllers])
            async with asyncio.TaskGroup() as group:
                for controller in controllers:
                    group.create_task(controller.run(), name=controller.name)

        return lead

    async def _observe(self) -> None:
        """Run the controllers that only read."""
        controllers = build_observers(self._controller_parts())
        self._log.info("observing", controllers=[item.name for item in controllers])
        async with asyncio.TaskGroup() as group:
            for controller in controllers:
                group.create_task(controller.run(), name=controller.name)

    def _controller_parts(self) -> ControllerDependencies:
        dashboard = self.dashboard
        return self._parts_with(self.recorder.publish if dashboard is None else dashboard.publish)

    def _parts_with(self, publish: Callable[[Notice], None]) -> ControllerDependencies:
        return ControllerDependencies(
            apis=self.apis,
            settings=self.settings,
            platform=self.platform,
            runtime=self.runtime,
            providers=self.providers,
            cluster_state=self.cluster_state,
            informers=self.informers,
            freshness=self.freshness,
            kube_writer=self.kube_writer,
            publish=publish,
        )

    def _stand_for_election(self) -> LeaseElector | None:
        if self.settings.disable_leader_election or self.settings.observe:
            return None
        return LeaseElector(
            self.clients.for_lease(),
            clock=self.platform.clock,
            namespace=self.settings.leader_election_namespace or self.platform.namespace,
            identity=self.platform.identity,
            name=self.settings.leader_election_name,
            times=self.platform.election,
            labels=self.settings.leader_election_labels,
            jitter=self.platform.jitter,
            wait_until_fit=self._wait_until_fresh,
            on_renewed=self.kube_metrics.lease_renewal_interval.observe,
        )

    async def _wait_until_fresh(self) -> None:
        """Wait until the state is recent enough to act on."""
        await self.freshness.wait_until_fresh(FreshnessConsumer.LEADERSHIP)

    def _context_for(self, plugin: str) -> ProviderContext:
        loop = asyncio.get_running_loop()
        specs = self._plugins.settings().get(plugin, ())
        return ProviderContext(
            settings=self.settings.of_plugin(specs),
            clock=self.clock,
            cache_folder=self.platform.cache_folder,
            metrics=self.metrics.registry,
            cluster=self.platform.cluster,
            nodes=ProviderNodeWriter(self.kube_writer),
            read_nodes=on_loop(lambda: self.cluster_state.snapshot().nodes),
            read_claims=on_loop(lambda: self.cluster_state.snapshot().node_claims),
            wake=lambda task: loop.call_soon_threadsafe(self._wake_task, plugin, task) and None,
            read_objects=self._reads.objects,
            feature_gates=self.settings.feature_gates,
            fence=self._fence,
            observing=self.settings.observe,
        )

    def _wake_task(self, plugin: str, task: str) -> None:
        for tasks in self._tasks:
            tasks.wake(plugin, task)

    def _keep_journal(self) -> JournalFile | None:
        """Count, log and show decisions, and write them to a file if one is asked for."""
        journal, metrics = self.runtime.journal, self.metrics
        journal.add_sink(log_decision)
        journal.add_sink(lambda item: metrics.decisions.labels(item.kind, item.method).inc())
        journal.add_observer(self.providers.observe_decision)
        if not self.settings.decision_journal:
            return None
        file = JournalFile(
            Path(self.settings.decision_journal),
            max_bytes=self.settings.decision_journal_max_bytes,
            lost=metrics.decision_journal_lost,
        )
        journal.add_sink(file.write)
        return file

    def _make_dashboard(self) -> ProcessDashboard | None:
        if not self.settings.dashboard_port or not self.platform.serves_http:
            return None
        from karpenter_core.operator.dashboard.process_dashboard import ProcessDashboard

        return ProcessDashboard(
            self._parts_with(self.recorder.publish),
            role=self._role,
            leader=lambda: "" if self._elector is None else self._elector.holder,
            problems=lambda: tuple(
                f"{name}: {why}" for name, why in self.servers.failures().items()
            ),
            publish=self.recorder.publish,
        )

    def _role(self) -> Role:
        from karpenter_core.operator.dashboard_content import Role

        if self.settings.observe:
            return Role.OBSERVER
        return Role.LEADER if self.is_leading else Role.STANDBY

    def _log_invalid(self, invalid: InvalidObject) -> None:
        self._log.error("invalid object is ignored", error=str(invalid))

    async def _end_soon(self, task: asyncio.Task[None], seconds: float) -> None:
        """Give a task a moment to end, then cancel it."""
        sleeping = asyncio.create_task(_sleep(self.platform.clock.sleep, seconds))
        await asyncio.wait({task, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        for each in (task, sleeping):
            each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await each

    async def _disconnect(self) -> None:
        self.platform.planner.close()
        self.platform.background.close()
        self.platform.executor.close()
        transports = {self.platform.objects, self.platform.lease, self.platform.workload} - {None}
        for transport in transports:
            if transport is not None:
                await transport.close()


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _sleep(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await sleep(seconds)
