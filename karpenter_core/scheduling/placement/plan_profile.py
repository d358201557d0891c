"""Defines how one plan is made, and the claims that it opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from karpenter_core.scheduling.placement.reservation_holdings import NO_RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.scheduling.arrays import Amounts, Columns, Counts, Floats
    from karpenter_core.scheduling.compiled.reservations import Reservation

__all__ = [
    "ClaimOpening",
    "PlanProfile",
    "PlannedNodes",
    "RecordedEntry",
    "RecordedPlacement",
    "RowMeasure",
]


class RowMeasure(StrEnum):
    """The rule that chooses the row by which a new claim is measured."""

    NONE = "none"
    """Not at all: the claim stays open to every row."""
    PODS = "pods"
    """Lowest price per pod of the class at hand."""
    DEMAND = "demand"
    """Lowest price for the value of its capacity to all pods that still wait."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanProfile:
    """The parameters of one plan.

    `order` are the classes as they are placed (empty: by size); `weights` what a unit of each
    resource is worth; `mix` the claims to open before anything is placed.
    """

    measure: RowMeasure
    fullest_first: bool
    """Fill the planned claims with the least free first, instead of in the order of opening."""
    fewest_first: bool = False
    """Place pods one by one, each on the planned claim with the fewest pods (upstream)."""
    cheapest_domains: bool = False
    """Among domains that are equally full, prefer the one where nodes are cheapest."""
    uneven_domains: bool = False
    """Prefer, as far as skews allow, the one where an open node has room, or else that one."""
    late: bool = False
    """Count as if the domain of a claim were unknown until pods pin it (upstream)."""
    fee_share: float = 1.0
    """The share of the fee per node that counts when nodes are chosen; plans are compared by all of it."""
    order: tuple[int, ...] = ()
    weights: Floats | None = None
    """resources: what a unit of each counts when room is compared."""
    mix: tuple[ClaimOpening, ...] = ()
    free_groups: tuple[tuple[int, ...], ...] = ()
    """Groups of classes that mix freely, to be placed last and together."""
    recorded: RecordedPlacement | None = None
    """The placement to repeat on other nodes, instead of all that."""
    left_out: Mapping[int, int] = field(default_factory=dict[int, int])
    """By class, the pods that are not placed: no claim for them is valid."""


class ClaimOpening(Struct, frozen=True, kw_only=True, eq=False):
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
    """resources: the capacity that each claim is measured by."""
    row: int
    charge: Mapping[str, int]
    score: float = 0.0
    """Price for what it is good for; lower is better."""
    reservations: frozenset[Reservation] = NO_RESERVATIONS
    """The reservations that each of the claims holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedNodes:
    """Claims to open, and the pods of each size that each of them is meant for."""

    opening: ClaimOpening
    content: Counts
    """K."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedEntry:
    """The placement of some pods of a class: the place of each run of pods, and its length.

    A place is the column of an existing node, or `-1 - n` for claims of the n-th signature.
    """

    index: int
    places: Sequence[int]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedPlacement:
    """The placement of all pods of a plan, and the nodes to place them on instead."""

    entries: Sequence[RecordedEntry]
    signatures: Sequence[int]
    nodes: Sequence[PlannedNodes]
    size_of: Columns
    """classes: the number of the size of their pods."""
