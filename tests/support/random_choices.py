"""Choices for random scheduling problems: features, random draws, labels.

See `tests.support.problems`, which makes the problems.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

__all__ = [
    "CORES",
    "FAMILY",
    "NAMESPACES",
    "RACK",
    "RACKS",
    "TEAM",
    "TEAMS",
    "ZONES",
    "ProblemFeature",
    "RandomChoices",
]

ZONES: Final = ("zone-a", "zone-b", "zone-c")
TEAM: Final = "example.com/team"
TEAMS: Final = ("blue", "green")
RACK: Final = "example.com/rack"
RACKS: Final = ("r1", "r2", "r3")
FAMILY: Final = "example.com/family"
CORES: Final = "example.com/cores"
NAMESPACES: Final = {
    "default": {},
    "shop": {"team": "a", "stage": "live"},
    "lab": {"team": "b"},
}
"""Namespaces of the pods, with their labels."""

T = TypeVar("T")


class ProblemFeature(StrEnum):
    """Features of a random problem beyond plain pods, pools and nodes."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    BOUND = "bound"
    """Pods that run on existing nodes, some with anti-affinity of their own."""
    BOUNDS = "bounds"
    """Requirements with Gt and Lt."""
    CLOSED = "closed"
    """Nodes that take no more pods, and pods that leave them."""
    CUSTOM_KEYS = "custom-keys"
    """Labels of the pools' own, also as topology keys."""
    DAEMONS = "daemons"
    LIMITS = "limits"
    MIN_VALUES = "min-values"
    NAMESPACES = "namespaces"
    OVERRIDES = "overrides"
    """Offerings that give another capacity than their type says."""
    PORTS = "ports"
    PREFERENCES = "preferences"
    RESERVED = "reserved"
    SPREAD = "spread"
    TAINTS = "taints"
    TERMS = "terms"
    """Required node affinity with several terms."""
    UNDECIDED = "undecided"
    """NodeClaims without a Node whose labels are not all decided."""
    VOLUMES = "volumes"


@final
class RandomChoices:
    """Draws lots for a problem; the first choice is always the plain one, so that it shrinks."""

    def __init__(self, random: Random, features: Collection[ProblemFeature]) -> None:
        self.random: Final = random
        self._features: Final = frozenset(features)

    def has(self, feature: ProblemFeature) -> bool:
        """Whether the problem may have this at all."""
        return feature in self._features

    def chance(self, percent: int, feature: ProblemFeature | None = None) -> bool:
        """Say yes as often as that; never for a feature that is not wanted."""
        if feature is not None and feature not in self._features:
            return False
        return self.random.randrange(100) >= 100 - percent

    def number(self, least: int, most: int) -> int:
        """Draw a number; both ends included."""
        return self.random.randrange(least, most + 1)

    def one(self, values: Sequence[T]) -> T:
        """Draw one of some values."""
        return values[self.random.randrange(len(values))]

    def some(self, values: Sequence[T], least: int = 1) -> tuple[T, ...]:
        """Draw at least so many different values, in their order."""
        count = self.number(least, len(values))
        left = list(range(len(values)))
        chosen = {left.pop(self.random.randrange(len(left))) for _ in range(count)}
        return tuple(value for number, value in enumerate(values) if number in chosen)
