"""Runs the whole controller against the embedded cluster in virtual time.

The wiring is that of `karpenter run`, unchanged; only its platform differs: the clock is
the loop's, connections are calls, hooks and passes run inline, ids are counted. Two runs of one
scenario take the same turns, and an hour takes moments.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack, final

from prometheus_client import generate_latest

from karpenter_core.api.crd import core_models, render_crd
from karpenter_core.errors import ApiError
from karpenter_core.kube.resources import EVENTS, NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.operator.inline_platform import inline_platform
from karpenter_core.operator.process import Process
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.virtual_time import until
from karpenter_core.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import ApiRequest, ApiResponse, Transport
    from karpenter_core.kube.writer import WriteFaults
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.kubelets import KubeletTimes
    from karpenter_core.sim.scheduler import Preference
    from karpenter_core.tracing import Tracer

__all__ = ["ControllerHarness", "RunningProcess", "SeverableTransport"]

POLL_SECONDS: Final = 0.1


@cache
def _definition(model: type[KubernetesObject]) -> JsonMapping:
    """Render a kind's definition once for all clusters; callers must not change it."""
    return render_crd(model)


@final
class SeverableTransport:
    """A connection that can be cut, so that a dying process can write nothing more."""

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport
        self.is_cut = False

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Pass a request on, unless the cable is cut."""
        self._check()
        response = await self._transport.request(request)
        self._check()
        return response

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest
    ) -> AsyncGenerator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Pass a watch on, unless the cable is cut."""
        self._check()
        async with self._transport.stream(request) as opened:
            yield opened

    async def close(self) -> None:
        """Let go of the other end."""
        await self._transport.close()

    def _check(self) -> None:
        if self.is_cut:
            raise ApiError("the process is dead", status=0)


@final
class RunningProcess:
    """One controller process; `stop` ends it as SIGTERM does, `kill` as SIGKILL."""

    def __init__(self, process: Process, cables: Sequence[SeverableTransport]) -> None:
        self.process: Final = process
        self._cables = tuple(cables)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(process.run(self._stop))

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._task.done()

    async def stop(self) -> int:
        """Ask it to end, wait for that, return the exit code."""
        self._stop.set()
        return await self._task

    def cut(self) -> None:
        """Cut it off from everything and have it end, at this very moment."""
        for cable in self._cables:
            cable.is_cut = True
        self._task.cancel()

    async def kill(self) -> None:
        """End it with nothing more written: the lease is not given back either."""
        self.cut()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

    async def wait(self) -> int:
        """Wait until it ends by itself and return the exit code."""
        return await self._task

    def metric(self, line: str) -> float:
        """Return the value of a series, given as Prometheus shows it; 0 when it is not there.

        Raises:
            LookupError: there is no metric of this name, so that its series never could be there.
        """
        registry = self.process.metrics.registry
        name = line.partition("{")[0]
        # All series take a hundred times longer to write than those of one name; a collector need
        # not declare its names, though.
        text = generate_latest(registry.restricted_registry([name]))
        rows = (text or generate_latest(registry)).decode().splitlines()
        values = (row.rpartition(" ") for row in rows if not row.startswith("#"))
        value = next((float(value) for series, _, value in values if series == line), None)
        # Those of a histogram end with `_count`, `_sum` and `_bucket`, that of its metric does not.
        names = {row.split(" ")[2] for row in rows if row.startswith("# TYPE ")}
        if value is None and names.isdisjoint({name, name.rpartition("_")[0]}):
            raise LookupError(f"no metric has the name {name}")
        return value or 0.0


class ClusterOptions(TypedDict, total=False):
    """Arguments of `EmbeddedCluster`."""

    clock: Clock | None
    times: KubeletTimes | None
    preference: Preference
    history_size: int
    seed: int
    http: bool
    port: int
    kubeconfig: Path | None


