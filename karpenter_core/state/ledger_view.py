"""Defines the entries of the ledger's tables, and the view of all tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Self

from karpenter_core.state.instants import shift_time
from karpenter_core.state.launch_pauses import LaunchPause

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.errors import OfferingMask

__all__ = [
    "DeletionMark",
    "LaunchResult",
    "LedgerView",
    "OfferingShortage",
    "PlacementState",
    "PodDecision",
    "PodDeletion",
    "PodNomination",
    "PodPlacement",
    "RecentClaim",
    "UnavailableOfferingKey",
    "UnseenClaim",
]


@dataclass(frozen=True, slots=True)
class UnavailableOfferingKey:
    """Offerings of one provider, for one NodeClass alone where that is named."""

    provider: str
    offering: OfferingMask
    node_class: str


@dataclass(frozen=True, slots=True)
class DeletionMark:
    """The cause for which a claim is being removed."""

    cause: str


class PlacementState(Enum):
    """Whether the scheduler has refused a pod since it was placed, while that node was open to it."""

    STANDING = "standing"
    REFUSED = "refused"
    REPEATED = "repeated"
    """Placed there again after a refusal, as nothing else was found; not refused again."""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The claim or node that a pod is placed on, and since when."""

    target: str
    at: datetime
    state: PlacementState

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, at=shift_time(self.at, by))


@dataclass(frozen=True, slots=True)
class PodDecision:
    """The time of the first decision about a pod, and whether the latest one placed it.

    `placed_at` is when it was first given a place, None while the latest decision was none.
    """

    first_at: datetime
    placed: bool
    placed_at: datetime | None

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        placed = None if self.placed_at is None else shift_time(self.placed_at, by)
        return replace(self, first_at=shift_time(self.first_at, by), placed_at=placed)


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """The end of a deleted pod's grace period: as the API server dates it, and by our clock."""

    timestamp: datetime
    ends_at: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, ends_at=shift_time(self.ends_at, by))


@dataclass(frozen=True, slots=True)
class PodNomination:
    """The node that a pending pod's status nominates, and the last sign of its validity.

    That is when the nomination was first seen, or when a pod last left the node after that.
    """

    node: str
    at: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, at=shift_time(self.at, by))


@dataclass(frozen=True, slots=True)
class UnseenClaim:
    """A claim that was created here and that no watch has shown yet."""

    name: str
    created: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, created=shift_time(self.created, by))


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The result of a launch: the claim as the provider completed it."""

    claim: NodeClaim
    at: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, at=shift_time(self.at, by))


@dataclass(frozen=True, slots=True)
class OfferingShortage:
    """An offering that was out of stock: masked until `until`, remembered until `forget_at`.

    Found empty again before it is forgotten, it is masked for twice as long.
    """

    until: datetime
    ttl: timedelta
    forget_at: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        until, forget_at = shift_time(self.until, by), shift_time(self.forget_at, by)
        return replace(self, until=until, forget_at=forget_at)


@dataclass(frozen=True, slots=True)
class RecentClaim:
    """A claim that was created within the last minute, deleted since or not."""

    pool: str
    created: datetime

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, created=shift_time(self.created, by))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LedgerView:
    """The ledger at one instant; `TABLES` of `ledger_rules` says what each table holds."""

    nominations: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    deletion_marks: Mapping[str, DeletionMark] = field(default_factory=dict[str, DeletionMark])
    placements: Mapping[str, PodPlacement] = field(default_factory=dict[str, PodPlacement])
    expected: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]],
    )
    unseen_claims: Mapping[str, UnseenClaim] = field(default_factory=dict[str, UnseenClaim])
    launches: Mapping[str, LaunchResult] = field(default_factory=dict[str, LaunchResult])
    open_launches: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    first_seen: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    decisions: Mapping[str, PodDecision] = field(default_factory=dict[str, PodDecision])
    pod_deletions: Mapping[str, PodDeletion] = field(default_factory=dict[str, PodDeletion])
    replaced_pods: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    pod_nominations: Mapping[str, PodNomination] = field(default_factory=dict[str, PodNomination])
    registration_health: Mapping[str, tuple[bool, ...]] = field(
        default_factory=dict[str, tuple[bool, ...]],
    )
    registration_failures: Mapping[str, tuple[str, str]] = field(
        default_factory=dict[str, tuple[str, str]],
    )
    launch_pauses: Mapping[str, LaunchPause] = field(default_factory=dict[str, LaunchPause])
    demand_pauses: Mapping[str, LaunchPause] = field(default_factory=dict[str, LaunchPause])
    recent_claims: Mapping[str, RecentClaim] = field(default_factory=dict[str, RecentClaim])
    unavailable_offerings: Mapping[UnavailableOfferingKey, OfferingShortage] = field(
        default_factory=dict[UnavailableOfferingKey, OfferingShortage]
    )

    def is_unavailable(self, key: UnavailableOfferingKey, now: datetime) -> bool:
        """Tell whether an offering is masked."""
        entry = self.unavailable_offerings.get(key)
        return entry is not None and now < entry.until
