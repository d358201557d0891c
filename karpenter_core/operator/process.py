"""The process: what `karpenter run` starts, in which order, and how it ends.

Plug-ins start first, since a bad setting should end the process before it has done anything. Then
it waits for its kinds to be served, watches, and stands for election. A standby watches too, so
that it is warm; it writes nothing. Whoever loses the lease ends with exit code 1, as upstream does,
and is started again: what it remembers (open launches, nominations) belongs to a term that is over,
and a new process begins with an empty ledger instead of a stale one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import node_class_label
from karpenter_core.controllers.feed import Feed
from karpenter_core.controllers.freshness import Consumer, Freshness
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.controllers.passes import gauge_setter
from karpenter_core.controllers.reconciler import Runtime
from karpenter_core.controllers.tasks import PluginTasks
from karpenter_core.errors import FencedError
from karpenter_core.kube.api import Apis, KubeApi
from karpenter_core.kube.events import EVENT_BURST, EVENT_QPS, Recorder
from karpenter_core.kube.fence import AlwaysLeader
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.lease import LeaseElector
from karpenter_core.kube.limits import TokenBucket
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.kube.resources import custom
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS, Codecs
from karpenter_core.kube.writer import ProviderNodeWriter, Writer
from karpenter_core.operator.crd_wait import CrdWait
from karpenter_core.operator.journal_file import JournalFile
from karpenter_core.operator.journal_page import PATH, decisions_page
from karpenter_core.operator.loop_calls import on_loop
from karpenter_core.operator.memory_limit import MemoryLimit
from karpenter_core.operator.servers import Check, Servers
from karpenter_core.operator.wiring import ControllerParts, build_controllers
from karpenter_core.provider.contract import ProviderContext
from karpenter_core.provider.host.facade import Providers
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import Synced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.controllers.reconciler import Controller
    from karpenter_core.kube.transport import Transport
    from karpenter_core.kube.wire.codecs import InvalidObject
    from karpenter_core.operator.ports import Ports
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["Process"]

OVERDUE_CALLS: Final = 3
"""So many calls of plug-ins that never came back make the process unready."""
DRAIN_SECONDS: Final = 2.0

OK: Final = 0
FAILED: Final = 1


@final
class Process:
    """One controller process; `run` is its life."""

    def __init__(
        self,
        settings: Settings,
        plugins: Plugins,
        ports: Ports,
        *,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.settings: Final = settings
        self.ports: Final = ports
        self.metrics: Final = Metrics(
            registry,
            node_class_labels=[node_class_label(*kind) for kind in sorted(plugins.owners)],
            now=ports.clock.monotonic,
        )
        self.runtime: Final = Runtime(
            clock=ports.clock,
            new_id=ports.new_id,
            metrics=self.metrics,
            cpu_requests=settings.cpu_requests,
            jitter=ports.jitter or Random().random,  # noqa: S311 - spreads retries only
        )
        self.runtime.passes.subscribe(gauge_setter(self.metrics))
        self._plugins: Final = plugins
        self._log: FilteringBoundLogger = structlog.get_logger("operator")
        self.kube_metrics: Final = KubeMetrics(self.metrics.registry)
        self.apis: Final = self._connect()
        self._elector: Final = self._stand_for_election()
        fence = AlwaysLeader() if self._elector is None else self._elector.fence
        self._fence: Final = fence
        self.kube_metrics.leader.labels(settings.leader_election_name).set_function(
            lambda: float(self.is_leading)
        )
        self.providers: Final = Providers(
            plugins,
            executor=ports.executor,
            clock=ports.clock,
            fence=fence,
            registry=self.metrics.registry,
        )
        self._journal_file: Final = self._keep_journal()
        models = self.providers.node_class_models()
        self.feed: Final = Feed(StateBuilder(plugins.owners), ports.clock)
        codecs = Codecs(models.values(), with_selectors=bool(settings.scheduler_config))
        self.informers: Final = Informers(
            self.apis,
            codecs,
            clock=ports.clock,
            sink=self.feed.fold,
            metrics=self.kube_metrics,
            on_invalid=self._log_invalid,
            jitter=ports.jitter,
            times=ports.contact,
        )
        self.freshness: Final = Freshness(
            self.informers,
            metrics=self.metrics,
            node_class_groups=frozenset(group for group, _ in plugins.owners),
        )
        self.writer: Final = Writer(
            self.apis,
            codecs,
            clock=ports.clock,
            fence=fence,
            sink=self.feed.fold,
            on_written=self.informers.note_written,
            metrics=self.kube_metrics,
            faults=ports.faults,
            jitter=ports.jitter,
        )
        self.recorder: Final = Recorder(
            self._apis_for_events(), clock=ports.clock, metrics=self.kube_metrics
        )
        self._crds: Final = CrdWait(
            self.apis,
            (NODE_POOLS, NODE_CLAIMS, *(custom(model.resource) for model in models.values())),
            clock=ports.clock,
        )
        self._tasks: list[PluginTasks] = []
        self.servers: Final = self._make_servers()

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self._elector is None or self._elector.fence.seconds_left > 0

    async def run(self, stop: asyncio.Event) -> int:
        """Live until asked to stop or unable to go on; return the exit code.

        Raises:
            KarpenterError: it cannot start with these settings or plug-ins.
        """
        if self.ports.serves_http:
            await self.servers.start()
        if self._journal_file is not None:
            self._journal_file.start()
        recording = asyncio.create_task(self.recorder.run())
        reading = self._start_reading_facts()
        try:
            await self.providers.start(self._context_for)
            return await self._until_stopped(stop)
        finally:
            if reading is not None:
                reading.cancel()
            await self.providers.stop()
            await self._end_recording(recording)
            if self._journal_file is not None:
                await asyncio.to_thread(self._journal_file.close)
            await self._disconnect()
            await self.servers.stop()

    def _start_reading_facts(self) -> asyncio.Task[None] | None:
        """Go on asking for what the cluster has not told yet, also as a standby."""
        reader = self.ports.facts_reader
        return None if reader is None else asyncio.create_task(reader.run())

    async def _until_stopped(self, stop: asyncio.Event) -> int:
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
            work = self._leader_work(leading)
            if self._elector is None:
                group.create_task(_run(work))
            else:
                group.create_task(self._elector.lead(work))

    def watch_memory(self, group: asyncio.TaskGroup) -> None:
        """Start the watch over memory, if there is a limit."""
        if self.settings.memory_limit > 0:
            limit = MemoryLimit(self.settings.memory_limit, clock=self.ports.clock)
            group.create_task(limit.run(), name="memory")

    async def _note_sync(self) -> None:
        await self.informers.wait_synced()
        self.feed.fold(Synced())
        snapshot = self.feed.snapshot()
        self._log.info("watching", nodes=len(snapshot.nodes), pods=len(snapshot.pods))

    def _leader_work(self, tasks: PluginTasks) -> Callable[[], Awaitable[None]]:
        async def lead() -> None:
            controllers: list[Controller] = [*build_controllers(self._controller_parts()), tasks]
            self._log.info("starting controllers", controllers=[item.name for item in controllers])
            async with asyncio.TaskGroup() as group:
                for controller in controllers:
                    group.create_task(controller.run(), name=controller.name)

        return lead

    def _controller_parts(self) -> ControllerParts:
        return ControllerParts(
            settings=self.settings,
            ports=self.ports,
            runtime=self.runtime,
            providers=self.providers,
            feed=self.feed,
            informers=self.informers,
            freshness=self.freshness,
            writer=self.writer,
            publish=self.recorder.publish,
        )

    def _connect(self) -> Apis:
        rate, burst = self.settings.kube_client_qps, self.settings.kube_client_burst
        return self._apis_with(rate=float(rate), burst=burst)

    def _apis_for_events(self) -> Apis:
        return self._apis_with(rate=EVENT_QPS, burst=EVENT_BURST)

    def _apis_with(self, *, rate: float, burst: int) -> Apis:
        """Return clients of both clusters that may send so many requests a second, each."""
        clock = self.ports.clock

        def api(transport: Transport) -> KubeApi:
            limiter = TokenBucket(clock, rate=rate, burst=burst)
            return KubeApi(transport, clock=clock, limiter=limiter, metrics=self.kube_metrics)

        workload = None if self.ports.workload is None else api(self.ports.workload)
        groups = frozenset(group for group, _ in self._plugins.owners)
        return Apis(api(self.ports.objects), workload, node_class_groups=groups)

    def _stand_for_election(self) -> LeaseElector | None:
        if self.settings.disable_leader_election:
            return None
        return LeaseElector(
            KubeApi(self.ports.lease, clock=self.ports.clock, metrics=self.kube_metrics),
            clock=self.ports.clock,
            namespace=self.settings.leader_election_namespace or self.ports.namespace,
            identity=self.ports.identity,
            name=self.settings.leader_election_name,
            times=self.ports.election,
            labels=self.settings.leader_election_labels,
            jitter=self.ports.jitter,
            fit=self._fit_to_lead,
        )

    async def _fit_to_lead(self) -> None:
        """Wait until the state is recent enough to act on."""
        await self.freshness.wait(Consumer.LEADERSHIP)

    def _context_for(self, plugin: str) -> ProviderContext:
        loop = asyncio.get_running_loop()
        specs = self._plugins.settings().get(plugin, ())
        return ProviderContext(
            settings=self.settings.of_plugin(specs),
            clock=self.ports.clock,
            cache_folder=self.ports.cache_folder,
            metrics=self.metrics.registry,
            cluster=self.ports.cluster,
            nodes=ProviderNodeWriter(self.writer),
            read_nodes=on_loop(lambda: self.feed.snapshot().nodes),
            read_claims=on_loop(lambda: self.feed.snapshot().node_claims),
            wake=lambda task: loop.call_soon_threadsafe(self._wake_task, plugin, task) and None,
            feature_gates=self.settings.feature_gates,
            fence=self._fence,
        )

    def _wake_task(self, plugin: str, task: str) -> None:
        for tasks in self._tasks:
            tasks.wake(plugin, task)

    def _keep_journal(self) -> JournalFile | None:
        """Count and show decisions, and write them to a file if one is asked for."""
        journal, metrics = self.runtime.journal, self.metrics
        journal.keep(lambda item: metrics.decisions.labels(item.kind, item.method).inc())
        journal.observe(self.providers.observe_decision)
        if not self.settings.decision_journal:
            return None
        file = JournalFile(
            Path(self.settings.decision_journal),
            max_bytes=self.settings.decision_journal_max_bytes,
            lost=metrics.decision_journal_lost,
        )
        journal.keep(file.keep)
        return file

    def _make_servers(self) -> Servers:
        from karpenter_core.operator.profiling import profiling_routes

        return Servers(
            registry=self.metrics.registry,
            checks=(
                Check(name="manager", failure=self._unsynced),
                Check(name="freshness", failure=self._stale),
                Check(name="crd", failure=lambda: self._crds.problem),
                Check(name="provider", failure=self._stuck),
                Check(name="passes", failure=lambda: self.runtime.passes.problem),
            ),
            address=self.settings.bind_address,
            metrics_port=self.settings.metrics_port,
            probe_port=self.settings.health_probe_port,
            extra_routes=profiling_routes() if self.settings.enable_profiling else None,
            json_routes={PATH: partial(decisions_page, self.runtime.journal)},
        )

    def _unsynced(self) -> str | None:
        waiting = [kind.plural for kind in self.informers.unsynced]
        return f"not listed yet: {', '.join(waiting)}" if waiting else None

    def _stale(self) -> str | None:
        stale = [each for each in self.informers.stale() if each.seconds is not None]
        return f"not fresh: {', '.join(map(str, stale))}" if stale else None

    def _stuck(self) -> str | None:
        overdue = self.providers.overdue_calls()
        return (
            f"{overdue} calls of providers do not come back" if overdue >= OVERDUE_CALLS else None
        )

    def _log_invalid(self, invalid: InvalidObject) -> None:
        self._log.error("object cannot be read and is left out", error=str(invalid))

    async def _end_recording(self, recording: asyncio.Task[None]) -> None:
        """Give Events that are queued a moment, then stop."""
        draining = asyncio.create_task(self.recorder.drain())
        sleeping = asyncio.create_task(_sleep(self.ports.clock.sleep, DRAIN_SECONDS))
        await asyncio.wait({draining, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, sleeping, recording):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def _disconnect(self) -> None:
        self.ports.planner.close()
        self.ports.background.close()
        self.ports.executor.close()
        transports = {self.ports.objects, self.ports.lease, self.ports.workload} - {None}
        for transport in transports:
            if transport is not None:
                await transport.close()


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _sleep(sleep: Callable[[float], Awaitable[None]], seconds: float) -> None:
    await sleep(seconds)
