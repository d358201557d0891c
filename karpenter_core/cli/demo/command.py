"""`karpenter demo`: scales pods up and down and shows the nodes that follow.

Without a kubeconfig it starts the embedded cluster in its own process. With one it runs on that
cluster, in its own namespace, and removes all of its objects in the end. The controller is the
unmodified `karpenter run` in its own process; with the provider of a cloud it calls a simulated
cloud through the unmodified SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from rich.console import Console

    from karpenter_core.api.records import NodeView
    from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics
    from karpenter_core.cli.demo.demo_cluster import DemoCluster
    from karpenter_core.cli.demo.demo_manifests import DemoManifests
    from karpenter_core.cli.demo.demo_scenario import DemoStep
    from karpenter_core.cli.demo.view import DemoView, StepReport
    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import KubeApi
    from karpenter_core.provider.kit.demo_cloud import DemoCloud
    from karpenter_core.state.events import ObjectObserved, ObjectRemoved

__all__ = ["demo"]

FAILED: Final = 1
INTERRUPTED: Final = 130
_START_SECONDS: Final = 30.0
_CLEANUP_SECONDS: Final = 60.0


def demo(
    provider: Annotated[
        str, typer.Option(help="Provider of the nodes: kwok, or a provider with a simulated cloud.")
    ] = "kwok",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Run the demo on this test cluster instead of an embedded one; the objects of the demo "
            "are removed in the end."
        ),
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Time limit of one step; 60 by default, 180 with a simulated cloud.",
            show_default=False,
        ),
    ] = None,
    log_folder: Annotated[
        Path | None,
        typer.Option(help="Keep the logs of the controller and the cluster in this folder."),
    ] = None,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Serve the dashboard on 127.0.0.1 and print its address; in a terminal, each step "
            "waits for Enter.",
        ),
    ] = False,
) -> None:
    """Demonstrate autoscaling: nginx from 0 to 50 to 500 replicas and back, or events of a cloud.

    Without --kubeconfig it needs neither a cluster nor a cloud account.

    Exit code: 0 if every step had its result; 1 if one had not.
    """
    if kubeconfig is None:
        _check_embedded_cluster()
    options = _DemoOptions(
        provider=provider,
        kubeconfig=kubeconfig,
        timeout_seconds=timeout_seconds,
        log_folder=log_folder,
        web=web,
    )
    raise typer.Exit(asyncio.run(_main(options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _DemoOptions:
    """The options of the command."""

    provider: str
    kubeconfig: Path | None
    timeout_seconds: float | None
    log_folder: Path | None
    web: bool


def _check_embedded_cluster() -> None:
    from karpenter_core.errors import BadInputError

    if find_spec("karpenter_core.sim") is None:
        raise BadInputError(
            "the embedded cluster is not installed, since images of clouds have none; name a cluster "
            "with --kubeconfig, use the image karpenter-core-kwok, or install karpenter-core with pip"
        )


async def _main(options: _DemoOptions) -> int:
    from rich.console import Console

    from karpenter_core.cli.demo.processes import DemoFailedError

    _keep_quiet()
    console = Console(soft_wrap=not sys.stdout.isatty())
    play = asyncio.ensure_future(_run_demo(console, options))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, play.cancel)
    try:
        return await play
    except DemoFailedError as error:
        console.print(f"failed: {error}", highlight=False)
        return FAILED
    except asyncio.CancelledError:
        console.print("interrupted; all objects of the demo were removed")
        return INTERRUPTED


def _keep_quiet() -> None:
    """Suppress log lines below errors, because the view prints the progress."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _DemoSetup:
    """Objects, simulated cloud if there is one, prices and time limits of the demo."""

    demo_manifests: DemoManifests
    cloud: DemoCloud | None
    price_of: Callable[[NodeView], float]
    currency: str
    step_seconds: float


