"""`karpenter simulate`: costs of a workload on NodePools in simulated time."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from karpenter_core.cli.cluster_source import help_of
from karpenter_core.errors import BadInputError, KarpenterError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.scenario import SimulationScenario
    from karpenter_core.cli.simulate.sweep import SweepAxis, SweepRun
    from karpenter_core.cli.simulate.workload import Workload

__all__ = ["register", "simulate"]

_POINTS: Final = 288
"""Steps of the series: five minutes of a day each."""
_STEPS: Final = (10, 30, 60, 300, 600, 900, 1800, 3600)
_STANDARD_OUTPUT: Final = Path("-")
_LONGEST: Final = 366 * 86400.0
_EARLIEST_YEAR: Final = 1970
_LATEST_YEAR: Final = 9000
"""Times before and after the simulation, such as ends of certificates, can be written too."""


class SimulationFormat(StrEnum):
    """Output formats of the command."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Compute the cost of a workload on NodePools, in simulated time."
    app.command("simulate", help=help_of(simulate), short_help=summary)(simulate)


def simulate(
    *,
    nodepools: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Files or folders with NodePools; may be repeated."),
    ],
    workload: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="Workload: YAML, a CSV trace, or Kubernetes objects; may be repeated.",
        ),
    ],
    duration: Annotated[str, typer.Option(help="Simulated time.")] = "24h",
    start: Annotated[
        str, typer.Option(metavar="TIME", help="Simulated time of the beginning (RFC 3339).")
    ] = "2030-01-01T00:00:00Z",
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Other NodePools for the same workload and seed, side by side; may be repeated.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Values of a setting, of seed, or of a field of NodePools; every combination is run.",
        ),
    ] = None,
    shard: Annotated[
        str,
        typer.Option(
            metavar="INDEX/COUNT",
            help="Run this part of a sweep only: one of COUNT parts, from 0; for an Indexed Job.",
        ),
    ] = "",
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the finished runs of a sweep here; runs that it has are not repeated. "
            "- prints only their lines.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Setting of `karpenter run`; may be repeated."
        ),
    ] = None,
    instance_types_file: Annotated[
        Path | None,
        typer.Option(help="Catalogue of instance types (JSON), for NodePools of any provider."),
    ] = None,
    node_startup: Annotated[
        str, typer.Option(metavar="DURATION", help="Time from a launch to the Ready node.")
    ] = "40s",
    spot_reclaims: Annotated[
        float,
        typer.Option(metavar="RATE", min=0, help="Reclaims of each spot instance per hour."),
    ] = 0.0,
    stock_outs: Annotated[
        float,
        typer.Option(metavar="RATE", min=0, help="Stock-outs of each offering in use per hour."),
    ] = 0.0,
    stock_out_duration: Annotated[
        str, typer.Option(metavar="DURATION", help="Time until an offering is in stock again.")
    ] = "30m",
    trace_columns: Annotated[
        str,
        typer.Option(
            metavar="FIELD=COLUMN,...",
            help="Columns of CSV traces, with a unit: cpu=cpu_milli:m,memory=memory_mib:Mi.",
        ),
    ] = "",
    trace_speed: Annotated[
        float,
        typer.Option(metavar="FACTOR", help="Factor by which the time of traces is accelerated."),
    ] = 1.0,
    step: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two points of the series.")
    ] = "",
    jobs: Annotated[
        int, typer.Option(min=0, help="Simulations at the same time; 0 = as many as cores.")
    ] = 0,
    output: Annotated[
        SimulationFormat, typer.Option("--output", "-o", help="Output format.")
    ] = SimulationFormat.TABLE,
) -> None:
    """Compute the cost of a workload on NodePools, in simulated time.

    The unchanged controllers of `karpenter run` work on an embedded cluster and a simulated cloud, in
    simulated time: a day of some dozen nodes takes less than a minute. The output has the cost, nodes,
    evictions, utilisation, and the time that pods waited for a node. The same input and seed give the
    same output.

    Exit code: 0 if the simulation has finished, even if pods stay pending; 1 if some runs of a sweep failed; 2 if
    files or settings cannot be used.
    """
    _require_embedded_cluster()
    from karpenter_core.cli.simulate.scenario import SimulationScenario
    from karpenter_core.cli.simulate.sweep import parse_axes, parse_shard
    from karpenter_core.cli.simulate.trace_file import parse_columns
    from karpenter_core.cli.simulate.workload_file import read_workload

    axes = parse_axes(sweep or ())
    if axes and compare:
        raise SettingsError("--sweep excludes --compare")
    if shard and not axes:
        raise SettingsError("--shard is a part of a sweep: add --sweep")
    if results is not None and not axes:
        raise SettingsError("--results keeps the runs of a sweep: add --sweep")
    part = parse_shard(shard)
    seconds = _seconds("--duration", duration)
    if not 0 < seconds <= _LONGEST:
        raise SettingsError(f"--duration: must be above zero and at most a year, not {duration}")
    begins = _time(start)
    trace_format = parse_columns(trace_columns, speed=trace_speed)

    def workload_of(its_seed: int) -> Workload:
        return read_workload(
            workload, start=begins, duration=seconds, seed=its_seed, trace_format=trace_format
        )

    scenario = SimulationScenario(
        name="",
        manifests=(),
        workload=workload_of(seed),
        start=begins,
        duration=seconds,
        step=_step(step, seconds),
        seed=seed,
        settings=tuple(_flags(setting or ())),
        instance_types_file=instance_types_file,
        node_startup=_seconds("--node-startup", node_startup),
        reclaims_per_hour=_rate("--spot-reclaims", spot_reclaims),
        stock_outs_per_hour=_rate("--stock-outs", stock_outs),
        stock_out_seconds=_seconds("--stock-out-duration", stock_out_duration),
    )
    scenarios = [
        _with_node_pools(scenario, files) for files in (nodepools, compare) if files is not None
    ]
    count = jobs or os.cpu_count() or 1
    if axes:
        runs = _swept_runs(scenarios[0], axes, part, workload_of)
        document = _sweep(runs, count, results, output)
        if document["failed"]:
            raise typer.Exit(1)
        return
    _print(_simulate(scenarios, count), output, is_sweep=False)


