"""Options of all commands that select the cluster and the way to plan.

A command that reads a cluster takes a `ClusterSource` named `source`; `takes_cluster` puts these options
in the place of that parameter, so that no command can miss one that another command has.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias, get_type_hints

import typer

from karpenter_core.cli.cluster_source import ClusterSource, PackingMode

__all__ = ["takes_cluster"]

_Command: TypeAlias = "Callable[..., None]"
_SOURCE = "source"


def _options(
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
        typer.Option("--offline", help="Use only the objects in the files, without a cluster."),
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig of the cluster; by default that of `karpenter run`."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context within the kubeconfig; by default the current one.")
    ] = None,
    instance_types_file: Annotated[
        Path | None,
        typer.Option(
            help="Catalogue of instance types (JSON) that replaces those of the providers."
        ),
    ] = None,
    ignore_preferences: Annotated[
        bool, typer.Option("--ignore-preferences", help="Ignore the preferences of pods.")
    ] = False,
    packing: Annotated[
        PackingMode | None,
        typer.Option(
            help="value = the cheapest valid plan (default), first-fit = the plan in Karpenter's "
            "order.",
            show_default=False,
        ),
    ] = None,
    commitments: Annotated[
        str | None,
        typer.Option(
            "--commitments",
            help="Capacity that is paid for in advance, as for `karpenter run`.",
            show_default=False,
        ),
    ] = None,
    scheduler_config: Annotated[
        str | None,
        typer.Option(
            help="Default topology spread constraints, as for `karpenter run`.", show_default=False
        ),
    ] = None,
) -> ClusterSource:
    return ClusterSource(
        files=tuple(files or ()),
        offline=offline,
        kubeconfig=kubeconfig,
        context=context,
        instance_types_file=instance_types_file,
        ignore_preferences=ignore_preferences,
        packing=packing,
        commitments=commitments,
        scheduler_config=scheduler_config,
    )


def takes_cluster(command: _Command) -> _Command:
    """Return the command with the options of a cluster in the place of its parameter `source`."""
    option_parameters = _parameters(_options)
    own = _parameters(command)
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        for parameter in (option_parameters.values() if name == _SOURCE else (one,))
    ]

    @functools.wraps(command)
    def run(**values: object) -> None:
        given = {name: values.pop(name) for name in option_parameters}
        from karpenter_core.kube.garbage_collector import tune_gc

        undo = tune_gc()  # the objects of a cluster are millions, and all are kept
        try:
            command(source=_options(**given), **values)  # pyright: ignore[reportArgumentType] - typer has converted the values by the same signature
        finally:
            undo()

    del run.__wrapped__  # typer would read the signature of the command itself
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] - inspect reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, with annotations that are types and no text."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
    }
