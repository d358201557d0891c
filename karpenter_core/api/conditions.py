"""Status conditions, as data and as pure operations on them.

An object has one *root* condition (`Ready`), computed from a fixed list of *dependents*, and any
number of *independent* conditions beside them. How the root follows, how transition times and
observed generations move, and in which order conditions are stored is part of the API: dashboards,
`kubectl wait` and other controllers read it, so the rules here are exact.

Everything is a function of the old tuple of conditions to the new one. When nothing would change
the same tuple comes back, so that "is there anything to write?" is a comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from karpenter_core.api.base import Model, Timestamp
from karpenter_core.api.facets import Facets, NestedFacets
from karpenter_core.errors import KarpenterError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AWAITING_RECONCILIATION",
    "FALSE",
    "READY",
    "STRICT_CONDITION",
    "TRUE",
    "UNKNOWN",
    "Condition",
    "ConditionRules",
    "ConditionStatus",
    "DependentConditionError",
    "find_condition",
    "is_condition_reason",
    "is_false",
    "is_true",
    "is_unknown",
]

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

READY: Final = "Ready"
"""The root condition of every kind of ours."""

AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"
"""Reason of a condition that no controller has judged yet."""
AWAITING_RECONCILIATION_MESSAGE: Final = "object is awaiting reconciliation"
RECONCILING_DEPENDENTS: Final = "ReconcilingDependents"
UNHEALTHY_DEPENDENTS: Final = "UnhealthyDependents"

_UNKNOWN_TIME: Final = datetime.min.replace(tzinfo=UTC)
_REASON: Final = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
"""Kubernetes' rule for the reason of a condition."""
_REASON_PATTERN: Final = re.compile(_REASON)
_MESSAGE_CHARACTERS: Final = 32_768  # of metav1.Condition


class DependentConditionError(KarpenterError):
    """A root or dependent condition cannot be cleared: it always has a value."""


