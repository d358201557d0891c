"""Shortens lists of names in messages and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["some_names"]


def some_names(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of further names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
