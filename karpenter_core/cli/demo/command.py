"""`karpenter demo`: pods become nodes and go again, before your eyes.

Without a kubeconfig it starts the embedded cluster in a process of its own; with one it plays on
that cluster, under names of its own, and leaves it as it was. Either way the controller is the
unchanged `karpenter run`, in its own process, and with the provider of a cloud it reaches a simulated
one through that cloud's unmodified SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from rich.console import Console

    from karpenter_core.api.records import NodeView
    from karpenter_core.cli.demo.census import Census
    from karpenter_core.cli.demo.scene import Scene
    from karpenter_core.cli.demo.stage import Stage
    from karpenter_core.cli.demo.story import Step
    from karpenter_core.cli.demo.view import Act, View
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.provider.kit.simulation import SimulatedCloud
    from karpenter_core.state.events import Observed, Removed

__all__ = ["demo"]

FAILED: Final = 1
INTERRUPTED: Final = 130
_START_SECONDS: Final = 30.0
_CLEANUP_SECONDS: Final = 60.0


def demo(
    provider: Annotated[
        str, typer.Option(help="Whose machines: kwok, or a provider that has a simulated cloud.")
    ] = "kwok",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Play on this cluster instead of an embedded one."),
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="How long one step may take before it has failed; 60, and 180 in a cloud.",
            show_default=False,
        ),
    ] = None,
    log_folder: Annotated[
        Path | None, typer.Option(help="Keep the logs of controller and cluster in this folder.")
    ] = None,
) -> None:
    """Watch nodes come and go: for nginx from 0 to 50 to 500 and back, or through a cloud's troubles."""
    raise typer.Exit(asyncio.run(_main(provider, kubeconfig, timeout_seconds, log_folder)))


async def _main(
    provider: str, kubeconfig: Path | None, timeout_seconds: float | None, log_folder: Path | None
) -> int:
    from rich.console import Console

    from karpenter_core.cli.demo.processes import DemoFailedError

    _keep_quiet()
    console = Console(soft_wrap=not sys.stdout.isatty())
    play = asyncio.ensure_future(_play(console, provider, kubeconfig, timeout_seconds, log_folder))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, play.cancel)
    try:
        return await play
    except DemoFailedError as error:
        console.print(f"failed: {error}", highlight=False)
        return FAILED
    except asyncio.CancelledError:
        console.print("interrupted; everything of the demo was taken away again")
        return INTERRUPTED


