"""Reads numbers and percentages of nodes, as budgets have them: `5`, `20%`."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NodeShare", "parse_node_share"]

_MOST_DIGITS: Final = 18
"""Digits of a number of nodes; Python converts no text of thousands."""


class NodeShare(NamedTuple):
    """A number of nodes, or a percentage of nodes."""

    number: int
    is_percentage: bool


def parse_node_share(text: str) -> NodeShare | None:
    """Return what a text says; None if it is neither a number nor a percentage."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        return None
    return NodeShare(int(number), is_percentage=text.endswith("%"))
