"""Starts the program `karpenter`; the controller imports less than the rest.

A controller holds what it imports for its whole life, and the libraries of the command line are 8 MiB of
it. So `karpenter run` goes by here, and everything else by `cli.main`.
"""

from __future__ import annotations

import sys
from importlib import import_module

from karpenter_core.cli.standard_streams import open_missing_streams
from karpenter_core.errors import KarpenterError

__all__ = ["main"]

_BAD_USE = 2
_INTERRUPTED = 130


def main() -> None:
    """Run the program and end the process with its exit code."""
    command, *arguments = sys.argv[1:] or [""]
    is_controller = command == "run" and not {"--help", "-h"} & set(arguments)
    open_missing_streams(discard_output=is_controller)
    if not is_controller:
        from karpenter_core.cli.main import main as main_of_all

        return main_of_all()
    _import_without("structlog", "rich")
    from karpenter_core.cli.controller_process import run_controller

    try:
        code = run_controller(arguments)
    except KarpenterError as error:
        print(f"karpenter: {error}", file=sys.stderr)
        code = _BAD_USE
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def _import_without(name: str, optional: str) -> None:
    """Import a module as if another one, which it could do without, were not installed."""
    if optional in sys.modules or name in sys.modules:
        return
    sys.modules[optional] = None  # pyright: ignore[reportArgumentType] - Python's own sign for "not there"
    try:
        import_module(name)
    finally:
        del sys.modules[optional]


if __name__ == "__main__":
    main()
