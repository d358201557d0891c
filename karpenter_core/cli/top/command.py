"""`karpenter top`: nodes, pending pods and costs, live or as one frame."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from karpenter_core.cli.cluster_options import takes_cluster
from karpenter_core.cli.cluster_source import ClusterSource, OutputFormat, help_of
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from karpenter_core.cli.top.order import Sorting
    from karpenter_core.cli.top.view import ViewOptions

__all__ = ["register", "top"]

_LEAST_REFRESH: Final = 0.1
_STDIN: Final = Path("-")


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Show nodes, their requests and prices, and pending pods with reasons, live."
    app.command("top", help=help_of(top), short_help=summary)(top)


@takes_cluster
def top(
    source: ClusterSource,
    once: Annotated[
        bool,
        typer.Option("--once", help="Print one frame and end; the default without a terminal."),
    ] = False,
    refresh: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=_LEAST_REFRESH,
            help="Least time between two views of a cluster that is watched (0.15), or time between two "
            "readings (5).",
            show_default=False,
        ),
    ] = None,
    resources: Annotated[
        str, typer.Option(metavar="NAMES", help="Resources with a bar, separated by commas.")
    ] = "cpu,memory",
    node_selector: Annotated[
        str, typer.Option(metavar="KEY=VALUE,...", help="Labels of the nodes to show and count.")
    ] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="COLUMN[=asc|dsc]",
            help="name, pool, type, zone, capacity, state, age, cpu, memory, pods or price.",
        ),
    ] = "name",
    filter_text: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="WORDS",
            help="Show the nodes that match every word; pool:, type:, zone:, capacity: and state: "
            "name a field.",
        ),
    ] = "",
    no_prices: Annotated[bool, typer.Option("--no-prices", help="Leave out prices.")] = False,
    output: Annotated[
        OutputFormat,
        typer.Option("--output", "-o", help="Output format; json prints one frame."),
    ] = OutputFormat.TABLE,
) -> None:
    """Show nodes, their requests and prices, and pending pods with reasons, live.

    Reads the current cluster (get, list and watch only, nothing is changed): it is listed once and then
    watched. FILEs are added to it, or read alone with --offline; with FILEs, and without the permission to
    watch, everything is read anew at each refresh. Bars compare the requests of pods with the allocatable
    amounts of nodes; real usage is not read. Pods without a node have the reasons of `karpenter plan`.

    The key ? shows all keys. The live view needs the extra `tui` of karpenter-core.

    Exit code: 0 if the cluster was shown; 2 if files, settings or the cluster cannot be used.
    """
    from karpenter_core.cli.top.order import check_filter, parse_selector, parse_sorting
    from karpenter_core.cli.top.view import ViewOptions

    options = ViewOptions(
        resources=_resource_names(resources),
        node_selector=parse_selector(node_selector),
        with_prices=not no_prices,
    )
    source = replace(source, with_decisions=True)
    sorting = parse_sorting(sort)
    check_filter(filter_text)
    if once or output is OutputFormat.JSON or not _is_on_terminal():
        _print_once(source, options, sorting=sorting, filter_text=filter_text, output=output)
        return
    _require_textual()
    if _STDIN in source.files:
        raise SettingsError("- (the standard input) has the keys of the live view: add --once")
    from karpenter_core.cli.top.app import run_app

    run_app(
        source,
        options,
        sorting=sorting,
        filter_text=filter_text,
        refresh_seconds=refresh,
        ascii_only=not _speaks_unicode(),
    )


def _print_once(
    source: ClusterSource,
    options: ViewOptions,
    *,
    sorting: Sorting,
    filter_text: str,
    output: OutputFormat,
) -> None:
    import shutil

    from karpenter_core.cli.document import json_text
    from karpenter_core.cli.plan import print_notes
    from karpenter_core.cli.top.document import view_document
    from karpenter_core.cli.top.feed import view_of
    from karpenter_core.cli.top.frame import frame_lines
    from karpenter_core.cli.top.order import filter_nodes, sort_nodes

    view = view_of(asyncio.run(source.read()), options)
    rows = sort_nodes(filter_nodes(view.nodes, filter_text), sorting)
    if output is OutputFormat.JSON:
        print(json_text(view_document(view, rows)))
        return
    print_notes(view.notes)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in frame_lines(view, rows, width=width, ascii_only=not _speaks_unicode()):
        print(line)


def _speaks_unicode() -> bool:
    """Tell whether the standard output can show block characters."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█░…".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _resource_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise SettingsError("--resources: names no resource; write cpu,memory")
    return names


def _is_on_terminal() -> bool:
    """Tell whether the live view has a terminal; textual draws on stderr."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _require_textual() -> None:
    if find_spec("textual") is None:
        raise SettingsError(
            "the live view needs textual; in a checkout of karpenter-core: pip install '.[tui]'; "
            "--once prints one frame without it"
        )
