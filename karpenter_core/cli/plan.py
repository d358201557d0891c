"""`karpenter plan --offline`: what would be launched for the pods in some files, and why not more.

The JSON is a contract that other tools read; apart from `timings` it is the same, byte for byte,
on every run and in any process.
"""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from karpenter_core.cli.offline import OfflineCluster
    from karpenter_core.scheduling.problem import (
        PlannedNodeClaim,
        SchedulingPlan,
        Unschedulable,
    )

__all__ = ["plan", "register"]

_SHOWN_PODS: Final = 20


class Output(StrEnum):
    """How the plan is shown."""

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
    import sys

    from karpenter_core.errors import SettingsError

    if not offline:
        raise SettingsError("plan: only --offline, with files, is supported by this version")
    document, cluster = _solve(
        files,
        instance_types_file=instance_types_file,
        ignore_preferences=ignore_preferences,
        packing=packing,
    )
    for kind, count in sorted(cluster.skipped.items()):
        print(f"karpenter: {count} objects of kind {kind} ignored", file=sys.stderr)
    if output is Output.JSON:
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        _print_tables(document)


def _solve(
    files: list[Path],
    *,
    instance_types_file: Path | None,
    ignore_preferences: bool,
    packing: PackingMode,
) -> tuple[dict[str, Any], OfflineCluster]:
    from karpenter_core.cli.offline import read_cluster
    from karpenter_core.scheduling.problem import Packing, PreferencePolicy, SolveOptions
    from karpenter_core.scheduling.solve import solve

    started = time.perf_counter()
    cluster = asyncio.run(read_cluster(files, instance_types_file=instance_types_file))
    read = time.perf_counter()
    options = SolveOptions(
        packing=Packing(packing.value),
        preferences=PreferencePolicy.IGNORE if ignore_preferences else PreferencePolicy.RESPECT,
    )
    solved = solve(cluster.input.problem, options)
    done = time.perf_counter()
    document = _document(cluster, solved)
    document["timings"] = {
        "readSeconds": round(read - started, 6),
        "solveSeconds": round(done - read, 6),
    }
    return document, cluster


def _document(cluster: OfflineCluster, solved: SchedulingPlan) -> dict[str, Any]:
    """Write a plan as the JSON contract has it."""
    existing: dict[str, list[str]] = {
        name: [pod.key for pod in pods] for name, pods in cluster.input.waiting.items()
    }
    for name, pods in solved.existing.items():
        existing.setdefault(name, []).extend(pod.key for pod in pods)
    return {
        "nodeClaims": [_claim(claim) for claim in solved.claims],
        "existingNodes": {name: existing[name] for name in sorted(existing)},
        "unschedulable": dict(sorted(_pending(cluster, solved).items())),
        "cost": {
            "hourly": solved.cost.hourly,
            "lowerBound": solved.cost.lower_bound,
            "firstFit": solved.cost.first_fit,
        },
    }


def _claim(claim: PlannedNodeClaim) -> dict[str, Any]:
    return {
        "nodePool": claim.pool,
        "pods": [pod.key for pod in claim.pods],
        "instanceTypes": list(claim.instance_types),
        "cheapest": {
            "instanceType": claim.cheapest.instance_type,
            "zone": claim.cheapest.zone,
            "capacityType": claim.cheapest.capacity_type,
            "price": claim.cheapest.price_per_hour,
        },
        "requirements": [
            {
                "key": spec.key,
                "operator": spec.operator,
                "values": list(spec.values),
                **({} if spec.min_values is None else {"minValues": spec.min_values}),
            }
            for requirement in claim.requirements
            for spec in requirement.to_specs()
        ],
    }


def _pending(cluster: OfflineCluster, solved: SchedulingPlan) -> dict[str, Any]:
    """Return why pods stay pending: those the plan left, and those nobody may be asked about."""
    pools = [pool.name for pool in cluster.input.problem.pools]
    by_uid = {pod.uid: pod for pod in cluster.input.problem.pods}
    pending = {by_uid[uid].key: _reasons(why) for uid, why in solved.unschedulable.items()}
    for ignored in cluster.input.ignored:
        constraint = "volume" if ignored.pod.shape.volumes else "requirement"
        reason = {"constraint": constraint, "detail": ignored.reason, "closest": "", "remedy": ""}
        pending[ignored.pod.key] = {
            "message": ignored.reason,
            "pools": dict.fromkeys(pools, reason),
        }
    for pod in cluster.snapshot.pods.values():
        if pod.shape.scheduling_gates and pod.is_active and not pod.node_name:
            gates = ", ".join(pod.shape.scheduling_gates)
            pending[pod.key] = {"message": f"held by scheduling gates: {gates}", "pools": {}}
    return pending


def _reasons(why: Unschedulable) -> dict[str, Any]:
    return {
        "message": why.message,
        "pools": {
            name: {
                "constraint": rejection.constraint.value,
                "detail": rejection.detail,
                "closest": rejection.closest,
                "remedy": rejection.remedy,
            }
            for name, rejection in why.pools.items()
        },
    }


# -- tables ----------------------------------------------------------------------------------------


def _print_tables(document: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    claims: list[dict[str, Any]] = document["nodeClaims"]
    if claims:
        console.print(_claims_table(claims))
    if document["existingNodes"]:
        console.print(_existing_table(document["existingNodes"]))
    if document["unschedulable"]:
        console.print(_pending_table(document["unschedulable"]))
    cost: dict[str, Any] = document["cost"]
    placed = sum(len(claim["pods"]) for claim in claims)
    kept = sum(len(pods) for pods in document["existingNodes"].values())
    console.print(
        f"{len(claims)} nodes to launch for {placed} pods at {cost['hourly']:.4f} per hour "
        f"(first-fit: {cost['firstFit']:.4f}); {kept} pods on nodes that are there; "
        f"{len(document['unschedulable'])} pods stay pending",
        highlight=False,
        soft_wrap=True,
    )


def _table(title: str, *headings: str, numbers: Sequence[str] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for claim in claims:
        cheapest: dict[str, Any] = claim["cheapest"]
        key = (claim["nodePool"], *cheapest.values(), len(claim["instanceTypes"]))
        groups.setdefault(key, []).append(len(claim["pods"]))
    table = _table(
        "Nodes to launch", "pool", "cheapest offering",
        numbers=("types", "nodes", "pods", "price/h", "sum/h"),
    )  # fmt: skip
    for (pool, name, zone, kind, price, types), pods in groups.items():
        offering = _plain(f"{name} {zone} {kind}")
        counts = (types, len(pods), sum(pods))
        sums = (f"{price:.4f}", f"{price * len(pods):.4f}")
        table.add_row(_plain(pool), offering, *map(str, counts), *sums)
    return table


def _existing_table(existing: dict[str, list[str]]) -> Table:
    table = _table("Nodes that are there", "node", numbers=("pods",))
    for name, pods in existing.items():
        table.add_row(_plain(name), str(len(pods)))
    return table


def _pending_table(pending: dict[str, Any]) -> Table:
    reasons: dict[str, list[str]] = {}
    for pod, why in pending.items():
        reasons.setdefault(why["message"], []).append(pod)
    table = _table("Pods that stay pending", "pods", "why")
    for message, pods in reasons.items():
        shown = pods[:_SHOWN_PODS]
        more = len(pods) - len(shown)
        names = [*shown, *([f"and {more} more"] if more else [])]
        table.add_row(_plain("\n".join(names)), _plain(message))
    return table


def _plain(text: str) -> Text:
    """Show text as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(text)