class Condition(Model):
    """One status condition."""

    type: Annotated[
        str,
        Facets(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """Type of the condition, in CamelCase."""
    status: Annotated[str, Facets(enum=(TRUE, FALSE, UNKNOWN))]
    """Status of the condition: True, False or Unknown."""
    reason: Annotated[str, Facets(max_length=1024, pattern=f"^({_REASON}|)$")] = ""
    """Reason for the status, as one CamelCase word for programs."""
    message: Annotated[str, Facets(max_length=_MESSAGE_CHARACTERS)] = ""
    """Details for people; may be empty."""
    last_transition_time: Annotated[Timestamp | None, Facets(required=True)] = None
    """Time at which the status last changed."""
    observed_generation: Annotated[int | None, Facets(format="int64", minimum=0)] = None
    """Generation of the object that the condition was set for."""


STRICT_CONDITION: Final = (
    NestedFacets(
        "items.reason",
        Facets(min_length=1, pattern=f"^{_REASON}$", required=True),
    ),
    NestedFacets("items.message", Facets(required=True)),
)
"""Metadata for a list of conditions that must all give a reason (every kind but NodeClaim)."""


def find_condition(conditions: Iterable[Condition], condition_type: str) -> Condition | None:
    """Return the condition of that type, if it is there."""
    for item in conditions:
        if item.type == condition_type:
            return item
    return None


def with_condition(
    conditions: tuple[Condition, ...],
    *,
    type: str,  # noqa: A002 - the field's name in the API
    status: ConditionStatus,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """Set one condition of a kind without a root condition; unchanged input comes back as it is.

    The condition stays in its place, and keeps its transition time unless the status changes.
    """
    old = find_condition(conditions, type)
    is_same = old is not None and old.status == status
    fresh = Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time if old is not None and is_same else now,
        observed_generation=generation,
    )
    if fresh == old:
        return conditions
    if old is None:
        return (*conditions, fresh)
    return tuple(fresh if item is old else item for item in conditions)


def is_true(conditions: Iterable[Condition], *condition_types: str) -> bool:
    """Tell whether all of these conditions are there and True."""
    if len(condition_types) == 1:  # the hot case: every state node in every pass
        condition = find_condition(conditions, condition_types[0])
        return condition is not None and condition.status == TRUE
    true = {item.type for item in conditions if item.status == TRUE}
    return true.issuperset(condition_types)


def is_false(conditions: Iterable[Condition], condition_type: str) -> bool:
    """Tell whether the condition is there and False."""
    condition = find_condition(conditions, condition_type)
    return condition is not None and condition.status == FALSE


def is_condition_reason(text: str) -> bool:
    """Tell whether the API server takes a text as the reason of a condition."""
    return _REASON_PATTERN.fullmatch(text) is not None


def is_unknown(conditions: Iterable[Condition], condition_type: str) -> bool:
    """Tell whether the condition is Unknown or absent."""
    condition = find_condition(conditions, condition_type)
    return condition is None or condition.status == UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRules:
    """The root condition of a kind and the conditions it depends on.

    `generation` is the object's; `deleting` says that it has a deletion timestamp, in which case every
    condition follows the generation.
    """

    root: str = READY
    dependents: tuple[str, ...] = ()

    def initialise(
        self,
        conditions: tuple[Condition, ...],
        *,
        since: datetime | None,
        generation: int,
        deleting: bool = False,
    ) -> tuple[Condition, ...]:
        """Add the root and every dependent that is absent, as Unknown since then."""
        for condition_type in (self.root, *self.dependents):
            if find_condition(conditions, condition_type) is None:
                fresh = Condition(
                    type=condition_type,
                    status=UNKNOWN,
                    reason=AWAITING_RECONCILIATION,
                    message=AWAITING_RECONCILIATION_MESSAGE,
                    last_transition_time=since,
                    observed_generation=generation,
                )
                conditions = self._store(
                    conditions, fresh, now=since, generation=generation, deleting=deleting
                )
        return conditions

    def set(
        self,
        conditions: tuple[Condition, ...],
        *,
        type: str,  # noqa: A002 - the field's name in the API
        status: ConditionStatus,
        reason: str,
        message: str = "",
        now: datetime,
        generation: int,
        deleting: bool = False,
    ) -> tuple[Condition, ...]:
        """Set one condition and recompute the root; unchanged input comes back as it is.

        A message that the API server would refuse for its length, such as a cloud's long answer, is cut.
        """
        if len(message) > _MESSAGE_CHARACTERS:
            message = message[: _MESSAGE_CHARACTERS - 3] + "..."
        fresh = Condition(
            type=type,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=now,
            observed_generation=generation,
        )
        return self._store(conditions, fresh, now=now, generation=generation, deleting=deleting)

    def set_true(
        self,
        conditions: tuple[Condition, ...],
        *,
        type: str,  # noqa: A002 - the field's name in the API
        now: datetime,
        generation: int,
        deleting: bool = False,
    ) -> tuple[Condition, ...]:
        """Set one condition to True with its own name as the reason."""
        return self.set(
            conditions,
            type=type,
            status=TRUE,
            reason=type,
            now=now,
            generation=generation,
            deleting=deleting,
        )

    def clear(
        self, conditions: tuple[Condition, ...], condition_type: str
    ) -> tuple[Condition, ...]:
        """Remove an independent condition; the others are then stored by type.

        Raises:
            DependentConditionError: the condition is the root or one of its dependents.
        """
        if condition_type == self.root or condition_type in self.dependents:
            message = f"condition {condition_type} cannot be cleared"
            raise DependentConditionError(message)
        if find_condition(conditions, condition_type) is None:
            return conditions
        kept = (item for item in conditions if item.type != condition_type)
        return tuple(sorted(kept, key=lambda item: item.type))

    def _store(
        self,
        conditions: tuple[Condition, ...],
        fresh: Condition,
        *,
        now: datetime | None,
        generation: int,
        deleting: bool,
    ) -> tuple[Condition, ...]:
        old = find_condition(conditions, fresh.type)
        if old is not None and old.status == fresh.status:
            fresh = fresh.model_copy(update={"last_transition_time": old.last_transition_time})
            if fresh == old:
                return conditions
        others = [item for item in conditions if item.type != fresh.type]
        if deleting:
            others = [
                item.model_copy(update={"observed_generation": generation}) for item in others
            ]
        stored = tuple(sorted((*others, fresh), key=self._stored_order))
        if fresh.type == self.root:
            return stored
        root = self._root(stored, now=now, generation=generation)
        return self._store(stored, root, now=now, generation=generation, deleting=deleting)

    def _stored_order(self, condition: Condition) -> tuple[bool, datetime]:
        """Order by transition time with the root at the end (of use to `kubectl describe`)."""
        return condition.type == self.root, _transition(condition)

    def _root(
        self, conditions: tuple[Condition, ...], *, now: datetime | None, generation: int
    ) -> Condition:
        def is_current(item: Condition) -> bool:
            return (item.observed_generation or 0) == generation

        unhealthy = sorted(
            (
                item
                for item in conditions
                if item.type in self.dependents
                and (item.status in {FALSE, UNKNOWN} or not is_current(item))
            ),
            key=_transition,
            reverse=True,
        )
        status, reason = TRUE, self.root
        if any(item.status == FALSE and is_current(item) for item in unhealthy):
            status, reason = FALSE, UNHEALTHY_DEPENDENTS
        elif unhealthy:
            status, reason = UNKNOWN, RECONCILING_DEPENDENTS
        return Condition(
            type=self.root,
            status=status,
            reason=reason,
            message=", ".join(f"{item.type}={item.status}" for item in unhealthy),
            last_transition_time=now,
            observed_generation=generation,
        )


def _transition(condition: Condition) -> datetime:
    return condition.last_transition_time or _UNKNOWN_TIME
