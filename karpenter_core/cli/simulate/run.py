"""Runs one simulation: the unchanged controller on an embedded cluster.

Time is virtual.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.object_reader import dropped_fields
from karpenter_core.cli.simulate.cloud_troubles import CloudTroubles
from karpenter_core.cli.simulate.driver import WorkloadDriver
from karpenter_core.cli.simulate.recorder import SimulationRecorder
from karpenter_core.errors import BadInputError, KarpenterError, SettingsError
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.operator.inline_platform import inline_platform
from karpenter_core.operator.process import Process
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.fields import entries, section
from karpenter_core.sim.kubelets import KubeletTimes
from karpenter_core.sim.status import StatusError
from karpenter_core.sim.virtual_time import run_virtual, until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from karpenter_core.cli.simulate.recorder import Level, PriceOf
    from karpenter_core.cli.simulate.scenario import SimulationScenario
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["Progress", "SimulationResult", "simulate"]

PROVIDER: Final = "kwok"
_WARM_UP: Final = timedelta(minutes=5)
"""The controller starts this long before the beginning, and the NodePools become ready."""
_READY_SECONDS: Final = 60.0
_POD_START_SECONDS: Final = 2.0
_POD_STOP_SECONDS: Final = 5.0
_BOOT_SECONDS: Final = 1.0
_HISTORY_SIZE: Final = 5_000
_POLL_SECONDS: Final = 1.0
_COLLECTED_AT: Final = (200_000, 50, 50)
"""Thresholds of garbage collection: the defaults spend a tenth of the time on objects that stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a running simulation."""

    seconds: float
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationResult:
    """The records of a simulation."""

    scenario: SimulationScenario
    recorder: SimulationRecorder
    windows: tuple[Level, ...]
    """Integrals of each step of the series."""
    currency: str
    reclaimed: int
    sold_out: int
    finished: int
    restarted: int
    notes: tuple[str, ...] = ()


def simulate(
    scenario: SimulationScenario, on_progress: Callable[[Progress], None] | None = None
) -> SimulationResult:
    """Run a simulation to its end.

    Raises:
        BadInputError: an object cannot be used.
        SettingsError: a setting cannot be used.
    """
    _log_errors_only()
    with tempfile.TemporaryDirectory(prefix="karpenter-simulate-") as folder, _rare_collections():
        run = _Run(scenario, Path(folder), on_progress)
        return run_virtual(run.go(), epoch=scenario.start - _WARM_UP)


class _Run:
    """One simulation."""

    def __init__(
        self,
        scenario: SimulationScenario,
        folder: Path,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._scenario: Final = scenario
        self._folder: Final = folder
        self._on_progress: Final = on_progress
        self._notes: Final = list[str]()

    async def go(self) -> SimulationResult:
        """Start cluster and controller, play the workload, and record."""
        scenario = self._scenario
        boot = min(_BOOT_SECONDS, scenario.node_startup)
        times = KubeletTimes(
            node_boot_seconds=boot,
            pod_start_seconds=_POD_START_SECONDS,
            pod_stop_seconds=_POD_STOP_SECONDS,
        )
        cluster = EmbeddedCluster(times=times, seed=scenario.seed, history_size=_HISTORY_SIZE)
        plugins = load_plugins(selected=(PROVIDER,))
        async with cluster:
            troubles = CloudTroubles(
                cluster,
                self._folder / "faults.json",
                reclaims_per_hour=scenario.reclaims_per_hour,
                stock_outs_per_hour=scenario.stock_outs_per_hour,
                stock_out_seconds=scenario.stock_out_seconds,
                seed=scenario.seed,
            )
            process = self._process(cluster, plugins, quiet=troubles.is_quiet)
            self._apply_objects(cluster, plugins)
            stop = asyncio.Event()
            running = asyncio.create_task(process.run(stop), name="controller")
            try:
                await self._wait_ready(cluster, running)
                return await self._record(cluster, process, running, troubles)
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await running

    def _process(self, cluster: EmbeddedCluster, plugins: Plugins, *, quiet: bool) -> Process:
        scenario = self._scenario
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        delay = max(scenario.node_startup - _BOOT_SECONDS, 0.0)
        arguments = [
            "--disable-leader-election",
            "--cluster-name=simulated",
            "--kwok-state-file=:memory:",
            f"--kwok-registration-delay={delay}s",
        ]
        if not quiet:
            arguments.append(f"--kwok-faults-file={self._folder / 'faults.json'}")
        if scenario.instance_types_file is not None:
            arguments.append(f"--instance-types-file={scenario.instance_types_file}")
        given = {each.partition("=")[0] for each in scenario.settings}
        arguments = [each for each in arguments if each.partition("=")[0] not in given]
        try:
            settings = load_settings((*arguments, *scenario.settings), {}, plugin_options=specs)
        except SettingsError as error:
            raise SettingsError(f"--set: {error}") from error
        self._notes.extend(settings.warnings)
        platform = inline_platform(
            name="karpenter",
            clock=cluster.clock,
            objects=cluster.transport(),
            lease=cluster.transport(),
            cache_folder=self._folder,
            cluster=ClusterFacts(name=settings.cluster_name),
            seed=scenario.seed,
        )
        return Process(settings, plugins, platform)

    def _apply_objects(self, cluster: EmbeddedCluster, plugins: Plugins) -> None:
        from karpenter_core.api.crd import core_models, render_crd

        models = [*core_models(), *plugins.node_class_models().values()]
        cluster.apply(render_crd(model) for model in models)
        for entry in self._scenario.manifests:
            try:
                cluster.apply([entry.manifest])
            except (StatusError, BadInputError) as error:
                raise BadInputError(f"{entry.where}: {entry.title}: {error}") from error
            if entry.kind == "NodePool":
                stored = cluster.find(NODE_POOLS, entry.name) or {}
                self._notes.extend(
                    f"{entry.where}: {entry.title}: {field}: unknown field, ignored"
                    for field in dropped_fields(entry.manifest, stored, "")
                )

    async def _wait_ready(self, cluster: EmbeddedCluster, running: asyncio.Task[int]) -> None:
        """Wait until every NodePool is ready.

        Raises:
            BadInputError: one does not become ready; names it and its condition.
        """

        def holds() -> bool:
            return running.done() or not _unready(cluster)

        await until(holds, every_seconds=_POLL_SECONDS, within_seconds=_READY_SECONDS)
        _check_alive(running)
        for name, why in _unready(cluster).items():
            where = next(
                entry.where
                for entry in self._scenario.manifests
                if (entry.kind, entry.name) == ("NodePool", name)
            )
            raise BadInputError(f'{where}: NodePool "{name}": does not become ready: {why}')

    async def _record(
        self,
        cluster: EmbeddedCluster,
        process: Process,
        running: asyncio.Task[int],
        troubles: CloudTroubles,
    ) -> SimulationResult:
        scenario, clock = self._scenario, cluster.clock
        await clock.sleep((scenario.start - clock.now()).total_seconds())
        recorder = SimulationRecorder(
            cluster.server.registry.store, clock, price_of=_price_reader(process)
        )
        driver = WorkloadDriver(cluster, scenario.workload)
        driver.prepare()
        recorder.begin()
        tasks = [asyncio.create_task(driver.run()), asyncio.create_task(troubles.run())]
        windows: list[Level] = []
        began = clock.monotonic()
        try:
            while (passed := clock.monotonic() - began) < scenario.duration:
                due = min((len(windows) + 1) * scenario.step, scenario.duration)
                await clock.sleep(due - passed)
                windows.append(recorder.take_window())
                _check_alive(running, *tasks)
                if self._on_progress is not None:
                    self._on_progress(Progress(seconds=due, level=recorder.level))
        finally:
            driver.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        recorder.end()
        return SimulationResult(
            scenario=scenario,
            recorder=recorder,
            windows=tuple(windows),
            currency=process.settings.currency,
            reclaimed=troubles.reclaimed,
            sold_out=troubles.sold_out,
            finished=driver.finished,
            restarted=driver.restarted,
            notes=tuple(self._notes),
        )


def _check_alive(controller: asyncio.Task[int], *tasks: asyncio.Task[None]) -> None:
    """Raise the error of a task that failed; the controller must not end at all."""
    for task in tasks:
        if task.done():
            task.result()
    if controller.done():
        code = controller.result()
        message = f"the controller ended with exit code {code}"
        raise KarpenterError(message)


def _unready(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return the reason of each NodePool that is not ready."""
    reasons: dict[str, str] = {}
    for pool in cluster.list(NODE_POOLS):
        conditions = {each["type"]: each for each in entries(section(pool, "status"), "conditions")}
        ready = conditions.get("Ready", {})
        if ready.get("status") != "True":
            failed = [each for each in conditions.values() if each["status"] == "False"]
            texts = [each.get("message", "") for each in failed if each["type"] != "Ready"]
            name = pool["metadata"]["name"]
            reasons[name] = "; ".join(filter(None, texts)) or ready.get("message") or "no answer"
    return reasons


def _price_reader(process: Process) -> PriceOf:
    """Return a function that finds the price of an offering in the catalogue of its NodePool."""
    known: dict[str, tuple[str, dict[tuple[str, str, str], float]]] = {}

    def price_of(pool: str, instance_type: str, zone: str, capacity_type: str) -> float | None:
        catalogue = process.cluster_state.snapshot().catalogues.get(pool)
        if catalogue is None:
            return None
        version, prices = known.get(pool, ("", {}))
        if version != catalogue.version:
            prices = {
                (each.name, offering.zone, offering.capacity_type): offering.price.amount
                for each in catalogue.instance_types
                for offering in each.offerings
            }
            known[pool] = (catalogue.version, prices)
        return prices.get((instance_type, zone, capacity_type))

    return price_of


@contextmanager
def _rare_collections() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED_AT)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _log_errors_only() -> None:
    """Keep the logs of the controller out of the results; errors go to stderr."""
    import sys

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("error"),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
