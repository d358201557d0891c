"""`karpenter plan`: nodes to launch for pending pods, and why some pods stay pending.

The JSON is a contract that other tools read (`docs/reference/plan.md`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from karpenter_core.cli.cluster_options import takes_cluster
from karpenter_core.cli.cluster_source import ClusterSource, OutputFormat, help_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = ["plan", "print_notes", "register", "solve_cluster"]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Show which nodes would be launched for pending pods."
    app.command("plan", help=help_of(plan), short_help=summary)(plan)


@takes_cluster
def plan(
    source: ClusterSource,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="Output format.")
    ] = OutputFormat.TABLE,
) -> None:
    """Show which nodes would be launched for pending pods, and why some pods stay pending.

    Without --offline it reads the current cluster (get and list only, nothing is changed) and plans
    for its pending pods. FILEs are added to the cluster as if they had been applied, which shows
    the effect of a changed NodePool in advance.

    With --offline it uses only the FILEs.

    Exit code: 0 if a plan was made, even if pods stay pending; 2 if files, settings or the cluster
    cannot be used.
    """
    from karpenter_core.cli.document import json_text, plan_document
    from karpenter_core.cli.provisioning_requests import requests_document
    from karpenter_core.cli.static_pools import static_pools_document

    started = time.perf_counter()
    command_input = asyncio.run(source.read())
    read = time.perf_counter()
    document = plan_document(command_input.cluster, solve_cluster(command_input.cluster))
    static_pools = static_pools_document(
        command_input.cluster, static_capacity=command_input.static_capacity
    )
    requests = requests_document(command_input.cluster)
    if requests:
        document["provisioningRequests"] = requests
    if static_pools:
        document["staticNodePools"] = static_pools
    document["timings"] = {
        "readSeconds": round(read - started, 6),
        "solveSeconds": round(time.perf_counter() - read, 6),
    }
    unused = command_input.cluster.unusable_pools.items()
    print_notes(command_input.cluster.notes)
    print_notes(f'NodePool "{name}" is not used: {why}' for name, why in unused)
    if output is OutputFormat.JSON:
        print(json_text(document))
        return
    from karpenter_core.cli.tables import print_plan

    before = command_input.before
    print_plan(document, None if before is None else plan_document(before, solve_cluster(before)))


def solve_cluster(cluster: ClusterInput) -> SchedulingPlan:
    """Return the plan for a cluster."""
    from karpenter_core.scheduling.isolation import solve_isolated

    return solve_isolated(cluster.input.problem, cluster.options)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, beside the result."""
    for note in notes:
        print(f"karpenter: note: {note}", file=sys.stderr)
