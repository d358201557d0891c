"""`karpenter demo`: pods become nodes and go again, before your eyes.

Without a kubeconfig it starts the embedded cluster in a process of its own; with one it plays on
that cluster, under names of its own, and leaves it as it was. Either way the controller is the
unchanged `karpenter run`, in its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from rich.console import Console

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.cli.demo_scene import Census, Scene
    from karpenter_core.cli.demo_view import Act, View
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.state.events import Observed, Removed

__all__ = ["demo"]

FAILED: Final = 1
INTERRUPTED: Final = 130
_ACTS: Final = (50, 500, 0)
_START_SECONDS: Final = 30.0
_CLEANUP_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_LOG_LINES: Final = 5
_LOG_COLUMNS: Final = 400
_RUN: Final = (sys.executable, "-c", "from karpenter_core.cli.main import main; main()", "run")


class _DemoFailedError(Exception):
    """Something did not come true, or not in time; says what."""


def demo(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Play on this cluster instead of an embedded one."),
    ] = None,
    timeout_seconds: Annotated[
        float, typer.Option(min=1, help="How long one step may take before it has failed.")
    ] = 60.0,
    log_folder: Annotated[
        Path | None, typer.Option(help="Keep the logs of controller and cluster in this folder.")
    ] = None,
) -> None:
    """Scale nginx from 0 to 50, to 500 and back, and watch nodes come and go."""
    raise typer.Exit(asyncio.run(_main(kubeconfig, timeout_seconds, log_folder)))


async def _main(kubeconfig: Path | None, timeout_seconds: float, log_folder: Path | None) -> int:
    from rich.console import Console

    _keep_quiet()
    console = Console(soft_wrap=not sys.stdout.isatty())
    play = asyncio.ensure_future(_play(console, kubeconfig, timeout_seconds, log_folder))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, play.cancel)
    try:
        return await play
    except _DemoFailedError as error:
        console.print(f"failed: {error}", highlight=False)
        return FAILED
    except asyncio.CancelledError:
        console.print("interrupted; everything of the demo was taken away again")
        return INTERRUPTED


def _keep_quiet() -> None:
    """Let this process log nothing below errors: the story is told by the view."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))


async def _play(
    console: Console, kubeconfig: Path | None, timeout_seconds: float, log_folder: Path | None
) -> int:
    from karpenter_core.cli.demo_scene import Census, Scene, find_node_class, read_prices
    from karpenter_core.cli.demo_view import choose_view, summarise
    from karpenter_core.operator.clock import SystemClock

    clock = SystemClock()
    scene = Scene(node_class=find_node_class())
    prices, currency = await read_prices(scene)
    acts: list[Act] = []
    async with AsyncExitStack() as stack:
        folder = log_folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        view = choose_view(console, clock, currency)
        stack.callback(view.close)
        if kubeconfig is None:
            view.say("starting an embedded cluster")
            kubeconfig = await stack.enter_async_context(_embedded_cluster(folder))
        api = await stack.enter_async_context(_connection(kubeconfig, clock))
        stage = _Stage(api, scene, view)
        stack.push_async_callback(stage.clear)
        await stage.set_up()
        view.say("starting karpenter run")
        await stack.enter_async_context(_controller(kubeconfig, folder))
        census = Census(clock, prices)
        changed = await stack.enter_async_context(_following(api, scene, clock, census))
        stack.push_async_callback(stage.retire, census, changed)
        try:
            for replicas in _ACTS:
                acts.append(_act(replicas, clock))
                await stage.perform(acts[-1], census, changed, clock, timeout_seconds)
        except _DemoFailedError as error:
            view.say(f"failed: {error}\n{_log_tail(folder / 'controller.log')}")
        view.close()
        summarise(console, acts, census, currency)
    succeeded = len(acts) == len(_ACTS) and all(act.succeeded for act in acts)
    return 0 if succeeded else FAILED


def _act(replicas: int, clock: Clock) -> Act:
    from karpenter_core.cli.demo_view import Act

    title = f"scale nginx to {replicas}"
    return Act(title=title, replicas=replicas, started=clock.monotonic())


