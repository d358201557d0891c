"""Ignores invalid values of announcements, and of labels of launches.

One announcement with an invalid value must neither hide the others nor fail again with every poll: the
value is ignored, and reported with object, field and value. The instance of a launch is kept, because the
API server would refuse its NodeClaim each time for an invalid label. `answer_values` refuses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.names import label_value_error, qualified_name_error
from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.host.answer_values import is_aware
from karpenter_core.provider.value_text import value_text

if TYPE_CHECKING:
    from karpenter_core.provider.contract import Interruption

__all__ = ["AnswerProblem", "check_interruption", "check_launched"]

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
    texts = {name: getattr(message, name) for name in ("id", "provider_id", "token", "detail")}
    for name, value in texts.items():
        if not _is_instance(value, str):
            problems += (_problem(where, name, "a text", value),)
            message = replace(message, **{name: str(value) if name == "id" else ""})
    cleared = dict.fromkeys(invalid)
    return (replace(message, **cleared) if cleared else message), problems


def check_launched(
    instance: LaunchedInstance,
) -> tuple[LaunchedInstance, tuple[AnswerProblem, ...]]:
    """Return a launched instance without invalid shortages, labels and annotations, and what is wrong."""
    where = f'LaunchedInstance "{instance.provider_id}"'
    problems: tuple[AnswerProblem, ...] = ()
    if not _is_instance(instance.shortages, tuple) or not all(
        _is_instance(each, InsufficientCapacityError) for each in instance.shortages
    ):
        wanted = "a tuple of InsufficientCapacityError"
        problems += (_problem(where, "shortages", wanted, instance.shortages),)
        instance = replace(instance, shortages=())
    for field in ("labels", "annotations"):
        given: object = getattr(instance, field)
        if not given and _is_instance(given, Mapping):
            continue
        valid, invalid = _valid_entries(where, field, given)
        if invalid:
            problems += invalid
            instance = replace(instance, **{field: valid})
    return instance, problems


def _valid_entries(
    where: str, field: str, given: object
) -> tuple[Mapping[str, str], tuple[AnswerProblem, ...]]:
    """Return the labels or annotations that the API server would accept, and what is wrong with the rest."""
    if not isinstance(given, Mapping):
        return {}, (_problem(where, field, "a mapping", given),)
    valid: dict[str, str] = {}
    problems: list[AnswerProblem] = []
    for key, value in cast("Mapping[object, object]", given).items():
        error = _entry_error(key, value, is_label=field == "labels")
        if error:
            path = f"{where}: {field}: {key}"
            message = f"{path}: {error}, it is {value_text(value)}"
            problems.append(AnswerProblem(path=path, message=message))
        else:
            valid[cast("str", key)] = cast("str", value)
    return valid, tuple(problems)


def _entry_error(key: object, value: object, *, is_label: bool) -> str:
    if not isinstance(key, str):
        return "key must be a text"
    if error := qualified_name_error(key):
        return error
    if not isinstance(value, str):
        return "value must be a text"
    return label_value_error(value) if is_label else ""


def _is_instance(value: object, wanted: type) -> bool:
    """Tell whether a value has a type, whatever its declared type promises."""
    return isinstance(value, wanted)


def _is_valid(name: str, value: object) -> bool:
    if name == "error":
        return value is None or isinstance(value, CloudProviderError)
    return is_aware(value)


def _kind(value: object) -> InterruptionKind:
    try:
        return InterruptionKind(str(value))
    except ValueError:
        return InterruptionKind.UNKNOWN


def _problem(where: str, field: str, wanted: str, value: object) -> AnswerProblem:
    path = f"{where}: {field}"
    return AnswerProblem(path=path, message=f"{path} must be {wanted}, not {value_text(value)}")
