"""`karpenter plan`: what would be launched for pods that wait, and why some stay pending.

The JSON is a contract that other tools read (`docs/reference/plan.md`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from karpenter_core.cli.source import Output, PackingMode, Source, help_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.cli.cluster import Cluster
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = ["plan", "print_notes", "register", "solved"]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Show which nodes would be launched for pending pods."
    app.command("plan", help=help_of(plan), short_help=summary)(plan)


def plan(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="YAML or JSON files with Kubernetes objects, folders of such files, or - for the "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Plan for the objects in the files alone."),
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig of the cluster; as for `karpenter run` if left out."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context within the kubeconfig; its current one if left out.")
    ] = None,
    instance_types_file: Annotated[
        Path | None,
        typer.Option(help="Catalogue of instance types (JSON) in place of the providers' own."),
    ] = None,
    ignore_preferences: Annotated[
        bool, typer.Option("--ignore-preferences", help="Do not try preferences of pods.")
    ] = False,
    packing: Annotated[
        PackingMode | None,
        typer.Option(
            help="value = the cheapest valid plan (the default), first-fit = the order of the "
            "reference.",
            show_default=False,
        ),
    ] = None,
    scheduler_config: Annotated[
        str | None,
        typer.Option(help="Default topology spread, as for `karpenter run`.", show_default=False),
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to show the plan.")
    ] = Output.TABLE,
) -> None:
    """Show which nodes would be launched for pending pods, and why some pods stay pending.

    Without --offline it reads the current cluster (get and list only, nothing is changed) and
    plans for the pods that wait there now. FILEs then lie over the cluster as if they had been
    applied: so the effect of a changed NodePool can be seen before it is made.

    With --offline it plans for what is in the FILEs and nothing else.

    Exit code: 0 when a plan was made, also if pods stay pending; 2 when files, settings or the
    cluster cannot be used.
    """
    from karpenter_core.cli.document import json_text, plan_document

    source = Source(
        files=tuple(files or ()),
        offline=offline,
        kubeconfig=kubeconfig,
        context=context,
        instance_types_file=instance_types_file,
        ignore_preferences=ignore_preferences,
        packing=packing,
        scheduler_config=scheduler_config,
    )
    started = time.perf_counter()
    question = asyncio.run(source.read())
    read = time.perf_counter()
    document = plan_document(question.cluster, solved(question.cluster))
    document["timings"] = {
        "readSeconds": round(read - started, 6),
        "solveSeconds": round(time.perf_counter() - read, 6),
    }
    unused = question.cluster.unusable_pools.items()
    print_notes(question.cluster.notes)
    print_notes(f'NodePool "{name}" is not used: {why}' for name, why in unused)
    if output is Output.JSON:
        print(json_text(document))
        return
    from karpenter_core.cli.tables import print_plan

    before = question.before
    print_plan(document, None if before is None else plan_document(before, solved(before)))


def solved(cluster: Cluster) -> SchedulingPlan:
    """Return the plan for a cluster."""
    from karpenter_core.scheduling.solve import solve

    return solve(cluster.input.problem, cluster.options)


def print_notes(notes: Iterable[str]) -> None:
    """Say on stderr what people should know beside the result."""
    for note in notes:
        print(f"karpenter: note: {note}", file=sys.stderr)
