"""`karpenter explain`: reasons of pending pods, kept nodes, limited NodePools.

The commands run the code that makes the decisions: they solve the same problem, run the same
methods, and print the results for the pod or the node.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from karpenter_core.cli.cluster_options import takes_cluster
from karpenter_core.cli.cluster_source import ClusterSource, OutputFormat, help_of
from karpenter_core.errors import BadInputError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput

__all__ = ["register"]

T = TypeVar("T")

_Answer = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    explain = typer.Typer(
        no_args_is_help=True,
        help="Explain why a pod is pending, why a node stays, what a NodePool may launch, what a NodeClaim waits for.",
    )
    summary = "Explain where a pod is placed, or why it stays pending."
    explain.command("pod", help=help_of(pod), short_help=summary)(pod)
    summary = "Explain why a node is or is not disrupted now."
    explain.command("node", help=help_of(node), short_help=summary)(node)
    summary = "Explain what a NodePool may launch now."
    explain.command("nodepool", help=help_of(nodepool), short_help=summary)(nodepool)
    summary = "Explain what a NodeClaim waits for, and what blocks its removal."
    explain.command("nodeclaim", help=help_of(nodeclaim), short_help=summary)(nodeclaim)
    explain.callback()(_explain)
    app.add_typer(explain, name="explain")


def _explain() -> None:
    """Explain why a pod is pending, why a node stays, what a NodePool may launch, what a NodeClaim waits for."""


@takes_cluster
def pod(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/NAME", help="Name of the pod, as NAMESPACE/NAME or NAME."
        ),
    ],
    source: ClusterSource,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of a pod that is given as NAME; by default that of the context, or `default`.",
            show_default=False,
        ),
    ] = None,
    output: _Answer = OutputFormat.TABLE,
) -> None:
    """Explain where a pod is placed, or which constraint fails first for each NodePool.

    The output includes the instance type that comes closest, and the required change. Reads the
    current cluster (get and list only) with the FILEs added, or with --offline only the FILEs.
    Settings come from the variables that `karpenter run` reads.

    Exit code: 0 if there is an answer; 2 if the pod does not exist, or if files, settings or the
    cluster cannot be used.
    """
    key = _pod_key(name, namespace, source)
    command_input = asyncio.run(replace(source, with_decisions=True).read())
    from karpenter_core.cli.explain.tables import print_explanation

    document = _answer(command_input, key)
    _show(command_input, document, output, print_explanation)


@takes_cluster
def node(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the Node or of its NodeClaim.")
    ],
    source: ClusterSource,
    output: _Answer = OutputFormat.TABLE,
) -> None:
    """Explain why a node is or is not disrupted now, for each disruption method.

    Shows the first obstacle (a pod, a budget, an annotation, by name, and until when), or the
    command: where the pods would move, which nodes would replace it, and the savings. Reads the
    current cluster (get and list only) with the FILEs added, or with --offline only the FILEs.

    Exit code: 0 if there is an answer; 2 if the node does not exist, or if files, settings or the
    cluster cannot be used.
    """
    command_input = asyncio.run(source.read())
    from karpenter_core.cli.explain.node import find_state_node, node_explanation
    from karpenter_core.cli.explain.tables import print_node_explanation

    document = node_explanation(command_input, _found(find_state_node, command_input, name))
    _show(command_input, document, output, print_node_explanation)


@takes_cluster
def nodepool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the NodePool.")],
    source: ClusterSource,
    output: _Answer = OutputFormat.TABLE,
) -> None:
    """Explain what a NodePool may launch now, and what prevents launches.

    Shows first whether it launches nodes, or the first condition, limit or CapacityQuota that prevents
    launches; then the remaining amount of every limit, and the replicas of a static NodePool.
    Reads the current cluster (get and list only) with the FILEs added, or with --offline only the FILEs.

    Exit code: 0 if there is an answer; 2 if the NodePool does not exist, or if files, settings or the
    cluster cannot be used.
    """
    command_input = asyncio.run(replace(source, with_decisions=True).read())
    from karpenter_core.cli.explain.nodepool import find_node_pool, node_pool_explanation
    from karpenter_core.cli.explain.tables import print_node_pool_explanation
    from karpenter_core.cli.plan import solve_cluster

    cluster = command_input.cluster
    pool_found = _found(find_node_pool, command_input, name)
    document = node_pool_explanation(command_input, pool_found, solve_cluster(cluster))
    _show(command_input, document, output, print_node_pool_explanation)


@takes_cluster
def nodeclaim(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the NodeClaim or of its Node.")
    ],
    source: ClusterSource,
    output: _Answer = OutputFormat.TABLE,
) -> None:
    """Explain what a NodeClaim waits for, or what blocks its removal.

    Shows first its state and the first cause; then why it was launched, its price, its conditions, and
    for a ready one what each disruption method would do with its node. Reads the current cluster (get and
    list only) with the FILEs added, or with --offline only the FILEs.

    Exit code: 0 if there is an answer; 2 if the NodeClaim does not exist, or if files, settings or the
    cluster cannot be used.
    """
    command_input = asyncio.run(source.read())
    from karpenter_core.cli.explain.nodeclaim import find_node_claim, node_claim_explanation
    from karpenter_core.cli.explain.tables import print_node_claim_explanation

    found = _found(find_node_claim, command_input, name)
    document = node_claim_explanation(command_input, found)
    _show(command_input, document, output, print_node_claim_explanation)


def _pod_key(name: str, namespace: str | None, source: ClusterSource) -> str:
    """Return the `namespace/name` of a pod that is given with or without its namespace."""
    given, slash, _ = name.rpartition("/")
    if not slash:
        return f"{namespace or source.find_namespace()}/{name}"
    if namespace not in (None, given):
        raise SettingsError(f'the pod "{name}" is not in the namespace "{namespace}"')
    return name


def _answer(command_input: CommandInput, key: str) -> dict[str, object]:
    from karpenter_core.cli.explain.pod import find_pod, pod_explanation
    from karpenter_core.cli.plan import solve_cluster

    cluster = command_input.cluster
    pod_found = _found(find_pod, command_input, key)
    return pod_explanation(
        cluster,
        pod_found,
        solve_cluster(cluster),
        is_live=command_input.is_live,
        refusal=command_input.refusal_of(pod_found),
    )


def _found(find: Callable[[ClusterInput, str], T], command_input: CommandInput, name: str) -> T:
    """Find an object; if it is not there, tell which objects could not be read: it may be among them."""
    from karpenter_core.cli.plan import print_notes

    try:
        return find(command_input.cluster, name)
    except BadInputError:
        print_notes(command_input.cluster.notes)
        raise


def _show(
    command_input: CommandInput,
    document: Mapping[str, object],
    output: OutputFormat,
    print_table: Callable[[Mapping[str, object]], None],
) -> None:
    if output is OutputFormat.JSON:
        from karpenter_core.cli.document import json_text

        print(json_text(document))
        return
    from karpenter_core.cli.plan import print_notes

    print_notes(command_input.cluster.notes)
    print_table(document)
