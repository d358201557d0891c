"""Reads an instance type's devices, which a provider declares as the API does.

Templates are ResourceSlices without what is known only on the node: driver, pool, `devices` and
`sharedCounters` as `resource.k8s.io/v1` has them. Attribute bindings name devices that will have
one common value of an attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from karpenter_core.api.device_json import (
    RawCounterSet,
    StrictStruct,
    read_counter_set,
    read_device,
)
from karpenter_core.api.devices import AttributeBinding, DeviceTemplate, InstanceDevices
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from karpenter_core.api.devices import Device

__all__ = ["read_instance_devices"]

_Read = TypeVar("_Read")


class _Template(StrictStruct):
    driver: str
    pool: str
    devices: list[dict[str, object]] | None = None
    shared_counters: list[RawCounterSet] | None = None


class _BoundDevice(StrictStruct):
    driver: str
    pool: str
    device: str


class _Binding(StrictStruct):
    attribute: str
    devices: list[_BoundDevice]


def read_instance_devices(templates: object, bindings: object = None) -> InstanceDevices | None:
    """Return the devices of an instance type; None without templates.

    Raises:
        BadInputError: something is not of the form; names field and value.
    """
    if not templates:
        if bindings:
            raise BadInputError("attributeBindings: there are no resourceSliceTemplates")
        return None
    return InstanceDevices(
        templates=tuple(
            _template(one, f"resourceSliceTemplates.{number}")
            for number, one in enumerate(
                _converted(templates, list[_Template], "resourceSliceTemplates")
            )
        ),
        bindings=tuple(
            AttributeBinding(
                attribute=one.attribute,
                devices=frozenset((it.driver, it.pool, it.device) for it in one.devices),
            )
            for one in _converted(bindings or [], list[_Binding], "attributeBindings")
        ),
    )


def _converted(value: object, kind: type[_Read], field: str) -> _Read:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{field}: {error}") from error


def _template(raw: _Template, field: str) -> DeviceTemplate:
    devices: list[Device] = []
    for number, one in enumerate(raw.devices or ()):
        device = read_device(one, raw.driver)
        if device.unsupported:
            raise BadInputError(f"{field}.devices.{number}: {device.unsupported}")
        devices.append(device)
    try:
        counter_sets = tuple(read_counter_set(one) for one in raw.shared_counters or ())
    except ValueError as error:
        raise BadInputError(f"{field}.sharedCounters: {error}") from error
    return DeviceTemplate(
        driver=raw.driver, pool=raw.pool, devices=tuple(devices), counter_sets=counter_sets
    )
