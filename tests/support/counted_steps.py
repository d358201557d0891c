"""Runs computations that are cut into steps, and counts their work."""

from __future__ import annotations

__all__ = ["run_counted"]


def run_counted(steps):
    """Run all steps; return the result and the units of work that they took."""
    units = 0
    while True:
        try:
            units += next(steps)
        except StopIteration as end:
            return end.value, units
