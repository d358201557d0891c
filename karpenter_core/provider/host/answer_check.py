"""Checks times, kinds and errors in answers of plug-ins.

One announcement with an invalid value must neither hide the others nor fail again with every poll: the
value is ignored, and reported with object, field and value. The instance of a launch is kept whatever
else its description says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract import InstanceListing, Interruption, LaunchOutcome

__all__ = ["AnswerProblem", "check_interruption", "check_launch", "listing_problem"]

_TIME: Final = "a time with a time zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProblem:
    """An invalid value.

    `path` names the object and its field; `message` may hold the value, which can be another one each
    time.
    """

    path: str
    message: str


def check_interruption(message: Interruption) -> tuple[Interruption, tuple[AnswerProblem, ...]]:
    """Return an announcement without its invalid values, and what is wrong with them.

    One whose kind is unknown has the kind UNKNOWN.
    """
    given: Mapping[str, object] = {
        "deadline": message.deadline,
        "announced_at": message.announced_at,
        "error": message.error,
    }
    invalid = [name for name, value in given.items() if not _is_valid(name, value)]
    where = f'Interruption "{message.id}"'
    problems = tuple(
        _problem(where, name, "a CloudProviderError" if name == "error" else _TIME, given[name])
        for name in invalid
    )
    if not _is_instance(message.kind, InterruptionKind):
        problems += (_problem(where, "kind", "an InterruptionKind", message.kind),)
        message = replace(message, kind=_kind(message.kind), detail=problems[-1].message)
    cleared = dict.fromkeys(invalid)
    return (replace(message, **cleared) if cleared else message), problems


def check_launch(outcome: LaunchOutcome) -> tuple[LaunchOutcome, tuple[AnswerProblem, ...]]:
    """Return the outcome of a launch without invalid shortages, and what is wrong with them."""
    if not isinstance(outcome, LaunchedInstance):
        return outcome, ()
    if _is_instance(outcome.shortages, tuple) and all(
        _is_instance(each, InsufficientCapacityError) for each in outcome.shortages
    ):
        return outcome, ()
    where = f'LaunchedInstance "{outcome.provider_id}"'
    problem = _problem(
        where, "shortages", "a tuple of InsufficientCapacityError", outcome.shortages
    )
    return replace(outcome, shortages=()), (problem,)


def listing_problem(listing: InstanceListing) -> str:
    """Return what makes a listing useless; empty if nothing does."""
    if _is_valid("as_of", listing.as_of):
        return ""
    return _problem("InstanceListing", "as_of", _TIME, listing.as_of).message


def _is_instance(value: object, wanted: type) -> bool:
    """Tell whether a value has a type, whatever its declared type promises."""
    return isinstance(value, wanted)


def _is_valid(name: str, value: object) -> bool:
    if name == "error":
        return value is None or isinstance(value, CloudProviderError)
    return value is None or (isinstance(value, datetime) and value.utcoffset() is not None)


def _kind(value: object) -> InterruptionKind:
    try:
        return InterruptionKind(str(value))
    except ValueError:
        return InterruptionKind.UNKNOWN


def _problem(where: str, field: str, wanted: str, value: object) -> AnswerProblem:
    path = f"{where}: {field}"
    return AnswerProblem(path=path, message=f"{path} must be {wanted}, not {value!r}")
