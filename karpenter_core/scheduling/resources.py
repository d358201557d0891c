"""Adds, subtracts and compares resource lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import Resources

__all__ = ["element_max", "element_min", "fits", "merge", "subtract"]


def merge(parts: Iterable[Resources]) -> dict[str, int]:
    """Add resource lists, name by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def subtract(minuend: Resources, subtrahend: Resources) -> dict[str, int]:
    """Take one list from another; only the names of the first one remain."""
    return {name: amount - subtrahend.get(name, 0) for name, amount in minuend.items()}


def element_max(parts: Iterable[Resources]) -> dict[str, int]:
    """Return the largest amount of every name that any list has."""
    largest: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            largest[name] = max(largest.get(name, amount), amount)
    return largest


def element_min(parts: Iterable[Resources]) -> dict[str, int]:
    """Return the smallest amount of every name that all lists have."""
    smallest: dict[str, int] | None = None
    for part in parts:
        smallest = (
            dict(part)
            if smallest is None
            else {name: min(smallest[name], part[name]) for name in smallest if name in part}
        )
    return smallest or {}


def fits(candidate: Resources, total: Resources) -> bool:
    """Whether a request goes into what is there; nothing goes into an overdrawn list."""
    return all(amount >= 0 for amount in total.values()) and all(
        amount <= total.get(name, 0) for name, amount in candidate.items()
    )
