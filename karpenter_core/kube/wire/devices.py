# ruff: noqa: D101 - the structs mirror the API; its reference documents them
"""Converts the kinds of Dynamic Resource Allocation from raw JSON to views.

What asks for devices is read strictly: a field that is not known may change what is asked for. Such
a claim, class or device is kept with the reason, and refused by the allocator. Statuses are read
leniently: devices in use must never count as free.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.device_json import (
    RawCounterSet,
    StrictStruct,
    read_counter_set,
    read_device,
    read_strictly,
)
from karpenter_core.api.devices import (
    AllocatedDevice,
    ClaimConsumer,
    DeviceClassView,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    PrioritizedRequest,
    ResourceClaimTemplateView,
    ResourceClaimView,
    ResourceSliceView,
    qualified_name,
)
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.kube.wire.raw import Amounts, RawMeta, RawNodeSelector
from karpenter_core.kube.wire.selectors import node_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "RawDeviceClass",
    "RawResourceClaim",
    "RawResourceClaimTemplate",
    "RawResourceSlice",
    "device_class_view",
    "resource_claim_template_view",
    "resource_claim_view",
    "resource_slice_view",
]

Amount = str | int | float
_ALL: Final = "All"
_EXACT_COUNT: Final = "ExactCount"


class _Lenient(msgspec.Struct, rename="camel"):
    """Base: unknown fields are skipped."""


class RawCelSelector(StrictStruct):
    expression: str


class RawDeviceSelector(StrictStruct):
    cel: RawCelSelector


class RawDeviceToleration(StrictStruct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class RawCapacityRequirements(StrictStruct):
    requests: Amounts | None = None


class RawSubRequest(StrictStruct):
    device_class_name: str
    name: str = ""
    selectors: list[RawDeviceSelector] | None = None
    allocation_mode: str = _EXACT_COUNT
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[RawDeviceToleration] | None = None
    capacity: RawCapacityRequirements | None = None


class RawRequest(StrictStruct):
    name: str
    exactly: RawSubRequest | None = None
    first_available: list[RawSubRequest] | None = None


class RawConstraint(StrictStruct):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class RawDeviceClaim(StrictStruct):
    requests: list[RawRequest] | None = None
    constraints: list[RawConstraint] | None = None
    config: list[dict[str, object]] | None = None


class RawResourceClaimSpec(StrictStruct):
    devices: RawDeviceClaim | None = None


class RawAllocatedDevice(_Lenient):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: Amounts | None = None


class RawAllocatedDevices(_Lenient):
    results: list[RawAllocatedDevice] | None = None


class RawAllocation(_Lenient):
    devices: RawAllocatedDevices | None = None
    node_selector: RawNodeSelector | None = None


class RawConsumer(_Lenient):
    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = msgspec.field(name="apiGroup", default="")


class RawResourceClaimStatus(_Lenient):
    allocation: RawAllocation | None = None
    reserved_for: list[RawConsumer] | None = None


class RawResourceClaim(_Lenient):
    metadata: RawMeta
    spec: dict[str, object] | None = None
    status: RawResourceClaimStatus | None = None


class RawResourceClaimTemplateSpec(_Lenient):
    spec: dict[str, object] | None = None


class RawResourceClaimTemplate(_Lenient):
    metadata: RawMeta
    spec: RawResourceClaimTemplateSpec | None = None


class RawDeviceClassSpec(StrictStruct):
    selectors: list[RawDeviceSelector] | None = None
    config: list[dict[str, object]] | None = None
    extended_resource_name: str | None = None


class RawDeviceClass(_Lenient):
    metadata: RawMeta
    spec: dict[str, object] | None = None


class RawPool(_Lenient):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class RawResourceSliceSpec(_Lenient):
    driver: str = ""
    pool: RawPool | None = None
    node_name: str | None = None
    node_selector: RawNodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[dict[str, object]] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[RawCounterSet] | None = None


class RawResourceSlice(_Lenient):
    metadata: RawMeta
    spec: RawResourceSliceSpec | None = None


def resource_claim_view(raw: RawResourceClaim) -> ResourceClaimView:
    """Read a ResourceClaim."""
    meta, status = raw.metadata, raw.status or RawResourceClaimStatus()
    allocation = status.allocation
    results = (allocation.devices.results if allocation and allocation.devices else None) or ()
    selector = allocation.node_selector if allocation else None
    requests, constraints, unsupported = _asked_devices(raw.spec)
    return ResourceClaimView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        requests=requests,
        constraints=constraints,
        unsupported=unsupported,
        is_allocated=allocation is not None,
        devices=tuple(map(_allocated, results)),
        node_terms=node_terms(selector.node_selector_terms if selector else None),
        reserved_for=tuple(
            ClaimConsumer(
                resource=one.resource, name=one.name, uid=one.uid, api_group=one.api_group
            )
            for one in status.reserved_for or ()
        ),
        deletion_timestamp=meta.deletion_timestamp,
    )


def resource_claim_template_view(raw: RawResourceClaimTemplate) -> ResourceClaimTemplateView:
    """Read a ResourceClaimTemplate."""
    meta = raw.metadata
    requests, constraints, unsupported = _asked_devices(raw.spec.spec if raw.spec else None)
    return ResourceClaimTemplateView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        requests=requests,
        constraints=constraints,
        unsupported=unsupported,
    )


def _asked_devices(
    raw: dict[str, object] | None,
) -> tuple[tuple[PrioritizedRequest, ...], tuple[DeviceConstraint, ...], str]:
    """Read the requests and constraints of a claim, or what is not supported in them."""
    spec = read_strictly(RawResourceClaimSpec, raw or {})
    if isinstance(spec, str):
        return (), (), spec
    asked = spec.devices or RawDeviceClaim()
    requests, constraints = asked.requests or (), asked.constraints or ()
    unsupported = _unsupported_claim(requests, constraints)
    if unsupported:
        return (), (), unsupported
    read = tuple(
        DeviceConstraint(
            match_attribute=one.match_attribute or "", requests=tuple(one.requests or ())
        )
        for one in constraints
    )
    return tuple(map(_request, requests)), read, ""


def _unsupported_claim(requests: Iterable[RawRequest], constraints: Iterable[RawConstraint]) -> str:
    for one in requests:
        if (one.exactly is None) == (not one.first_available):
            return f'request "{one.name}" is not supported: neither exactly nor firstAvailable'
        for alternative in (one.exactly,) if one.exactly else one.first_available or ():
            if alternative.allocation_mode not in {_ALL, _EXACT_COUNT}:
                return (
                    f'request "{one.name}": allocationMode "{alternative.allocation_mode}" is not '
                    "supported"
                )
    for constraint in constraints:
        if constraint.distinct_attribute is not None:
            return "a constraint with distinctAttribute is not supported"
        if not constraint.match_attribute:
            return "a constraint without matchAttribute is not supported"
    return ""


def _request(raw: RawRequest) -> PrioritizedRequest:
    alternatives = (raw.exactly,) if raw.exactly is not None else tuple(raw.first_available or ())
    return PrioritizedRequest(
        name=raw.name,
        alternatives=tuple(_alternative(one, one.name or raw.name) for one in alternatives),
        has_subrequests=raw.exactly is None,
    )


def _alternative(raw: RawSubRequest, name: str) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        device_class=raw.device_class_name,
        selectors=tuple(one.cel.expression for one in raw.selectors or ()),
        count=None if raw.allocation_mode == _ALL else (1 if raw.count is None else raw.count),
        admin_access=bool(raw.admin_access),
        tolerations=tuple(
            DeviceToleration(key=one.key, operator=one.operator, value=one.value, effect=one.effect)
            for one in raw.tolerations or ()
        ),
        capacity=_amounts((raw.capacity.requests if raw.capacity else None) or {}),
    )


def _allocated(raw: RawAllocatedDevice) -> AllocatedDevice:
    return AllocatedDevice(
        request=raw.request,
        driver=raw.driver,
        pool=raw.pool,
        device=raw.device,
        admin_access=bool(raw.admin_access),
        consumed=tuple(
            (qualified_name(name, raw.driver), amount)
            for name, amount in _amounts(raw.consumed_capacity or {})
        ),
    )


def _amounts(raw: Mapping[str, Amount]) -> tuple[tuple[str, Decimal], ...]:
    return tuple((name, parse_quantity(amount)) for name, amount in sorted(raw.items()))


def device_class_view(raw: RawDeviceClass) -> DeviceClassView:
    """Read a DeviceClass."""
    meta = raw.metadata
    spec = read_strictly(RawDeviceClassSpec, raw.spec or {})
    return DeviceClassView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selectors=()
        if isinstance(spec, str)
        else tuple(one.cel.expression for one in spec.selectors or ()),
        extended_resource="" if isinstance(spec, str) else spec.extended_resource_name or "",
        unsupported=spec if isinstance(spec, str) else "",
    )


def resource_slice_view(raw: RawResourceSlice) -> ResourceSliceView:
    """Read a ResourceSlice."""
    meta, spec = raw.metadata, raw.spec or RawResourceSliceSpec()
    pool = spec.pool or RawPool()
    owners = [one.name for one in meta.owner_references or () if one.kind == "Node"]
    selector = spec.node_selector
    return ResourceSliceView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        driver=spec.driver,
        pool=pool.name,
        generation=pool.generation,
        slice_count=pool.resource_slice_count,
        node_name=spec.node_name or "",
        node_terms=node_terms(selector.node_selector_terms if selector else None),
        all_nodes=bool(spec.all_nodes),
        selects_by_device=bool(spec.per_device_node_selection),
        devices=tuple(read_device(one, spec.driver) for one in spec.devices or ()),
        counter_sets=tuple(read_counter_set(one) for one in spec.shared_counters or ()),
        owner_node=owners[0] if owners else "",
    )
