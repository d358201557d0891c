"""Holds how one plan is made, and which claims it opens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from karpenter_core.scheduling.placement.holdings import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.arrays import Amounts, Floats
    from karpenter_core.scheduling.compiled.reservations import Reservation

__all__ = ["Measure", "Opening", "Profile"]


class Measure(StrEnum):
    """How the row that measures a new claim is chosen."""

    NONE = "none"
    """Not at all: the claim stays open to every row."""
    PODS = "pods"
    """Lowest price per pod of the class at hand."""
    DEMAND = "demand"
    """Lowest price for what its room is worth to everything that still waits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """How one plan is made.

    `order` are the classes as they are placed (empty: by size); `weights` what a unit of each
    resource is worth; `mix` the claims to open before anything is placed.
    """

    measure: Measure
    tight: bool
    """Fill the planned claims with the least room first, instead of in the order of opening."""
    late: bool = False
    """Count like one who does not know the domain of a claim until pods pin it (upstream)."""
    order: tuple[int, ...] = ()
    weights: Floats | None = None
    mix: tuple[Opening, ...] = ()
    tail: tuple[tuple[int, ...], ...] = ()
    """Groups of classes that mix freely, to be placed last and together."""


class Opening(Struct, frozen=True, kw_only=True, eq=False):
    """Claims to open at once: `pods` on each (fewer on the last), `charge` for each.

    `asked` is the signature before it was pinned to domains. (A struct, as what is looked for: both
    are made for every class.)
    """

    pool: int
    count: int
    pods: int
    signature: int
    asked: int
    limit: Amounts
    row: int
    charge: Mapping[str, int]
    score: float = 0.0
    """Price for what it is good for; lower is better."""
    reservations: frozenset[Reservation] = NOTHING
    """What each of the claims holds."""
