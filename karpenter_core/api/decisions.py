"""Decisions as records: what was chosen, on what grounds, and what stood in the way of the rest.

One type for every kind of decision, so that the journal, plug-ins and tools read one thing; its
fields are documented in `docs/reference/decisions.md`. A record is bounded however large the
cluster: of each list at most `MOST_LISTED` entries are kept, and how many more there were is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from karpenter_core.api.prices import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.notices import Notice, ObjectRef

__all__ = [
    "DISRUPT",
    "MOST_LISTED",
    "MOST_NAMED",
    "PROVISION",
    "Decision",
    "DecisionLaunch",
    "DecisionLook",
    "DecisionMachine",
    "DecisionObstacle",
    "DecisionPlacement",
    "bounded",
    "decision_document",
    "obstacles_of",
]

T = TypeVar("T")

PROVISION: Final = "provision"
DISRUPT: Final = "disrupt"
MOST_LISTED: Final = 100
MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMachine:
    """A machine that is to go."""

    node: str
    node_claim: str
    node_pool: str
    price_per_hour: Price
    pods: int
    """Pods that have to move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLaunch:
    """A machine that is to come: its cheapest offering, and how many types it may become."""

    node_claim: str
    """Empty when it could not be created, or when the record was made before it was."""
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    instance_types: int
    price_per_hour: Price
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPlacement:
    """Pods that go to a machine that is there."""

    machine: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLook:
    """A method that was asked: how many machines it took, and whether budgets held some back."""

    method: str
    eligible: int
    constrained: bool
    cut_short: bool = False
    """Whether time ran out before all that it would have looked at was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionObstacle:
    """What kept some objects out of a decision: how many there were, the first few by name."""

    kind: str
    """Kind of the objects: Node, NodePool, Pod."""
    reason: str
    message: str
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One entry of the decision journal.

    `price_per_hour_before` is what the machines cost that go, `price_per_hour_after` what those
    cost at best that come for them.
    """

    id: str
    """As in logs, in the annotation `karpenter.sh/decision-id` of NodeClaims, and in Events."""
    cause: str
    """What led to it."""
    kind: str
    """What was decided: provision, disrupt."""
    at: datetime
    summary: str
    """One line for people."""
    inputs: str = ""
    """Digest of what was decided upon: the same in any process that sees the same objects."""
    method: str = ""
    """The disruption method, or how a plan was packed."""
    reason: str = ""
    """Why machines go, as budgets and Events call it."""
    rejection: str = ""
    """Why it was given up before anything was done: churn, budget, scheduling, veto, conflict,
    launch; empty when it was not."""
    failure: str = ""
    """Why it was taken back after it had begun; the record of its beginning has the same id."""
    objects: tuple[ObjectRef, ...] = ()
    """What it is about."""
    candidates: tuple[DecisionMachine, ...] = ()
    launches: tuple[DecisionLaunch, ...] = ()
    placements: tuple[DecisionPlacement, ...] = ()
    price_per_hour_before: Price | None = None
    price_per_hour_after: Price | None = None
    alternatives: Mapping[str, float] = field(default_factory=dict[str, float])
    """What else was reckoned with: other plans by their price per hour, other nodes by what their
    move would save."""
    looks: tuple[DecisionLook, ...] = ()
    """The methods that were asked before one had an answer, and that one."""
    held_back: tuple[str, ...] = ()
    """Machines that qualified too and were spared by a budget."""
    obstacles: tuple[DecisionObstacle, ...] = ()
    """What stood in the way of others, the most frequent first."""
    omitted: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many entries were left out, by field."""

    @property
    def is_idle(self) -> bool:
        """Whether it changes nothing: nothing goes, and of what was planned nothing was created."""
        is_served = self.placements or any(launch.node_claim for launch in self.launches)
        return bool(self.rejection) or not (self.candidates or is_served)

    @property
    def sort(self) -> tuple[object, ...]:
        """What tells decisions that change nothing apart, upon the same inputs."""
        return (self.method, self.rejection, *(item.node_claim for item in self.candidates))


def bounded(**lists: Sequence[Any]) -> dict[str, Any]:
    """Return fields of a Decision, cut to `MOST_LISTED` entries, with `omitted` as it follows."""
    cut: dict[str, Any] = {name: tuple(items[:MOST_LISTED]) for name, items in lists.items()}
    cut["omitted"] = {
        name: len(items) - MOST_LISTED
        for name, items in sorted(lists.items())
        if len(items) > MOST_LISTED
    }
    return cut


def obstacles_of(
    notices: Iterable[Notice], *, kinds: Sequence[str], reasons: Sequence[str]
) -> list[DecisionObstacle]:
    """Gather Events about objects of these kinds, and of these reasons, by what they say."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for notice in notices:
        about = notice.regarding
        if about.kind in kinds and notice.reason in reasons:
            key = (about.kind, notice.reason, notice.message)
            groups.setdefault(key, {})[
                f"{about.namespace}/{about.name}" if about.namespace else about.name
            ] = None
    found = [
        DecisionObstacle(
            kind=kind,
            reason=reason,
            message=message,
            count=len(names),
            names=tuple(sorted(names)[:MOST_NAMED]),
        )
        for (kind, reason, message), names in groups.items()
    ]
    return sorted(found, key=lambda item: (-item.count, item.kind, item.reason, item.message))


def decision_document(decision: Decision) -> dict[str, Any]:
    """Write a decision as the JSON that the journal shows; every field, in camelCase."""
    return cast("dict[str, Any]", _plain(decision))


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
