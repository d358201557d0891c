"""The program `karpenter`: its commands, and the commands of plug-ins.

Each command imports its modules when it runs: `karpenter --help` stays fast and loads neither numpy
nor a Kubernetes client nor an SDK of a cloud. Plug-ins are imported for their commands only when the
command line names none of ours.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from karpenter_core import __version__
from karpenter_core.cli import crds, plan, plugin, rbac, run
from karpenter_core.cli.command_examples import add_examples
from karpenter_core.cli.convert import command as convert
from karpenter_core.cli.demo import command as demo
from karpenter_core.cli.doctor import command as doctor
from karpenter_core.cli.explain import command as explain
from karpenter_core.cli.simulate import command as simulate
from karpenter_core.cli.snapshot import command as snapshot
from karpenter_core.cli.top import command as top

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_app", "main"]

BAD_USE = 2


def build_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the program with all its commands.

    `arguments` is the command line. If it begins with a command, all others are left out: they are not
    shown. Every installed plug-in would be imported for them, and to make the options of the program's
    own takes 0.1 s.
    """
    app = typer.Typer(
        name="karpenter",
        help="Autoscale the nodes of a Kubernetes cluster.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_accept_options)
    app.command("run", add_help_option=False, context_settings=run.CONTEXT_SETTINGS)(run.run)
    app.command("demo")(demo.demo)
    app.command("crds")(crds.crds)
    app.command("rbac")(rbac.rbac)
    plan.register(app)
    explain.register(app)
    snapshot.register(app)
    simulate.register(app)
    top.register(app)
    plugin.register(app)
    doctor.register(app)
    convert.register(app)
    add_examples(app)
    if not arguments or arguments[0] not in _command_names(app):
        _add_plugin_commands(app)
    _keep_named_command(app, arguments)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and end the process with its exit code."""
    from karpenter_core.cli.remedies import remedy_of
    from karpenter_core.errors import KarpenterError

    line = list(sys.argv[1:] if arguments is None else arguments)
    if not os.environ.get("COLUMNS", "1").strip("0"):
        del os.environ["COLUMNS"]  # rich would write nothing into a width of 0
    try:
        try:
            build_app(line)(args=line)
        finally:
            sys.stdout.flush()  # here, where its failure is an error of one line
    except KarpenterError as error:
        print(f"karpenter: {error}{remedy_of(error)}", file=sys.stderr)
        sys.exit(BAD_USE)
    except OSError as error:
        if error.errno != errno.EPIPE:
            print(f"karpenter: {_text_of(error)}", file=sys.stderr)
        sys.stdout = sys.stderr  # or the end of the process would flush it, and report the error
        # A reader that has seen enough is no error to tell of; click's exit code for it.
        sys.exit(1 if error.errno == errno.EPIPE else BAD_USE)


def _text_of(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if error.errno == errno.EBADF:  # see standard_streams
        return "the standard output is closed"
    return error.strerror or str(error)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"karpenter-core {__version__}")
        raise typer.Exit


def _accept_options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Declare the options before a command; each acts by its callback."""


def _command_names(app: typer.Typer) -> set[str | None]:
    """Return the names of the commands and of the groups of commands that an app has."""
    return {each.name for each in (*app.registered_commands, *app.registered_groups)}


def _keep_named_command(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Leave out all commands but the one that the command line names, in groups of commands too."""
    for name in arguments:
        commands = [each for each in app.registered_commands if each.name == name]
        groups = [each for each in app.registered_groups if each.name == name]
        if not commands and not groups:
            return
        app.registered_commands, app.registered_groups = commands, groups
        inner = groups[0].typer_instance if groups else None
        if inner is None:
            return
        app = inner


def _add_plugin_commands(app: typer.Typer) -> None:
    """Add the commands of plug-ins; if plug-ins conflict, only their commands are missing."""
    from karpenter_core.errors import PluginError
    from karpenter_core.provider.host.manager import load_plugins

    try:
        plugins = load_plugins()
    except PluginError as error:
        print(f"karpenter: no commands of plug-ins: {error}", file=sys.stderr)
        return
    for name in plugins.implementers("karpenter_add_commands"):
        add = plugins.caller("karpenter_add_commands", name)
        if add is not None:
            add(app=app)


if __name__ == "__main__":
    main()
