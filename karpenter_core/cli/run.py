"""`karpenter run`: the controller process.

Its options are the table in `operator.settings` and those of the loaded plug-ins, so they are
parsed and documented there and not in this function's signature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.operator.option_values import ProcessOption

__all__ = ["CONTEXT_SETTINGS", "run"]

CONTEXT_SETTINGS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(context: typer.Context) -> None:
    """Watch the cluster; launch, register, drain and terminate nodes (options: run --help)."""
    arguments = context.args
    if {"--help", "-h"} & set(arguments):
        _print_help()
        return
    from karpenter_core.cli.controller_process import run_controller

    raise typer.Exit(run_controller(arguments))


def _print_help() -> None:
    from karpenter_core.cli.command_examples import EXAMPLES
    from karpenter_core.operator.options import OPTIONS
    from karpenter_core.operator.settings_loader import options_by_plugin
    from karpenter_core.provider.host.manager import load_plugins

    of_plugins = options_by_plugin(load_plugins().settings())
    print("Usage: karpenter run [OPTIONS]\n")
    print("Watch the cluster; launch, register, drain and terminate nodes.")
    print("Each option can also be set by the variable in brackets; the flag takes precedence.\n")
    _print_options(OPTIONS)
    for name, options in of_plugins.items():
        print(f"\nOf the plug-in {name}:\n")
        _print_options(options)
    print("\nExamples:")
    for line in EXAMPLES["run"]:
        print(f"  {line}")


def _print_options(options: Iterable[ProcessOption]) -> None:
    for option in options:
        default = f", default {option.default_text}" if option.default_text else ""
        choices = f" One of {', '.join(c for c in option.choices if c)}." if option.choices else ""
        print(f"  --{option.flag}  ({option.env}{default})")
        print(f"      {option.help}{choices}")
