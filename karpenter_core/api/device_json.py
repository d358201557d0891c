# ruff: noqa: D101 - the structs mirror the API; its reference documents them
"""Decodes devices and counter sets of the API (`resource.k8s.io/v1`).

ResourceSlices have this form, and so do the templates of providers. Fields that are not known may
change the meaning of a device: it is marked as unsupported then, and never allocated.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

import msgspec

from karpenter_core.api.devices import (
    AttributeValue,
    CounterSet,
    CounterUse,
    Device,
    DeviceCapacity,
    DeviceTaint,
    DeviceVersion,
    qualified_name,
)
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RawCounterSet", "StrictStruct", "read_counter_set", "read_device", "read_strictly"]

Amount = str | int | float


class StrictStruct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base: unknown fields are errors."""


class RawDeviceExpression(StrictStruct):
    key: str
    operator: str
    values: list[str] | None = None


class RawDeviceNodeTerm(StrictStruct):
    match_expressions: list[RawDeviceExpression] | None = None
    match_fields: list[RawDeviceExpression] | None = None


class RawDeviceNodeSelector(StrictStruct):
    node_selector_terms: list[RawDeviceNodeTerm] | None = None


class RawAttribute(StrictStruct):
    integer: int | None = msgspec.field(name="int", default=None)
    boolean: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None


class RawRange(StrictStruct):
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class RawPolicy(StrictStruct):
    default: Amount | None = None
    valid_values: list[Amount] | None = None
    valid_range: RawRange | None = None


class RawCapacity(StrictStruct):
    value: Amount
    request_policy: RawPolicy | None = None


class RawCounter(StrictStruct):
    value: Amount


class RawCounterUse(StrictStruct):
    counter_set: str
    counters: dict[str, RawCounter] | None = None


class RawDeviceTaint(StrictStruct):
    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class RawDevice(StrictStruct):
    name: str
    attributes: dict[str, RawAttribute] | None = None
    capacity: dict[str, RawCapacity] | None = None
    consumes_counters: list[RawCounterUse] | None = None
    node_name: str | None = None
    node_selector: RawDeviceNodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[RawDeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class RawCounterSet(StrictStruct):
    name: str
    counters: dict[str, RawCounter] | None = None


_Read = TypeVar("_Read", bound=StrictStruct)


def read_strictly(kind: type[_Read], value: object) -> _Read | str:
    """Read a value, or return which field is not known or wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return f"is not supported: {error}"


def read_counter_set(raw: RawCounterSet) -> CounterSet:
    """Read a counter set.

    Raises:
        ValueError: an amount is not a quantity.
    """
    return CounterSet(name=raw.name, counters=_counters(raw.counters))


def read_device(value: Mapping[str, object], driver: str) -> Device:
    """Read a device as the API writes it; one with unknown fields is marked as unsupported."""
    raw = read_strictly(RawDevice, value)
    if isinstance(raw, str):
        return Device(name=str(value.get("name", "")), unsupported=raw)
    selector = raw.node_selector
    try:
        attributes = {
            qualified_name(name, driver): _attribute(one)
            for name, one in (raw.attributes or {}).items()
        }
        capacity = tuple(
            _capacity(qualified_name(name, driver), one)
            for name, one in sorted((raw.capacity or {}).items())
        )
    except ValueError as error:
        return Device(name=raw.name, unsupported=f"is not supported: {error}")
    return Device(
        name=raw.name,
        attributes=tuple(sorted(attributes.items(), key=lambda pair: pair[0])),
        capacity=capacity,
        counter_uses=tuple(
            CounterUse(counter_set=one.counter_set, counters=_counters(one.counters))
            for one in raw.consumes_counters or ()
        ),
        taints=tuple(
            DeviceTaint(key=one.key, value=one.value, effect=one.effect) for one in raw.taints or ()
        ),
        is_shareable=bool(raw.allow_multiple_allocations),
        node_name=raw.node_name or "",
        node_terms=tuple(
            NodeSelectorTerm(
                match_expressions=_expressions(term.match_expressions),
                match_fields=_expressions(term.match_fields),
            )
            for term in (selector.node_selector_terms if selector else None) or ()
        ),
        all_nodes=bool(raw.all_nodes),
        binds_to_node=bool(raw.binds_to_node),
    )


def _attribute(raw: RawAttribute) -> AttributeValue:
    for value in (raw.boolean, raw.integer, raw.string):
        if value is not None:
            return value
    if raw.version is None:
        raise ValueError("an attribute has no value")
    return DeviceVersion(text=raw.version)


def _capacity(name: str, raw: RawCapacity) -> DeviceCapacity:
    policy = raw.request_policy or RawPolicy()
    bounds = policy.valid_range or RawRange()
    return DeviceCapacity(
        name=name,
        value=parse_quantity(raw.value),
        default=_optional(policy.default),
        valid_values=tuple(sorted(map(parse_quantity, policy.valid_values or ()))),
        minimum=_optional(bounds.min),
        maximum=_optional(bounds.max),
        step=_optional(bounds.step),
    )


def _optional(raw: Amount | None) -> Decimal | None:
    return None if raw is None else parse_quantity(raw)


def _counters(raw: Mapping[str, RawCounter] | None) -> tuple[tuple[str, Decimal], ...]:
    return tuple((name, parse_quantity(one.value)) for name, one in sorted((raw or {}).items()))


def _expressions(
    raw: Sequence[RawDeviceExpression] | None,
) -> tuple[NodeSelectorRequirement, ...]:
    return tuple(
        NodeSelectorRequirement(key=one.key, operator=one.operator, values=tuple(one.values or ()))
        for one in raw or ()
    )