class _Stage:
    """The demo's objects in a cluster: put there, moved, and taken away."""

    def __init__(self, api: KubeApi, scene: Scene, view: View) -> None:
        self._api: Final = api
        self._scene: Final = scene
        self._view: Final = view
        self._created: Final[list[tuple[ResourceKind, dict[str, Any]]]] = []
        self._installed: Final[list[type[KubernetesObject]]] = []

    async def set_up(self) -> None:
        """Install missing CRDs and create the demo's objects, the Deployment empty."""
        from karpenter_core.api.crd import core_models
        from karpenter_core.api.nodepool import NodePool
        from karpenter_core.kube.resources import DEPLOYMENTS, NAMESPACES, custom

        models = (*core_models(), self._scene.node_class)
        for model in models:
            await self._install(model)
        await self._create(NAMESPACES, self._scene.namespace())
        await self._create(custom(self._scene.node_class.resource), self._scene.machine())
        await self._create(custom(NodePool.resource), self._scene.node_pool())
        await self._create(DEPLOYMENTS, self._scene.deployment())

    async def _install(self, model: type[KubernetesObject]) -> None:
        from karpenter_core.api.crd import render_crd
        from karpenter_core.errors import ConflictError, NotFoundError
        from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, custom

        try:
            await self._api.create(CUSTOM_RESOURCE_DEFINITIONS, render_crd(model))
        except ConflictError:
            return  # it is there already, and stays
        self._installed.append(model)
        async with asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    await self._api.list_page(custom(model.resource))
                except NotFoundError:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    return

    async def _create(self, kind: ResourceKind, manifest: dict[str, Any]) -> None:
        from karpenter_core.errors import ConflictError, SettingsError

        namespace = manifest["metadata"].get("namespace", "")
        try:
            await self._api.create(kind, manifest, namespace=namespace)
        except ConflictError as error:
            raise SettingsError(
                f"{error}; is another demo running, or was one killed? Delete the namespace, "
                "NodePool and NodeClass of that name first"
            ) from error
        self._created.append((kind, manifest["metadata"]))

    async def perform(
        self,
        act: Act,
        census: Census,
        changed: asyncio.Event,
        clock: Clock,
        timeout_seconds: float,
    ) -> None:
        """Scale, and wait until what should come of it has.

        Raises:
            _DemoFailedError: it has not in time.
        """
        from karpenter_core.cli.demo_scene import DEPLOYMENT, NAME
        from karpenter_core.kube.resources import DEPLOYMENTS

        self._view.say(f"[bold]{act.title}[/]")
        nodes_before = census.nodes
        scale = {"spec": {"replicas": act.replicas}}
        await self._api.patch(DEPLOYMENTS, DEPLOYMENT, scale, namespace=NAME)

        def is_done() -> bool:
            if act.first_node_seconds is None and census.nodes > nodes_before:
                act.first_node_seconds = clock.monotonic() - act.started
            act.nodes, act.price_per_hour = census.nodes, census.price_per_hour
            self._view.show(act, census)
            if act.replicas:
                return census.running == census.pods == act.replicas
            return not (census.pods or census.nodes or census.claims)

        try:
            async with asyncio.timeout(timeout_seconds):
                await _until(is_done, changed)
        except TimeoutError:
            raise _DemoFailedError(
                f"{act.title}: after {timeout_seconds:.0f} s {census.running} of {census.pods} "
                f"pods run on {census.ready_nodes} ready of {census.nodes} nodes"
            ) from None
        act.seconds = clock.monotonic() - act.started
        self._view.show(act, census)

    async def retire(self, census: Census, changed: asyncio.Event) -> None:
        """Delete pods and pool and wait for the controller to take its nodes away."""
        for kind, metadata in reversed(self._created):
            if kind.kind in {"Deployment", "NodePool"}:
                await self._delete(kind, metadata)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLEANUP_SECONDS):
                await _until(lambda: not (census.nodes or census.claims), changed)
            return
        self._view.say(f"{census.nodes} nodes are left; see the controller's log")

    async def clear(self) -> None:
        """Delete whatever is left of the demo, and the CRDs that it brought if nobody uses them."""
        from karpenter_core.api.crd import crd_name
        from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, custom

        for kind, metadata in reversed(self._created):
            await self._delete(kind, metadata)
        for model in reversed(self._installed):
            if await self._is_unused(custom(model.resource)):
                name = {"name": crd_name(model.resource)}
                await self._delete(CUSTOM_RESOURCE_DEFINITIONS, name)

    async def _is_unused(self, kind: ResourceKind) -> bool:
        import msgspec

        from karpenter_core.errors import ApiError

        try:
            page: dict[str, Any] = msgspec.json.decode(await self._api.list_page(kind, limit=1))
        except ApiError:
            return False
        return not page["items"]

    async def _delete(self, kind: ResourceKind, metadata: dict[str, Any]) -> None:
        from karpenter_core.errors import ApiError, NotFoundError

        try:
            await self._api.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))
        except NotFoundError:
            pass
        except ApiError as error:
            self._view.say(f"could not clean up: {error}")