def _keep_quiet() -> None:
    """Let this process log nothing below errors: the story is told by the view."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """Where the story plays: the objects, the cloud if there is one, and what machines cost."""

    scene: Scene
    cloud: SimulatedCloud | None
    price_of: Callable[[NodeView], float]
    currency: str
    step_seconds: float


async def _play(
    console: Console,
    provider: str,
    kubeconfig: Path | None,
    timeout_seconds: float | None,
    log_folder: Path | None,
) -> int:
    from karpenter_core.cli.demo.census import Census
    from karpenter_core.cli.demo.processes import (
        DemoFailedError,
        controller,
        embedded_cluster,
        log_tail,
    )
    from karpenter_core.cli.demo.stage import Stage
    from karpenter_core.cli.demo.view import choose_view, summarise
    from karpenter_core.operator.clock import SystemClock

    clock = SystemClock()
    acts: list[Act] = []
    steps: Sequence[Step] = ()
    async with AsyncExitStack() as stack:
        setting = await _setting(provider, stack)
        cloud, currency = setting.cloud, setting.currency
        folder = log_folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        view = choose_view(console, clock, currency)
        stack.callback(view.close)
        if kubeconfig is None:
            view.say("starting an embedded cluster")
            kubeconfig = await stack.enter_async_context(embedded_cluster(folder))
        api = await stack.enter_async_context(_connection(kubeconfig, clock))
        stage = Stage(api, setting.scene, view)
        stack.push_async_callback(stage.clear)
        await stage.set_up()
        view.say(f"starting karpenter run --providers={provider}")
        environment = None if cloud is None else cloud.environment
        log = await stack.enter_async_context(
            controller(kubeconfig, folder, provider=provider, environment=environment)
        )
        census = Census(clock, setting.price_of)
        changed = await stack.enter_async_context(_following(api, setting.scene, clock, census))
        if cloud is not None:
            await stack.enter_async_context(_kubelets(cloud, api))
        stack.push_async_callback(_retire, stage, census, changed, cloud, view)
        steps = _steps(setting, stage, census, clock)
        try:
            for step in steps:
                acts.append(_act(step, clock))
                await _perform(
                    step,
                    acts[-1],
                    census,
                    changed,
                    clock,
                    view,
                    timeout_seconds or setting.step_seconds,
                )
        except DemoFailedError as error:
            view.say(f"failed: {error}\n{log_tail(log)}")
        view.close()
        summarise(console, acts, census, currency)
    succeeded = len(acts) == len(steps) and all(act.succeeded for act in acts)
    return 0 if succeeded else FAILED


async def _setting(provider: str, stack: AsyncExitStack) -> _Setting:
    from karpenter_core.cli.demo.census import price_by, read_prices
    from karpenter_core.cli.demo.cloud_story import BUDGET, CAPACITY_TYPES
    from karpenter_core.cli.demo.clouds import SIMULATED_ITSELF, find_simulated_cloud
    from karpenter_core.cli.demo.scene import Scene, find_node_class

    node_class = find_node_class(provider)
    if provider == SIMULATED_ITSELF:
        scene = Scene(node_class=node_class)
        prices, currency = await read_prices(scene)
        return _Setting(
            scene=scene,
            cloud=None,
            price_of=price_by(prices),
            currency=currency,
            step_seconds=60,
        )
    cloud = stack.enter_context(find_simulated_cloud(provider))

    def price_of(node: NodeView) -> float:
        machine = cloud.machines().get(node.provider_id)
        return 0.0 if machine is None else machine.price_per_hour

    return _Setting(
        scene=Scene(
            node_class=node_class,
            node_class_spec=cloud.node_class_spec,
            capacity_types=CAPACITY_TYPES,
            instance_cpu={"operator": "In", "values": ["16"]},
            budget=str(BUDGET),
            pod_cpu="900m",
            is_spread=True,
        ),
        cloud=cloud,
        price_of=price_of,
        currency=cloud.currency,
        step_seconds=180,
    )


def _steps(setting: _Setting, stage: Stage, census: Census, clock: Clock) -> Sequence[Step]:
    from karpenter_core.cli.demo.cloud_story import CloudStory
    from karpenter_core.cli.demo.story import Scaling

    if setting.cloud is None:
        return Scaling(stage, census).steps()
    return CloudStory(setting.cloud, stage, census, clock).steps()


def _act(step: Step, clock: Clock) -> Act:
    from karpenter_core.cli.demo.view import Act

    return Act(title=step.title, replicas=step.replicas, started=clock.monotonic())


async def _perform(
    step: Step,
    act: Act,
    census: Census,
    changed: asyncio.Event,
    clock: Clock,
    view: View,
    timeout_seconds: float,
) -> None:
    """Begin an act, and wait until what should come of it has.

    Raises:
        DemoFailedError: it has not in time, or is not as promised.
    """
    from karpenter_core.cli.demo.processes import DemoFailedError

    view.say(f"[bold]{step.title}[/]")
    nodes_before = census.nodes
    await step.begin()

    def is_done() -> bool:
        if act.first_node_seconds is None and census.nodes > nodes_before:
            act.first_node_seconds = clock.monotonic() - act.started
        act.nodes, act.price_per_hour = census.nodes, census.price_per_hour
        view.show(act, census)
        return step.is_done()

    try:
        async with asyncio.timeout(timeout_seconds):
            await _until(is_done, changed)
    except TimeoutError:
        raise DemoFailedError(
            f"{step.title}: after {timeout_seconds:.0f} s {census.running} of {census.pods} "
            f"pods run on {census.ready_nodes} ready of {census.nodes} nodes"
        ) from None
    told = step.tell()
    act.seconds = clock.monotonic() - act.started
    view.show(act, census)
    for line in told:
        view.say(f"  {line}")


async def _retire(
    stage: Stage, census: Census, changed: asyncio.Event, cloud: SimulatedCloud | None, view: View
) -> None:
    """Delete pods, pool and NodeClass and wait for the controller to take the rest away."""
    await stage.retire()

    def is_gone() -> bool:
        return not (census.nodes or census.claims) and (cloud is None or not cloud.held())

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLEANUP_SECONDS):
            await _until(is_gone, changed)
            await stage.wait_retired()
        return
    left = [] if cloud is None else sorted(cloud.held())
    view.say(
        f"{census.nodes} nodes are left{', in the cloud ' if left else ''}{', '.join(left)}; "
        "see the controller's log"
    )


async def _until(holds: Callable[[], bool], changed: asyncio.Event) -> None:
    while not holds():
        changed.clear()
        # The elapsed time on the screen goes on even when nothing happens.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 0.5)


@asynccontextmanager
async def _kubelets(cloud: SimulatedCloud, api: KubeApi) -> AsyncGenerator[None]:
    from karpenter_core.cli.demo.clouds import Kubelets

    task = asyncio.create_task(Kubelets(cloud, api).run(), name="demo kubelets")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
