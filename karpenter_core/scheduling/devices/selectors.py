"""Evaluates the CEL selectors of device classes and requests.

An expression sees `device` with `driver`, `attributes[domain].name`, `capacity[domain].name` and
`allowMultipleAllocations`, as in Kubernetes. One that cannot be evaluated on a device is an error,
not "no": the Kubernetes scheduler refuses the pod then, and so does the allocator. `cel.bind` is
written out, since the library does not have the macro; optional types (`.?`) are not supported.
An expression that may cost much more than an API server allows is not evaluated.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.devices import AttributeValue, DeviceVersion
from karpenter_core.scheduling.devices.cel_bind import expand_binds
from karpenter_core.scheduling.devices.cel_cost import check_cost
from karpenter_core.scheduling.devices.cel_functions import (
    FUNCTIONS,
    quantity_value,
    version_value,
)

if TYPE_CHECKING:
    from karpenter_core.api.cel_library import Program
    from karpenter_core.api.devices import Device, DeviceCapacity
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["DeviceSelectorError", "matches_device", "selector_problem"]

_Attributes: TypeAlias = "tuple[tuple[str, AttributeValue], ...]"

_MAX_LENGTH: Final = 10 * 1024  # API constant CELSelectorExpressionMaxLength
_INDEXED: Final = re.compile(r"""\b(attributes|capacity)\s*\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]""")


class DeviceSelectorError(ValueError):
    """A selector that cannot be compiled, or cannot be evaluated on a device."""


def selector_problem(expression: str) -> str:
    """Return why an expression can be evaluated on no device; empty if it compiles."""
    try:
        _compiled(expression)
    except DeviceSelectorError as error:
        return str(error)
    return ""


def matches_device(expression: str, device: Device, driver: str) -> bool:
    """Return whether a device meets an expression.

    Raises:
        DeviceSelectorError: the expression does not compile, fails on the device, or gives no
            truth value.
    """
    kinds = tuple([type(value) for _, value in device.attributes])  # True == 1, but not in CEL
    result = _evaluated(
        expression, driver, (device.attributes, kinds), device.capacity, device.is_shareable
    )
    if isinstance(result, str):
        raise DeviceSelectorError(result)
    return result


@lru_cache(maxsize=65_536)
def _evaluated(
    expression: str,
    driver: str,
    typed_attributes: tuple[_Attributes, tuple[type, ...]],
    capacity: tuple[DeviceCapacity, ...],
    is_shareable: bool,  # noqa: FBT001 - a part of the key
) -> bool | str:
    """Return the answer, or the text of the failure; equal devices are evaluated once."""
    from karpenter_core.api.cel_library import Context, add_stdlib_to_context

    try:
        program, domains = _compiled(expression)
    except DeviceSelectorError as error:
        return str(error)
    try:
        variables = _variables(typed_attributes[0], capacity, domains)
        variables |= {"driver": driver, "allowMultipleAllocations": is_shareable}
        context = Context({"device": variables})
        add_stdlib_to_context(context)
        for name, function in FUNCTIONS.items():
            context.add_function(name, function)
        result: object = program.execute(context)
    except KeyError as error:
        return _failure(expression, f"no such key: {error.args[0]}")
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return _failure(expression, str(error).splitlines()[0])
    if not isinstance(result, bool):
        return _failure(expression, f"the result is {result!r}, not true or false")
    return result


def _failure(expression: str, text: str) -> str:
    return f"selector {_shortened(expression)!r} cannot be evaluated: {text}"


def _shortened(expression: str, limit: int = 120) -> str:
    return expression if len(expression) <= limit else f"{expression[:limit]}…"


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> tuple[Program, frozenset[str]]:
    """Return a program, and the domains that it names."""
    from karpenter_core.api.cel_library import compile_program

    if len(expression) > _MAX_LENGTH:
        raise DeviceSelectorError(f"a selector of {len(expression)} characters is too long")
    domains = frozenset(double or single for _, double, single in _INDEXED.findall(expression))
    try:
        check_cost(expression)
        return compile_program(expand_binds(expression)), domains
    except (RuntimeError, ValueError) as error:
        text = str(error).splitlines()[0].partition(": ERROR: ")[2] or str(error).splitlines()[0]
        raise DeviceSelectorError(
            f"selector {_shortened(expression)!r} is not supported: {text}"
        ) from error


def _variables(
    values: _Attributes, amounts: tuple[DeviceCapacity, ...], domains: frozenset[str]
) -> JsonObject:
    """Return attributes and capacity; a domain without names is an empty map, as in Kubernetes."""
    attributes: dict[str, dict[str, object]] = {domain: {} for domain in domains}
    for name, value in values:
        domain, _, identifier = name.partition("/")
        attributes.setdefault(domain, {})[identifier] = (
            version_value(value.text) if isinstance(value, DeviceVersion) else value
        )
    capacity: dict[str, dict[str, object]] = {domain: {} for domain in domains}
    for one in amounts:
        domain, _, identifier = one.name.partition("/")
        capacity.setdefault(domain, {})[identifier] = quantity_value(one.value)
    return {"attributes": attributes, "capacity": capacity}
