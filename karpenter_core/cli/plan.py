"""`karpenter plan`: nodes to launch, and reasons of pods that stay pending.

The JSON is a contract that other tools read (`docs/reference/plan.md`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from karpenter_core.cli.cluster_options import takes_cluster
from karpenter_core.cli.cluster_source import ClusterSource, help_of
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = ["plan", "print_notes", "refused_launches", "register", "solve_cluster"]


class PlanFormat(StrEnum):
    """Output formats of the command."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = (
        "Show the nodes that would be launched for pending pods, and those that would be removed."
    )
    app.command("plan", help=help_of(plan), short_help=summary)(plan)


@takes_cluster
def plan(
    source: ClusterSource,
    rebalance: Annotated[
        bool,
        typer.Option(
            "--rebalance",
            help="Show the steps of consolidation until nothing more can be saved, with their savings.",
        ),
    ] = False,
    output: Annotated[
        PlanFormat, typer.Option("--output", "-o", help="Output format; html with --rebalance.")
    ] = PlanFormat.TABLE,
) -> None:
    """Show the nodes that would be launched and removed, and why pods stay pending.

    Without --offline it reads the current cluster (get and list only, nothing is changed) and plans
    for its pending pods. FILEs are added to the cluster as if they had been applied, which shows
    the effect of a changed NodePool in advance. Settings come from the variables that `karpenter run`
    reads, such as PROVIDERS and CLUSTER_NAME.

    With --offline it uses only the FILEs.

    With --rebalance it shows the steps of consolidation until nothing more can be saved. The steps respect
    budgets and PodDisruptionBudgets. Each step has its savings, and each node that stays has its obstacle.

    Exit code: 0 if a plan was made, even if pods stay pending; 2 if files, settings or the cluster
    cannot be used.
    """
    from karpenter_core.cli.document import json_text, plan_document
    from karpenter_core.cli.provisioning_requests import requests_document
    from karpenter_core.cli.static_pools import static_pools_document

    if output is PlanFormat.HTML and not rebalance:
        raise SettingsError("--output html is the report of a rebalance: add --rebalance")
    started = time.perf_counter()
    command_input = asyncio.run(replace(source, with_decisions=not rebalance).read())
    read = time.perf_counter()
    if rebalance:
        _show_rebalance(command_input, output)
        return
    solved = solve_cluster(command_input.cluster)
    document = plan_document(command_input.cluster, solved)
    static_pools = static_pools_document(
        command_input.cluster, static_capacity=command_input.static_capacity
    )
    requests = requests_document(command_input.cluster)
    if requests:
        document["provisioningRequests"] = requests
    if static_pools:
        document["staticNodePools"] = static_pools
    refusals = refused_launches(command_input, solved)
    if refusals:
        document["refusedByController"] = refusals
    disruption = _disruption(command_input)
    if disruption is not None:
        document["disruption"] = disruption
    document["timings"] = {
        "readSeconds": round(read - started, 6),
        "solveSeconds": round(time.perf_counter() - read, 6),
    }
    unused = command_input.cluster.unusable_pools.items()
    print_notes(command_input.cluster.notes)
    print_notes(f'NodePool "{name}" is not used: {why}' for name, why in unused)
    for message, pods in Counter(refusals.values()).most_common():
        noun = "pod" if pods == 1 else "pods"
        print_notes(
            [f"the controller launches no node now for {pods} {noun} of this plan: {message}"]
        )
    if output is PlanFormat.JSON:
        print(json_text(document))
        return
    from karpenter_core.cli.tables import print_plan

    before = command_input.before
    print_plan(document, None if before is None else plan_document(before, solve_cluster(before)))
    if disruption is not None:
        from karpenter_core.cli.rebalance.tables import print_disruption

        print_disruption(disruption, solved.cost.hourly)


def refused_launches(command_input: CommandInput, plan: SchedulingPlan) -> dict[str, str]:
    """Return the pods with a planned node for which the controller launches none, with its reasons."""
    return {
        pod.key: refusal.message
        for claim in plan.claims
        for pod in claim.pods
        if (refusal := command_input.refusal_of(pod)) is not None
    }


def _disruption(command_input: CommandInput) -> JsonObject | None:
    """Return the disruptions of this pass; None for a cluster without nodes of NodePools."""
    if not command_input.cluster.snapshot.state_nodes_by_claim:
        return None
    from karpenter_core.cli.rebalance.document import rebalance_document
    from karpenter_core.cli.rebalance.simulation import disruptions_now

    return rebalance_document(disruptions_now(command_input))


def _show_rebalance(command_input: CommandInput, output: PlanFormat) -> None:
    from karpenter_core.cli.document import json_text
    from karpenter_core.cli.plan_notes import unmanaged_notes
    from karpenter_core.cli.rebalance.document import rebalance_document
    from karpenter_core.cli.rebalance.simulation import simulate_rebalance
    from karpenter_core.cli.rebalance.tables import answer_line, print_rebalance

    document = rebalance_document(simulate_rebalance(command_input))
    if output is PlanFormat.JSON:
        print(json_text(document))
        return
    print_notes(command_input.cluster.notes)
    print_notes(unmanaged_notes(command_input.cluster.snapshot))
    if output is PlanFormat.HTML:
        from karpenter_core.cli.rebalance.report import rebalance_report

        print(rebalance_report(document, answer_line(document)), end="")
        return
    print_rebalance(document)


def solve_cluster(cluster: ClusterInput) -> SchedulingPlan:
    """Return the plan for a cluster."""
    from karpenter_core.scheduling.isolation import solve_isolated

    return solve_isolated(cluster.input.problem, cluster.options)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, beside the result."""
    for note in notes:
        print(f"karpenter: note: {note}", file=sys.stderr)