async def _run_demo(console: Console, options: _DemoOptions) -> int:
    from karpenter_core.cli.demo.cloud_scenario import controller_environment
    from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics
    from karpenter_core.cli.demo.demo_cluster import DemoCluster
    from karpenter_core.cli.demo.processes import (
        DemoFailedError,
        controller,
        embedded_cluster,
        free_port,
        log_tail,
    )
    from karpenter_core.cli.demo.view import choose_view, summarise
    from karpenter_core.operator.clock import SystemClock

    clock = SystemClock()
    step_reports: list[StepReport] = []
    steps: Sequence[DemoStep] = ()
    async with AsyncExitStack() as stack:
        setting = await _setup(options.provider, stack)
        cloud, currency = setting.cloud, setting.currency
        folder = options.log_folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        view = choose_view(console, clock, currency)
        stack.callback(view.close)
        kubeconfig = options.kubeconfig
        if kubeconfig is None:
            view.say("starting an embedded cluster")
            kubeconfig = await stack.enter_async_context(embedded_cluster(folder))
            view.say(f"other commands on it: export KUBECONFIG={kubeconfig}")
        api = await stack.enter_async_context(_connection(kubeconfig, clock))
        demo_cluster = DemoCluster(api, setting.demo_manifests, view)
        stack.push_async_callback(demo_cluster.clear)
        await demo_cluster.set_up()
        view.say(f"starting karpenter run --providers={options.provider}")
        environment = None if cloud is None else controller_environment(cloud)
        dashboard_port = free_port() if options.web else 0
        log = await stack.enter_async_context(
            controller(
                kubeconfig,
                folder,
                provider=options.provider,
                environment=environment,
                dashboard_port=dashboard_port,
            )
        )
        if options.web:
            view.say(f"dashboard: http://127.0.0.1:{dashboard_port}/")
        cluster_statistics = ClusterStatistics(clock, setting.price_of)
        changed = await stack.enter_async_context(
            _following(api, setting.demo_manifests, clock, cluster_statistics)
        )
        if cloud is not None:
            await stack.enter_async_context(_kubelets(cloud, api))
        stack.push_async_callback(_clean_up, demo_cluster, cluster_statistics, changed, cloud, view)
        steps = _steps(setting, demo_cluster, cluster_statistics, clock)
        try:
            for step in steps:
                if step.skipped:
                    view.say(f"[bold]{step.title}[/]\n  skipped: {step.skipped}")
                    continue
                await _hold(step, options, view)
                step_reports.append(_new_report(step, clock))
                await _run_step(
                    step,
                    step_reports[-1],
                    cluster_statistics,
                    changed,
                    clock,
                    view,
                    options.timeout_seconds or setting.step_seconds,
                )
        except DemoFailedError as error:
            view.say(f"failed: {error}\n{log_tail(log)}")
        view.close()
        summarise(console, step_reports, cluster_statistics, currency)
    played = [step for step in steps if not step.skipped]
    succeeded = len(step_reports) == len(played) and all(
        step_report.succeeded for step_report in step_reports
    )
    return 0 if succeeded else FAILED


async def _hold(step: DemoStep, options: _DemoOptions, view: DemoView) -> None:
    """Give people at a terminal the time to look at the dashboard before a step."""
    from karpenter_core.cli.demo.processes import next_line

    if options.web and sys.stdin.isatty():
        view.say(f"press Enter to go on: {step.title}")
        await next_line(sys.stdin)


async def _setup(provider: str, stack: AsyncExitStack) -> _DemoSetup:
    from karpenter_core.cli.demo.cloud_scenario import BUDGET, capacity_types_of
    from karpenter_core.cli.demo.cluster_statistics import price_by, read_prices
    from karpenter_core.cli.demo.demo_kubelets import SELF_SIMULATED, find_simulated_cloud
    from karpenter_core.cli.demo.demo_manifests import DemoManifests, find_node_class

    node_class = find_node_class(provider)
    if provider == SELF_SIMULATED:
        demo_manifests = DemoManifests(
            node_class=node_class,
            requirements=[
                {
                    "key": f"{node_class.resource.group}/instance-cpu",
                    "operator": "Gt",
                    "values": ["7"],
                }
            ],
        )
        prices, currency = await read_prices(demo_manifests)
        return _DemoSetup(
            demo_manifests=demo_manifests,
            cloud=None,
            price_of=price_by(prices),
            currency=currency,
            step_seconds=60,
        )
    cloud = stack.enter_context(find_simulated_cloud(provider))

    def price_of(node: NodeView) -> float:
        instance = cloud.instances().get(node.provider_id)
        return 0.0 if instance is None else instance.price_per_hour

    return _DemoSetup(
        demo_manifests=DemoManifests(
            node_class=node_class,
            node_class_spec=cloud.node_class_spec,
            capacity_types=capacity_types_of(cloud),
            requirements=cloud.requirements,
            budget=str(BUDGET),
            pod_cpu="900m",
            is_spread=True,
        ),
        cloud=cloud,
        price_of=price_of,
        currency=cloud.currency,
        step_seconds=180,
    )