async def _until(holds: Callable[[], bool], changed: asyncio.Event) -> None:
    while not holds():
        changed.clear()
        # The elapsed time on the screen goes on even when nothing happens.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 0.5)


@asynccontextmanager
async def _connection(kubeconfig: Path, clock: Clock) -> AsyncGenerator[KubeApi]:
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.kube.client import connect

    transport = await connect(kubeconfig=str(kubeconfig), clock=clock)
    api = KubeApi(transport, clock=clock)
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def _following(
    api: KubeApi, scene: Scene, clock: Clock, census: Census
) -> AsyncGenerator[asyncio.Event]:
    """Keep the census up to date; the event is set at every change."""
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.kube.api import Apis
    from karpenter_core.kube.informers import Informers
    from karpenter_core.kube.resources import NODES, PODS, custom
    from karpenter_core.kube.wire.codecs import Codecs

    changed = asyncio.Event()

    def sink(event: Observed | Removed) -> None:
        census.on_event(event)
        changed.set()

    kinds = [PODS, NODES, custom(NodeClaim.resource)]
    codecs = Codecs([scene.node_class])
    informers = Informers(Apis(api), codecs, clock=clock, sink=sink, kinds=kinds)
    task = asyncio.create_task(informers.run(), name="demo informers")
    try:
        async with asyncio.timeout(_START_SECONDS):
            await informers.wait_synced()
        yield changed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _embedded_cluster(folder: Path) -> AsyncGenerator[Path]:
    """Run the embedded cluster in a process of its own; yields its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    arguments = [sys.executable, "-m", "karpenter_core.sim", f"--kubeconfig={kubeconfig}"]
    log = folder / "cluster.log"
    async with _process(arguments, log) as process:
        await _ready(process, lambda: "ready " in log.read_text(), log)
        yield kubeconfig


@asynccontextmanager
async def _controller(kubeconfig: Path, folder: Path) -> AsyncGenerator[None]:
    """Run the controller in a process of its own until it is ready."""
    from karpenter_core.cli.demo_scene import NAME, PROVIDER

    metrics_port, probe_port = _free_port(), _free_port()
    log = folder / "controller.log"
    arguments = [
        *_RUN,
        f"--kubeconfig={kubeconfig}",
        f"--providers={PROVIDER}",
        "--bind-address=127.0.0.1",
        f"--metrics-port={metrics_port}",
        f"--health-probe-port={probe_port}",
        f"--cache-folder={folder / 'cache'}",
        f"--leader-election-name={NAME}",
        f"--leader-election-namespace={NAME}",
    ]
    async with _process(arguments, log) as process:
        await _ready(process, lambda: _answers(probe_port), log)
        yield


@asynccontextmanager
async def _process(
    arguments: Sequence[str], log: Path
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a process that the terminal's Ctrl-C does not reach, and end it in good order."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(
    process: asyncio.subprocess.Process, is_ready: Callable[[], bool], log: Path
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + _START_SECONDS
    while not is_ready():
        if process.returncode is not None or loop.time() > end:
            state = "ended" if process.returncode is not None else "is not ready"
            raise _DemoFailedError(f"the {log.stem} {state}:\n{_log_tail(log)}")
        await asyncio.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    """Ask `/readyz` on loopback."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _log_tail(log: Path) -> str:
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(line[:_LOG_COLUMNS] for line in lines)
