"""Refuses answers of plug-ins that hold invalid values.

`hooks` checks the type of an answer, this module what it holds: its declared types promise nothing. A listing
with a generator would be empty for its second reader, so that every instance would seem gone; a time without
a time zone would fail each pass of garbage collection, of all providers.

Each error names plug-in, hook, object, field and value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar, cast

from karpenter_core.api.conditions import Condition, is_condition_reason
from karpenter_core.api.labels import CAPACITY_TYPES
from karpenter_core.api.names import label_value_error
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import (
    DriftFinding,
    Instance,
    RegistrationGate,
    RegistrationRefusal,
)
from karpenter_core.provider.host.catalogue_check import amounts_problem
from karpenter_core.provider.value_text import raw_value, value_text

if TYPE_CHECKING:
    from karpenter_core.provider.contract import (
        DriftOutcome,
        InstanceListing,
        LaunchedInstance,
        NodeClassHash,
        NodeClassResolution,
    )

__all__ = [
    "check_description",
    "check_gate",
    "check_hash",
    "check_instance",
    "check_listing",
    "check_resolution",
    "checked_drift",
    "is_aware",
]

T = TypeVar("T")

_TEXT: Final = "a text"
_FULL_TEXT: Final = "a text that is not empty"
_TIME: Final = "a time with a time zone"
_FLAG: Final = "True or False"


def check_listing(listing: InstanceListing, *, where: str) -> InstanceListing:
    """Return a listing whose instances are a tuple of valid ones.

    Raises:
        CloudProviderError: a value of it is invalid.
    """
    name = "InstanceListing"
    instances = _tuple_of(Instance, listing.instances, f"{where}: {name}: instances")
    _require(
        isinstance(raw_value(listing.complete), bool),
        where,
        name,
        complete=(_FLAG, listing.complete),
    )
    _require(is_aware(listing.as_of), where, name, as_of=(_TIME, listing.as_of))
    for instance in instances:
        check_instance(instance, where=where)
    return listing if instances is listing.instances else replace(listing, instances=instances)


def check_instance(found: Instance, *, where: str) -> None:
    """Refuse an instance with an invalid value.

    Raises:
        CloudProviderError: a value of it is invalid.
    """
    if (
        type(found.provider_id) is str
        and found.provider_id
        and type(found.token) is str
        and type(found.node_claim) is str
        and is_aware(found.created)
        and type(found.terminating) is bool
        and type(found.launched_for) is tuple
        and all(type(uid) is str for uid in found.launched_for)
    ):
        return
    name = f'Instance "{found.provider_id or ""}"'
    _require_text(where, name, provider_id=found.provider_id)
    for field, value in (("token", found.token), ("node_claim", found.node_claim)):
        _require(isinstance(raw_value(value), str), where, name, **{field: (_TEXT, value)})
    _require(is_aware(found.created), where, name, created=(_TIME, found.created))
    is_flag = isinstance(raw_value(found.terminating), bool)
    _require(is_flag, where, name, terminating=(_FLAG, found.terminating))
    are_texts = isinstance(raw_value(found.launched_for), tuple) and all(
        isinstance(raw_value(uid), str) for uid in found.launched_for
    )
    _require(are_texts, where, name, launched_for=("a tuple of texts", found.launched_for))


def check_description(instance: LaunchedInstance, *, where: str) -> None:
    """Refuse a launched instance of which the NodeClaim cannot be completed.

    It has the token of the claim, so that the next attempt finds it, or else garbage collection.

    Raises:
        CloudProviderError: a value of it is invalid.
    """
    name = f'LaunchedInstance "{instance.provider_id or ""}"'
    _require_text(where, name, provider_id=instance.provider_id)
    for field in ("instance_type", "zone"):
        value: object = getattr(instance, field)
        is_valid = isinstance(value, str) and not label_value_error(value)
        _require(is_valid, where, name, **{field: ("a label value", value)})
    _require(
        instance.capacity_type in {*CAPACITY_TYPES, ""},
        where,
        name,
        capacity_type=("reserved, spot or on-demand", instance.capacity_type),
    )
    _require(
        isinstance(raw_value(instance.image_id), str),
        where,
        name,
        image_id=(_TEXT, instance.image_id),
    )
    for field in ("capacity", "allocatable"):
        if problem := amounts_problem(getattr(instance, field), field):
            raise CloudProviderError(f"{where}: {name}: {problem}")


def check_resolution(resolution: NodeClassResolution, *, where: str) -> NodeClassResolution:
    """Return a resolution whose conditions are a tuple.

    Raises:
        CloudProviderError: a value of it is invalid.
    """
    name = "NodeClassResolution"
    conditions = _tuple_of(Condition, resolution.conditions, f"{where}: {name}: conditions")
    status = raw_value(resolution.status)
    _require(isinstance(status, Mapping), where, name, status=("a mapping", status))
    for key in cast("Mapping[object, object]", status):
        if not isinstance(key, str):
            raise CloudProviderError(
                f"{where}: {name}: status must be a mapping with texts as keys, not one with "
                f"{value_text(key)}"
            )
    after = raw_value(resolution.retry_after)
    is_duration = after is None or isinstance(after, timedelta)
    _require(is_duration, where, name, retry_after=("a timedelta", after))
    if conditions is resolution.conditions:
        return resolution
    return replace(resolution, conditions=conditions)


def check_hash(found: NodeClassHash, *, where: str) -> None:
    """Refuse a hash that cannot be an annotation.

    Raises:
        CloudProviderError: value or version is no text.
    """
    _require_text(where, "NodeClassHash", value=found.value, version=found.version)


def check_gate(gate: RegistrationGate | RegistrationRefusal | None, *, where: str) -> None:
    """Refuse a gate without a name or with an invalid wait, and a refusal without a reason.

    Raises:
        CloudProviderError: a value of it is invalid.
    """
    match gate:
        case RegistrationGate():
            _require_text(where, "RegistrationGate", name=gate.name)
            is_duration = isinstance(raw_value(gate.retry_after), timedelta)
            wanted = ("a timedelta", gate.retry_after)
            _require(is_duration, where, "RegistrationGate", retry_after=wanted)
        case RegistrationRefusal():
            _require_text(where, "RegistrationRefusal", reason=gate.reason)
        case None:
            pass


def checked_drift(outcome: DriftOutcome, *, where: str) -> DriftOutcome:
    """Return the outcome, or an error if its reason cannot be that of a condition."""
    if not isinstance(outcome, DriftFinding):
        return outcome
    reason = raw_value(outcome.reason)
    if isinstance(reason, str) and is_condition_reason(reason):
        return outcome
    return CloudProviderError(
        f"{where}: DriftFinding: reason must be in CamelCase, not {value_text(reason)}"
    )


def is_aware(value: object) -> bool:
    """Tell whether this is a time with a time zone, or None."""
    return value is None or (isinstance(value, datetime) and value.utcoffset() is not None)


def _require_text(where: str, name: str, /, **fields: object) -> None:
    for field, value in fields.items():
        is_full = isinstance(value, str) and bool(value)
        _require(is_full, where, name, **{field: (_FULL_TEXT, value)})


def _require(is_valid: bool, where: str, name: str, /, **wanted: tuple[str, object]) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise the error for the field, of which what it must be and its value are given."""
    if is_valid:
        return
    ((field, (what, value)),) = wanted.items()
    raise CloudProviderError(f"{where}: {name}: {field} must be {what}, not {value_text(value)}")


def _tuple_of(wanted: type[T], values: object, where: str) -> tuple[T, ...]:
    """Return a tuple or a list as a tuple; an iterator is refused, because it can be read only once."""
    if not isinstance(values, tuple | list):
        raise CloudProviderError(
            f"{where} must be a tuple of {wanted.__name__}, not {value_text(values)}"
        )
    items = tuple(cast("tuple[object, ...]", values))
    for item in items:
        if not isinstance(item, wanted):
            raise CloudProviderError(
                f"{where} must be a tuple of {wanted.__name__}, not one with {value_text(item)}"
            )
    return cast("tuple[T, ...]", items)
