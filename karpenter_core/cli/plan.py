"""`karpenter plan`: what would be launched for pods that wait, and why some stay pending.

The JSON is a contract that other tools read (`docs/reference/plan.md`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.cli.cluster import Cluster
    from karpenter_core.operator.settings import Settings
    from karpenter_core.scheduling.problem import SchedulingPlan, SolveOptions

__all__ = ["plan", "register"]


class Output(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


class PackingMode(StrEnum):
    """Values of `--packing`, as `scheduling.problem.Packing` has them."""

    VALUE = "value"
    FIRST_FIT = "first-fit"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("plan")(plan)


def plan(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="YAML or JSON files with Kubernetes objects, or folders of such files.",
        ),
    ],
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Plan for the objects in the files, without a cluster."),
    ] = False,
    instance_types_file: Annotated[
        Path | None,
        typer.Option(help="Catalogue of instance types (JSON) in place of the provider's own."),
    ] = None,
    ignore_preferences: Annotated[
        bool, typer.Option("--ignore-preferences", help="Do not try preferences of pods.")
    ] = False,
    packing: Annotated[
        PackingMode, typer.Option(help="The cheapest plan, or first-fit like the reference.")
    ] = PackingMode.VALUE,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to show the plan.")
    ] = Output.TABLE,
) -> None:
    """Show which nodes would be launched for pending pods, and why some pods stay pending."""
    import json

    from karpenter_core.cli.document import plan_document
    from karpenter_core.cli.tables import print_plan
    from karpenter_core.errors import SettingsError

    if not offline:
        raise SettingsError("plan: only --offline, with files, is supported by this version")
    started = time.perf_counter()
    cluster = asyncio.run(_read_offline(files, instance_types_file, ignore_preferences, packing))
    read = time.perf_counter()
    solved = _solve(cluster)
    done = time.perf_counter()
    document = plan_document(cluster, solved)
    document["timings"] = {
        "readSeconds": round(read - started, 6),
        "solveSeconds": round(done - read, 6),
    }
    _print_notes(cluster)
    if output is Output.JSON:
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        print_plan(document)


async def _read_offline(
    files: list[Path],
    instance_types_file: Path | None,
    ignore_preferences: bool,
    packing: PackingMode,
) -> Cluster:
    from karpenter_core.cli.offline import read_offline
    from karpenter_core.operator.settings import Settings

    options = _options(Settings(), ignore_preferences=ignore_preferences, packing=packing)
    return await read_offline(files, instance_types_file=instance_types_file, options=options)


def _options(
    settings: Settings, *, ignore_preferences: bool, packing: PackingMode | None
) -> Callable[[int], SolveOptions]:
    """Return how to solve, given the most instance types that a claim may name."""
    from dataclasses import replace

    from karpenter_core.operator.wiring import solve_options
    from karpenter_core.scheduling.problem import Packing, PreferencePolicy

    def options(most: int) -> SolveOptions:
        found = solve_options(settings, max_instance_types=most)
        if ignore_preferences:
            found = replace(found, preferences=PreferencePolicy.IGNORE)
        return found if packing is None else replace(found, packing=Packing(packing.value))

    return options


def _solve(cluster: Cluster) -> SchedulingPlan:
    from karpenter_core.scheduling.solve import solve

    return solve(cluster.input.problem, cluster.options)


def _print_notes(cluster: Cluster) -> None:
    notes: list[Any] = [*cluster.notes]
    notes += [
        f'NodePool "{name}" is not used: {why}' for name, why in cluster.unusable_pools.items()
    ]
    for note in notes:
        print(f"karpenter: note: {note}", file=sys.stderr)