@final
class ControllerHarness:
    """An embedded cluster with our CRDs, and as many controller processes as a test wants.

    `plugins` makes the plug-in objects of each process anew, by name; `arguments` are those of
    `karpenter run`. With `split`, NodePools and NodeClaims live in `cluster`, and pods and nodes in
    a `workload` cluster of their own, which knows nothing of our kinds. `facts` are what each process
    knows of the cluster, besides its name.
    """

    def __init__(
        self,
        plugins: Callable[[], Mapping[str, object]],
        *,
        folder: Path,
        arguments: Sequence[str] = (),
        split: bool = False,
        facts: ClusterFacts | None = None,
        **cluster: Unpack[ClusterOptions],
    ) -> None:
        self._facts: Final = facts or ClusterFacts()
        self.cluster: Final = EmbeddedCluster(**cluster)
        # Another seed, so that no two objects of the two clusters have the same UID.
        second: ClusterOptions = {**cluster, "seed": cluster.get("seed", 0) + 1}
        self.workload: Final = EmbeddedCluster(**second) if split else self.cluster
        self._plugins = plugins
        self._folder = folder
        self._arguments = tuple(arguments)
        self._processes: list[RunningProcess] = []
        """Processes that have not ended; a long run starts thousands."""
        self._started = 0
        self._loaded: Plugins | None = None
        """Plug-ins that no process has got yet."""

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        if self.workload is not self.cluster:
            await self.workload.__aenter__()
        models = [*core_models()]
        self._loaded = self._load()
        for provider in self._loaded.providers.values():
            models.extend(provider.info.node_classes)
        self.cluster.apply(_definition(model) for model in models)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._processes:
            if running.is_alive:
                await running.kill()
        if self.workload is not self.cluster:
            await self.workload.__aexit__(kind, error, trace)
        await self.cluster.__aexit__(kind, error, trace)

    def start(
        self,
        *arguments: str,
        name: str = "",
        faults: WriteFaults | None = None,
        clock: Clock | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> RunningProcess:
        """Start a controller process; `clock` is its own, where it is not the cluster's."""
        plugins, self._loaded = self._loaded or self._load(), None
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        settings = load_settings((*self._arguments, *arguments), {}, plugin_options=specs)
        name = name or f"controller-{self._started}"
        cables = [
            SeverableTransport(self.cluster.transport()),
            SeverableTransport(self.cluster.transport()),
        ]
        workload = None
        if self.workload is not self.cluster:
            workload = SeverableTransport(self.workload.transport())
            cables.append(workload)
        platform = inline_platform(
            name=name,
            clock=clock or self.cluster.clock,
            objects=cables[0],
            lease=cables[1],
            cache_folder=self._folder,
            cluster=replace(self._facts, name=settings.cluster_name),
            seed=self._started,
        )
        ports = replace(platform, workload=workload, tracer=tracer, faults=faults)
        running = RunningProcess(Process(settings, plugins, ports), cables)
        self._started += 1
        self._processes = [each for each in self._processes if each.is_alive]
        self._processes.append(running)
        return running

    def _load(self) -> Plugins:
        return load_plugins(extra=self._plugins(), entry_points=())

    async def settle(self, holds: Callable[[], bool], *, seconds: float = 120.0) -> None:
        """Let simulated time pass until something holds.

        Raises:
            TimeoutError: it does not in time.
        """
        if not await until(holds, every_seconds=POLL_SECONDS, within_seconds=seconds):
            message = f"did not come true within {seconds} s of simulated time"
            raise TimeoutError(message)

    def pods(self, phase: str = "") -> list[Json]:
        """Return the pods, those of one phase if given."""
        found = self.workload.list(PODS)
        return [pod for pod in found if not phase or pod["status"].get("phase") == phase]

    def nodes(self) -> list[Json]:
        """Return the Nodes."""
        return self.workload.list(NODES)

    def claims(self) -> list[Json]:
        """Return the NodeClaims."""
        return self.cluster.list(NODE_CLAIMS)

    def pool(self, name: str) -> Json:
        """Return a NodePool."""
        found = self.cluster.find(NODE_POOLS, name)
        if found is None:
            raise KeyError(name)
        return found

    def events(self, reason: str = "") -> list[Json]:
        """Return the Events, those with one reason if given."""
        found = self.cluster.list(EVENTS)
        return [event for event in found if not reason or event["reason"] == reason]
