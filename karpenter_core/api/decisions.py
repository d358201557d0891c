"""Records of decisions: the choice, its inputs, its prices and its obstacles.

There is one type for every kind of decision, so that the journal, plug-ins and tools read one
format; its fields are documented in `docs/reference/decisions.md`. The size of a record is bounded
in clusters of any size: of each list at most `MAX_LISTED` entries are kept, and `omitted` counts the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, cast

from karpenter_core.api.prices import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.notices import Notice, ObjectRef

__all__ = [
    "DISRUPT",
    "MAX_LISTED",
    "MAX_NAMED",
    "OBSERVE",
    "PROVISION",
    "Decision",
    "DecisionCandidate",
    "DecisionLaunch",
    "DecisionMethodResult",
    "DecisionObstacle",
    "DecisionPlacement",
    "bounded",
    "decision_document",
    "obstacles_of",
]

T = TypeVar("T")

PROVISION: Final = "provision"
DISRUPT: Final = "disrupt"
OBSERVE: Final = "observe"
MAX_LISTED: Final = 100
MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCandidate:
    """A node that the decision removes."""

    node: str
    node_claim: str
    node_pool: str
    price_per_hour: Price
    pods: int
    """Pods that have to move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLaunch:
    """A node that the decision launches: its cheapest offering, and its number of types."""

    node_claim: str
    """Empty if it could not be created, or if the record was made before its creation."""
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    instance_types: int
    price_per_hour: Price
    pods: int
    list_price_per_hour: Price | None = None
    """Price that the provider lists, if plug-ins or overlays have changed the price."""
    price_source: str = ""
    """Source of the change: `NodeOverlay "NAME"`, `plug-in "NAME"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPlacement:
    """Pods that are placed on an existing node."""

    node: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMethodResult:
    """The result of one disruption method: eligible nodes, and whether budgets excluded some."""

    method: str
    eligible: int
    constrained: bool
    cut_short: bool = False
    """Whether the method ran out of time before it had evaluated all its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionObstacle:
    """A reason that excluded objects from a decision: their number, and the first few names."""

    kind: str
    """Kind of the objects: Node, NodePool, Pod."""
    reason: str
    message: str
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One entry of the decision journal.

    `price_per_hour_before` is the price of the removed nodes, `price_per_hour_after` the price of
    the launched nodes at their cheapest offerings.
    """

    id: str
    """The same id as in logs, in Events, and in `karpenter.sh/decision-id` of NodeClaims."""
    cause: str
    """The event that led to the decision."""
    kind: str
    """`provision`, `disrupt` or `observe`."""
    at: datetime
    summary: str
    """One line for people."""
    inputs: str = ""
    """Digest of the inputs: equal in all processes that see the same objects."""
    method: str = ""
    """The disruption method, or the packing of a plan."""
    reason: str = ""
    """The disruption reason, as in budgets and Events."""
    rejection: str = ""
    """Reason for rejecting the command before it started: churn, budget, scheduling, veto,
    conflict, launch or stale; empty if it was not rejected."""
    failure: str = ""
    """Reason for rolling the command back after it started; the record of the start has the same
    id."""
    objects: tuple[ObjectRef, ...] = ()
    """The objects that the decision concerns."""
    candidates: tuple[DecisionCandidate, ...] = ()
    launches: tuple[DecisionLaunch, ...] = ()
    placements: tuple[DecisionPlacement, ...] = ()
    price_per_hour_before: Price | None = None
    price_per_hour_after: Price | None = None
    alternatives: Mapping[str, float] = field(default_factory=dict[str, float])
    """Alternatives: other plans with their price per hour, other nodes with the savings of their
    removal."""
    methods: tuple[DecisionMethodResult, ...] = ()
    """The disruption methods that ran, up to the first that found a command."""
    held_back: tuple[str, ...] = ()
    """NodeClaims that qualified too and that a budget excluded."""
    obstacles: tuple[DecisionObstacle, ...] = ()
    """Reasons that excluded other objects, the most frequent first."""
    omitted: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of omitted entries, by field."""

    @property
    def is_idle(self) -> bool:
        """Whether the decision changes nothing: no node removed, no claim created, no pod placed."""
        is_served = self.placements or any(launch.node_claim for launch in self.launches)
        return bool(self.rejection) or not (self.candidates or is_served)

    @property
    def is_empty(self) -> bool:
        """Whether the decision is a scheduling plan without anything to say of a pod."""
        said = self.launches or self.placements or self.obstacles or self.rejection or self.failure
        return self.kind == PROVISION and not said

    @property
    def idle_key(self) -> tuple[object, ...]:
        """Key that distinguishes decisions that change nothing, for the same inputs."""
        return (self.method, self.rejection, *(item.node_claim for item in self.candidates))


class BoundedLists(TypedDict, total=False):
    """Lists of a Decision, and how many entries of each were left out."""

    objects: tuple[ObjectRef, ...]
    candidates: tuple[DecisionCandidate, ...]
    launches: tuple[DecisionLaunch, ...]
    placements: tuple[DecisionPlacement, ...]
    held_back: tuple[str, ...]
    obstacles: tuple[DecisionObstacle, ...]
    omitted: Mapping[str, int]


def bounded(**lists: Sequence[object]) -> BoundedLists:
    """Return lists for a Decision, cut to `MAX_LISTED` entries, with the resulting `omitted`."""
    cut: dict[str, object] = {name: tuple(items[:MAX_LISTED]) for name, items in lists.items()}
    cut["omitted"] = {
        name: len(items) - MAX_LISTED
        for name, items in sorted(lists.items())
        if len(items) > MAX_LISTED
    }
    return cast("BoundedLists", cut)


def obstacles_of(
    notices: Iterable[Notice], *, kinds: Sequence[str], reasons: Sequence[str]
) -> list[DecisionObstacle]:
    """Group the Events of these kinds and reasons by message into obstacles."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for notice in notices:
        about = notice.regarding
        if about.kind in kinds and notice.reason in reasons:
            key = (about.kind, notice.reason, notice.message)
            groups.setdefault(key, {})[
                f"{about.namespace}/{about.name}" if about.namespace else about.name
            ] = None
    obstacles = [
        DecisionObstacle(
            kind=kind,
            reason=reason,
            message=message,
            count=len(names),
            names=tuple(sorted(names)[:MAX_NAMED]),
        )
        for (kind, reason, message), names in groups.items()
    ]
    return sorted(obstacles, key=lambda item: (-item.count, item.kind, item.reason, item.message))


def decision_document(decision: Decision) -> dict[str, object]:
    """Write a decision as the JSON that the journal shows; every field, in camelCase."""
    return cast("dict[str, object]", _plain(decision))


def _plain(value: object) -> object:
    if isinstance(value, Price):
        return {"amount": round(value.amount, 9), "currency": value.currency}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if is_dataclass(value):
        return {_key(item.name): _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, object]", value).items()}
    return value


def _key(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(map(str.capitalize, tail))