def _require_embedded_cluster() -> None:
    if find_spec("karpenter_core.sim") is None:
        raise SettingsError(
            "the embedded cluster is not installed, since images of clouds have none; use the image "
            "karpenter-core-kwok, or a checkout of karpenter-core (`make demo` installs it)"
        )


def _simulate(scenarios: Sequence[SimulationScenario], jobs: int) -> JsonObject:
    from karpenter_core.cli.plan import print_notes
    from karpenter_core.cli.simulate.batch import FailedRun, run_all
    from karpenter_core.cli.simulate.document import comparison

    simulations: list[JsonObject] = []
    notes: list[str] = []
    for outcome in run_all(_named_apart(scenarios), jobs=jobs):
        if isinstance(outcome, FailedRun):
            raise (
                BadInputError(outcome.error)
                if outcome.is_refused
                else KarpenterError(outcome.error)
            )
        simulations.append(outcome.document)
        notes += outcome.notes
    print_notes(dict.fromkeys(notes))
    document: JsonObject = {"simulations": simulations}
    if len(simulations) > 1:
        document["difference"] = comparison(*simulations)
    return document


def _swept_runs(
    scenario: SimulationScenario,
    axes: Sequence[SweepAxis],
    part: slice,
    workload_of: Callable[[int], Workload],
) -> list[SweepRun]:
    from karpenter_core.cli.simulate.sweep import swept

    every = list(swept(scenario, axes, workload_of))
    if not every[part]:
        raise SettingsError(f"--shard: there are only {len(every)} runs")
    return every[part]