def _steps(
    setting: _DemoSetup,
    demo_cluster: DemoCluster,
    cluster_statistics: ClusterStatistics,
    clock: Clock,
) -> Sequence[DemoStep]:
    from karpenter_core.cli.demo.cloud_scenario import CloudScenario
    from karpenter_core.cli.demo.demo_scenario import ScalingScenario

    if setting.cloud is None:
        return ScalingScenario(demo_cluster, cluster_statistics).steps()
    return CloudScenario(setting.cloud, demo_cluster, cluster_statistics, clock).steps()


def _new_report(step: DemoStep, clock: Clock) -> StepReport:
    from karpenter_core.cli.demo.view import StepReport

    return StepReport(title=step.title, replicas=step.replicas, started=clock.monotonic())


async def _run_step(
    step: DemoStep,
    step_report: StepReport,
    cluster_statistics: ClusterStatistics,
    changed: asyncio.Event,
    clock: Clock,
    view: DemoView,
    timeout_seconds: float,
) -> None:
    """Start a step, and wait for its result.

    Raises:
        DemoFailedError: the result did not arrive in time, or is wrong.
    """
    from karpenter_core.cli.demo.processes import DemoFailedError

    view.say(f"[bold]{step.title}[/]")
    nodes_before = cluster_statistics.nodes
    await step.begin()

    def is_done() -> bool:
        if step_report.first_node_seconds is None and cluster_statistics.nodes > nodes_before:
            step_report.first_node_seconds = clock.monotonic() - step_report.started
        step_report.nodes, step_report.price_per_hour = (
            cluster_statistics.nodes,
            cluster_statistics.price_per_hour,
        )
        view.show(step_report, cluster_statistics)
        return step.is_done()

    try:
        async with asyncio.timeout(timeout_seconds):
            await _until(is_done, changed)
    except TimeoutError:
        raise DemoFailedError(
            f"{step.title}: after {timeout_seconds:.0f} s {cluster_statistics.running} of {cluster_statistics.pods} "
            f"pods run on {cluster_statistics.ready_nodes} ready of {cluster_statistics.nodes} nodes"
        ) from None
    lines = step.report()
    step_report.seconds = clock.monotonic() - step_report.started
    view.show(step_report, cluster_statistics)
    for line in lines:
        view.say(f"  {line}")


async def _clean_up(
    demo_cluster: DemoCluster,
    cluster_statistics: ClusterStatistics,
    changed: asyncio.Event,
    cloud: DemoCloud | None,
    view: DemoView,
) -> None:
    """Delete pods, NodePool and NodeClass and wait for the controller to remove the rest."""
    await demo_cluster.retire()

    def is_gone() -> bool:
        return not (cluster_statistics.nodes or cluster_statistics.claims) and (
            cloud is None or not cloud.list_resources()
        )

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLEANUP_SECONDS):
            await _until(is_gone, changed)
            await demo_cluster.wait_retired()
        return
    remaining = [] if cloud is None else sorted(cloud.list_resources())
    view.say(
        f"{cluster_statistics.nodes} nodes are left{', in the cloud ' if remaining else ''}{', '.join(remaining)}; "
        "see the controller's log"
    )


async def _until(holds: Callable[[], bool], changed: asyncio.Event) -> None:
    while not holds():
        changed.clear()
        # The elapsed time on the screen goes on even when nothing happens.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), 0.5)


@asynccontextmanager
async def _kubelets(cloud: DemoCloud, api: KubeApi) -> AsyncGenerator[None]:
    from karpenter_core.cli.demo.demo_kubelets import DemoKubelets

    task = asyncio.create_task(DemoKubelets(cloud, api).run(), name="demo kubelets")
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
    api: KubeApi, demo_manifests: DemoManifests, clock: Clock, cluster_statistics: ClusterStatistics
) -> AsyncGenerator[asyncio.Event]:
    """Update the statistics by watches; set the event at every change."""
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.informers import Informers
    from karpenter_core.kube.resources import NODES, PODS, custom_kind
    from karpenter_core.kube.wire.codecs import Codecs

    changed = asyncio.Event()

    def sink(event: ObjectObserved | ObjectRemoved) -> None:
        cluster_statistics.on_event(event)
        changed.set()

    kinds = [PODS, NODES, custom_kind(NodeClaim.resource)]
    codecs = Codecs([demo_manifests.node_class])
    informers = Informers(ClusterApis(api), codecs, clock=clock, sink=sink, kinds=kinds)
    task = asyncio.create_task(informers.run(), name="demo informers")
    try:
        async with asyncio.timeout(_START_SECONDS):
            await informers.wait_synced()
        yield changed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
