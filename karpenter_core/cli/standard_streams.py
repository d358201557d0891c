"""Opens the standard streams that the caller of the program has closed.

Python has None for them then. `print` to None writes to the standard output, so that messages would be
part of a JSON document, and the next file or connection that is opened gets the number of the stream:
log lines, which are written to a number, would go to the API server.
"""

from __future__ import annotations

import os
import sys

__all__ = ["open_missing_streams"]


def open_missing_streams(*, discard_output: bool) -> None:
    """Put /dev/null in the place of closed streams.

    Reading the input fails. Writing the output fails too, since a result that nobody can read is an
    error, unless `discard_output`: a controller goes on without its log. Errors are always discarded.
    """
    # In the order of their numbers: a file that is opened gets the lowest one that is free.
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - it is None if it was closed
        sys.stdin = sys.__stdin__ = open(_null(os.O_WRONLY), closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - see above
        number = _null(os.O_WRONLY if discard_output else os.O_RDONLY)
        sys.stdout = sys.__stdout__ = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - see above
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - see above
        number = _null(os.O_WRONLY)
        sys.stderr = sys.__stderr__ = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - see above


def _null(flags: int) -> int:
    """Open /dev/null, for programs that this one starts too."""
    number = os.open(os.devnull, flags)
    os.set_inheritable(number, True)
    return number