def _sweep(
    runs: Sequence[SweepRun], jobs: int, results: Path | None, output: SimulationFormat
) -> JsonObject:
    """Run a sweep and print it: only lines of results if they are for the standard output."""
    from karpenter_core.cli.plan import print_notes
    from karpenter_core.cli.simulate.sweep_runs import run_sweep

    if results != _STANDARD_OUTPUT:
        document, notes = run_sweep(runs, jobs=jobs, results=results)
        print_notes(notes)
        _print(document, output, is_sweep=True)
        return document
    document, notes = run_sweep(runs, jobs=jobs, on_line=partial(print, flush=True))
    print_notes(notes)
    for failed in document["failed"]:
        values = " ".join(f"{key}={value}" for key, value in failed["values"].items())
        print(f"karpenter: {values}: {failed['error']}", file=sys.stderr)
    return document


def _print(document: JsonObject, output: SimulationFormat, *, is_sweep: bool) -> None:
    if output is SimulationFormat.JSON:
        from karpenter_core.cli.document import json_text

        print(json_text(document))
    elif output is SimulationFormat.HTML:
        from karpenter_core.cli.simulate.report import simulation_report, sweep_report

        print(sweep_report(document) if is_sweep else simulation_report(document), end="")
    else:
        from karpenter_core.cli.simulate.tables import print_simulations, print_sweep

        (print_sweep if is_sweep else print_simulations)(document)


def _with_node_pools(scenario: SimulationScenario, files: Sequence[Path]) -> SimulationScenario:
    from dataclasses import replace

    from karpenter_core.cli.plan import print_notes
    from karpenter_core.cli.simulate.scenario import read_node_pools

    has_catalogue = scenario.instance_types_file is not None
    manifests, notes = read_node_pools(files, has_catalogue=has_catalogue)
    print_notes(notes)
    return replace(scenario, name=" ".join(str(file) for file in files), manifests=manifests)


def _named_apart(scenarios: Sequence[SimulationScenario]) -> list[SimulationScenario]:
    """Return scenarios with different names, since the same files may be compared."""
    from dataclasses import replace

    names = [scenario.name for scenario in scenarios]
    if len(set(names)) == len(names):
        return list(scenarios)
    return [
        replace(scenario, name=f"{scenario.name} ({number})")
        for number, scenario in enumerate(scenarios, start=1)
    ]


def _flags(settings: Sequence[str]) -> list[str]:
    flags: list[str] = []
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator or not name.strip("-"):
            raise SettingsError(f'--set: "{text}" is not NAME=VALUE')
        flags.append(f"--{name.lstrip('-')}={value}")
    return flags


def _step(text: str, duration: float) -> float:
    if not text:
        return float(next((step for step in _STEPS if step * _POINTS >= duration), _STEPS[-1]))
    seconds = _seconds("--step", text)
    if not 1 <= seconds <= duration:
        raise SettingsError(f"--step: must be at least 1s and at most the duration, not {text}")
    return seconds


def _seconds(option: str, text: str) -> float:
    from karpenter_core.api.durations import parse_duration

    try:
        seconds = parse_duration(text) / timedelta(seconds=1)
    except ValueError:
        raise SettingsError(
            f'{option}: must be a duration such as 90s or 24h, not "{text}"'
        ) from None
    if seconds < 0:
        raise SettingsError(f"{option}: must not be negative, not {text}")
    return seconds


def _time(text: str) -> datetime:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f'--start: must be a time such as 2030-01-01T00:00:00Z, not "{text}"'
        ) from None
    if not _EARLIEST_YEAR <= read.year <= _LATEST_YEAR:
        raise SettingsError(
            f"--start: must be in a year from {_EARLIEST_YEAR} to {_LATEST_YEAR}, not {text}"
        )
    zoned = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).replace(microsecond=0)


def _rate(option: str, rate: float) -> float:
    if not isfinite(rate):
        raise SettingsError(f"{option}: must be finite, not {rate}")
    return rate
