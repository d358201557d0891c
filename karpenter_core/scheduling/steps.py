"""Runs computations that are cut into steps without a pause between them.

The solver and the planners yield after some milliseconds of work, so that a controller can serve other
tasks or end the computation. Commands, tests and short searches run them in one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["run_steps"]

_Result = TypeVar("_Result")


def run_steps(steps: Generator[int, None, _Result]) -> _Result:
    """Run all steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
