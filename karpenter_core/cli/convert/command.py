"""`karpenter convert`: reads files; prints manifests, changes and losses."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from karpenter_core.cli.cluster_source import OutputFormat, help_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.contract import Conversion
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["register"]

_HAS_LOSSES: Final = 1


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("convert", no_args_is_help=True, help=help_of(_convert))(_convert)


def _convert(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files and folders with manifests (YAML or JSON), or - for the standard input."
        ),
    ],
    output: Annotated[
        OutputFormat,
        typer.Option(
            "--output",
            "-o",
            help="table: YAML, and a report on stderr; json: both in one document.",
        ),
    ] = OutputFormat.TABLE,
    all_fields: Annotated[
        bool, typer.Option("--all-fields", help="Also report fields that only moved.")
    ] = False,
) -> None:
    """Convert older manifests and node groups to karpenter.sh/v1, with their comments.

    Needs no cluster. Converts Provisioners (v1alpha5), NodePools of v1beta1, workloads with older labels,
    and the older kinds of the installed providers, for example AWSNodeTemplates and Auto Scaling groups.
    Other objects are written unchanged. The report has a reason for each field that is not converted.

    Exit code: 0 if everything was converted; 1 if a document or a field was not; 2 if files cannot be used.
    """
    from karpenter_core.cli.convert.checks import kubelet_fields, manifest_errors
    from karpenter_core.cli.convert.cluster_autoscaler import CLUSTER_AUTOSCALER_CONVERSIONS
    from karpenter_core.cli.convert.node_pools import NodeClassKinds, node_pool_conversions
    from karpenter_core.cli.convert.report import json_document, print_report
    from karpenter_core.cli.convert.session import convert_documents
    from karpenter_core.cli.convert.sources import read_sources
    from karpenter_core.cli.convert.workloads import WORKLOAD_CONVERSIONS
    from karpenter_core.provider.host.manager import load_plugins

    plugins = load_plugins()
    of_plugins = _conversions(plugins)
    successors = {old: new for each in of_plugins for old, new in each.successors.items()}
    of_core = (*WORKLOAD_CONVERSIONS, *CLUSTER_AUTOSCALER_CONVERSIONS)
    models = [
        kind for provider in plugins.providers.values() for kind in provider.info.node_classes
    ]
    kinds = NodeClassKinds(successors=successors, kubelet_fields=kubelet_fields(models))
    conversions = (*node_pool_conversions(kinds), *of_core, *of_plugins)
    documents = read_sources(files, tell=partial(print, file=sys.stderr))
    results = convert_documents(documents, conversions)
    errors = manifest_errors(results, models)
    if output is OutputFormat.JSON:
        from karpenter_core.cli.document import json_text

        print(json_text(json_document(results, errors)))
    else:
        sys.stdout.write("---\n".join(text for result in results for text in result.texts))
        print_report(results, errors, all_fields=all_fields)
    if any(result.has_losses for result in results):
        raise typer.Exit(_HAS_LOSSES)


def _conversions(plugins: Plugins) -> tuple[Conversion, ...]:
    """Return the conversions that plug-ins declare."""
    from karpenter_core.provider.host.hooks import DECLARE_CONVERSIONS

    found: list[Conversion] = []
    for name in plugins.implementers(DECLARE_CONVERSIONS.name):
        declare = plugins.caller(DECLARE_CONVERSIONS.name, name)
        answers = () if declare is None else cast("Iterable[object]", declare())
        where = f'plug-in "{name}": {DECLARE_CONVERSIONS.name}'
        for answer in answers:
            found += DECLARE_CONVERSIONS.answer.read(answer, count=None, where=where) or ()
    return tuple(found)
