"""Starts the embedded cluster: API server, controllers and nodes together."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from karpenter_core.errors import BadInputError
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.budgets import DisruptionBudgetController
from karpenter_core.sim.direct import DirectTransport
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.garbage_collection import GarbageCollector, PodCollector
from karpenter_core.sim.http_server import ApiHttpServer, write_kubeconfig
from karpenter_core.sim.kubelets import Kubelets
from karpenter_core.sim.scheduler import Scheduler
from karpenter_core.sim.virtual_time import LoopClock
from karpenter_core.sim.workloads import (
    DaemonSetController,
    DeploymentController,
    ReplicaSetController,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.kinds import ServedKind
    from karpenter_core.sim.kubelets import KubeletTimes
    from karpenter_core.sim.scheduler import Preference
    from karpenter_core.sim.simulated_controller import SimulatedController

__all__ = ["EmbeddedCluster"]

_POD_QUARANTINE_SECONDS: Final = 5.0
"""The time for which pods outlive their node; upstream waits 40 s, which no scenario is about."""


class EmbeddedCluster:
    """A cluster in this process: `async with EmbeddedCluster() as cluster`.

    Works on any loop, virtual or real. With `http=True` it also listens on the loopback interface
    (real time only) and writes a kubeconfig.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        times: KubeletTimes | None = None,
        preference: Preference = "least-allocated",
        history_size: int = 20_000,
        seed: int = 0,
        http: bool = False,
        port: int = 0,
        kubeconfig: Path | None = None,
    ) -> None:
        self.clock: Final = clock or LoopClock()
        self.server: Final = ApiServer(self.clock, history_size=history_size, seed=seed)
        self.frontend: Final = ServerFrontend(self.server)
        registry = self.server.registry
        self.kubelets: Final = Kubelets(registry, self.clock, times=times)
        self.scheduler: Final = Scheduler(registry, self.clock, preference=preference)
        self._actors: Final[list[SimulatedController]] = [
            GarbageCollector(registry, self.clock),
            PodCollector(registry, self.clock, quarantine_seconds=_POD_QUARANTINE_SECONDS),
            DeploymentController(registry, self.clock),
            ReplicaSetController(registry, self.clock),
            DaemonSetController(registry, self.clock),
            DisruptionBudgetController(registry, self.clock),
            self.scheduler,
            self.kubelets,
        ]
        self._http: Final = ApiHttpServer(self.frontend) if http else None
        self._port = port
        self._kubeconfig = kubeconfig
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._tasks = asyncio.TaskGroup()
        self._running: Final = list[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for actor in self._actors:
            name = type(actor).__name__
            self._running.append(self._tasks.create_task(actor.run(), name=name))
        if self._http is not None:
            await self._listen(self._http)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.frontend.stop()
        for task in self._running:
            task.cancel()
        if self._http is not None:
            await self._http.stop()
        if self._folder is not None:
            self._folder.cleanup()
        # The body's error goes on as it is; only an actor's comes out of the group.
        await self._tasks.__aexit__(None, None, None)

    async def _listen(self, http_server: ApiHttpServer) -> None:
        await http_server.start(self._port)
        if self._kubeconfig is None:
            self._folder = tempfile.TemporaryDirectory(prefix="karpenter-embedded-")
            self._kubeconfig = Path(self._folder.name) / "kubeconfig"
        write_kubeconfig(self._kubeconfig, http_server.url)

    # Reaching it

    @property
    def url(self) -> str:
        """The URL at which it listens; empty without HTTP."""
        return self._http.url if self._http is not None else ""

    @property
    def kubeconfig_path(self) -> Path:
        """The kubeconfig for access over HTTP."""
        if self._http is None or self._kubeconfig is None:
            raise BadInputError("the embedded cluster has no kubeconfig: it was made without http")
        return self._kubeconfig

    def transport(self) -> DirectTransport:
        """Return a transport that needs no socket."""
        return DirectTransport(self.frontend)

    # Breaking it

    async def stop_server(self) -> None:
        """Stop the API server: connections and watches break, stored objects stay."""
        self.frontend.stop()
        if self._http is not None:
            self._port = int(self._http.url.rpartition(":")[2])
            await self._http.stop()

    async def start_server(self) -> None:
        """Start the API server again, on its former port."""
        self.frontend.start()
        if self._http is not None:
            await self._http.start(self._port)

    async def restart_server(self, *, down_seconds: float = 0.0) -> None:
        """Stop the API server and start it again."""
        await self.stop_server()
        await asyncio.sleep(down_seconds)
        await self.start_server()

    # Using it as its owner, past faults and stops

    def apply(self, manifests: Iterable[JsonMapping], *, namespace: str = "default") -> None:
        """Create objects, or merge them into existing ones.

        Raises:
            BadInputError: a manifest is of a kind that is not served.
            StatusError: the server refuses one.
        """
        for manifest in manifests:
            served = self._kind_of(manifest)
            metadata = manifest["metadata"]
            within = metadata.get("namespace", namespace) if served.kind.namespaced else ""
            name = metadata.get("name", "")
            registry = self.server.registry
            body = {**manifest, "apiVersion": served.kind.api_version}
            if name and registry.find(served.kind, name, within) is not None:
                registry.patch(served.kind, body, name, within)
            else:
                registry.create(served.kind, body, within)

    def scale(
        self, kind: ResourceKind, name: str, replicas: int, *, namespace: str = "default"
    ) -> None:
        """Set the replicas of a workload."""
        within = namespace if kind.namespaced else ""
        self.patch(kind, name, {"spec": {"replicas": replicas}}, namespace=within)

    def patch(
        self, kind: ResourceKind, name: str, body: JsonMapping, *, namespace: str = ""
    ) -> None:
        """Merge-patch an object."""
        self.server.registry.patch(kind, body, name, namespace)

    def list(self, kind: ResourceKind, *, namespace: str | None = None) -> list[Json]:
        """Return the objects of a kind; they are the stored ones, not to be changed."""
        return self.server.registry.objects(kind, namespace)

    def find(self, kind: ResourceKind, name: str, *, namespace: str = "") -> Json | None:
        """Return an object, if it exists; it is the stored one, not to be changed."""
        return self.server.registry.find(kind, name, namespace)

    def delete(self, kind: ResourceKind, name: str, *, namespace: str = "") -> None:
        """Delete an object as a user would."""
        self.server.registry.delete(kind, name, namespace)

    async def until(
        self,
        holds: Callable[[], bool],
        *,
        kinds: Iterable[ResourceKind],
        timeout_seconds: float = 60.0,
    ) -> None:
        """Wait until a condition holds; it is checked after every change of these kinds.

        Raises:
            TimeoutError: it does not in time.
        """
        changed = asyncio.Event()
        store = self.server.registry.store
        stops = [store.listen(kind, lambda _change: changed.set()) for kind in kinds]
        try:
            async with asyncio.timeout(timeout_seconds):
                while not holds():
                    changed.clear()
                    await changed.wait()
        finally:
            for stop in stops:
                stop()

    def _kind_of(self, manifest: JsonMapping) -> ServedKind:
        """Return the kind of a manifest, in the version in which its objects are stored."""
        version_and_kind = (manifest.get("apiVersion"), manifest.get("kind"))
        registry = self.server.registry
        for served in registry.all_served():
            kind = served.kind
            if (kind.api_version, kind.kind) == version_and_kind:
                stored = served.stored_version or kind.version
                return registry.served(kind.group, stored, kind.plural)
        raise BadInputError(
            f"no kind {version_and_kind[1]} in {version_and_kind[0]}: is its CRD installed?"
        )
