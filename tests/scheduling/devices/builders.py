"""Builders of devices, claims and inventories, in one line each."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import msgspec

from karpenter_core.api.devices import (
    AllocatedDevice,
    ClaimConsumer,
    CounterSet,
    CounterUse,
    Device,
    DeviceCapacity,
    DeviceClassView,
    DeviceConstraint,
    DeviceRequest,
    DeviceTemplate,
    InstanceDevices,
    PrioritizedRequest,
    ResourceClaimView,
    ResourceSliceView,
)
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm
from karpenter_core.scheduling.devices.inventory import DeviceInventory
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import catalogue, instance_type, pod, problem

DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"
ZONE = "topology.kubernetes.io/zone"


def device(name, *, capacity=None, counters=None, shared=False, taints=(), **attributes):
    """Make a device; names belong to the driver's domain."""
    return Device(
        name=name,
        attributes=tuple((f"{DRIVER}/{key}", value) for key, value in sorted(attributes.items())),
        capacity=tuple(
            value
            if isinstance(value, DeviceCapacity)
            else DeviceCapacity(name=f"{DRIVER}/{key}", value=Decimal(value))
            for key, value in (capacity or {}).items()
        ),
        counter_uses=tuple(
            CounterUse(counter_set=key, counters=amounts(values))
            for key, values in (counters or {}).items()
        ),
        taints=tuple(taints),
        is_shareable=shared,
    )


def amounts(values):
    return tuple((key, Decimal(value)) for key, value in sorted(values.items()))


def counter_set(name, **counters):
    return CounterSet(name=name, counters=amounts(counters))


def gpus(count, **attributes):
    return tuple(device(f"gpu-{number}", **attributes) for number in range(count))


def devices_of(*devices, pool="node", driver=DRIVER, counter_sets=(), bindings=()):
    """Make the devices of an instance type."""
    template = DeviceTemplate(driver=driver, pool=pool, devices=devices, counter_sets=counter_sets)
    return InstanceDevices(templates=(template,), bindings=tuple(bindings))


def gpu_type(name, devices=None, **options):
    return replace(instance_type(name, **options), devices=devices)


def request(name="gpu", *, count=1, selectors=(), device_class=CLASS, capacity=None, **options):
    return PrioritizedRequest(
        name=name,
        alternatives=(
            DeviceRequest(
                name=name,
                device_class=device_class,
                count=count,
                selectors=tuple(selectors),
                capacity=amounts(capacity or {}),
                **options,
            ),
        ),
    )


def first_available(name, *requests):
    return PrioritizedRequest(
        name=name,
        alternatives=tuple(one.alternatives[0] for one in requests),
        has_subrequests=True,
    )


def claim(name="gpu", *requests, match=None, **fields):
    constraints = () if match is None else (DeviceConstraint(match_attribute=f"{DRIVER}/{match}"),)
    return ResourceClaimView(
        uid=f"uid-{name}",
        namespace="default",
        name=name,
        requests=requests or (request(),),
        constraints=constraints,
        **fields,
    )


def allocated(
    name, *devices, pool="node-1", node="", consumers=("somebody",), consumed=None, **fields
):
    """Make a claim that has devices, for pods with these UIDs."""
    return claim(
        name,
        is_allocated=True,
        devices=tuple(
            AllocatedDevice(
                request="gpu",
                driver=DRIVER,
                pool=pool,
                device=one,
                consumed=tuple(
                    (f"{DRIVER}/{key}", value) for key, value in amounts(consumed or {})
                ),
            )
            for one in devices
        ),
        node_terms=(named_node(node),) if node else (),
        reserved_for=tuple(ClaimConsumer(resource="pods", name=uid, uid=uid) for uid in consumers),
        **fields,
    )


def named_node(name):
    return NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,)),)
    )


def in_zone(*zones):
    return (
        NodeSelectorTerm(
            match_expressions=(NodeSelectorRequirement(key=ZONE, operator="In", values=zones),)
        ),
    )


def device_class(name=CLASS, *selectors):
    return DeviceClassView(
        uid=f"uid-{name}",
        name=name,
        selectors=selectors or (f'device.driver == "{DRIVER}"',),
    )


def resource_slice(*devices, node="", pool="", zones=(), generation=1, count=1, **fields):
    name = f"{node or 'shared'}-{pool or node}-{generation}-{len(fields)}-{len(devices)}"
    return ResourceSliceView(
        uid=f"uid-{name}",
        name=name,
        driver=DRIVER,
        pool=pool or node or "shared",
        generation=generation,
        slice_count=count,
        node_name=node,
        owner_node=node,
        node_terms=in_zone(*zones) if zones else (),
        all_nodes=not node and not zones,
        devices=devices,
        **fields,
    )


def device_pod(name, *claims, templates=None, node_name="", **fields):
    """Make a pod with claims: by name, or (`templates`) generated ones by the pod's own name."""
    made = pod(name, node_name=node_name, **fields)
    shape = msgspec.structs.replace(
        made.shape,
        resource_claims=(*claims, *(templates or {})),
        resource_claim_names={one: one for one in claims},
    )
    return msgspec.structs.replace(made, shape=shape, resource_claim_statuses=dict(templates or {}))


def inventory(*claims, classes=None, slices=(), node_types=None):
    return DeviceInventory(
        claims={one.key: one for one in claims},
        classes={one.name: one for one in (classes or (device_class(),))},
        slices=tuple(slices),
        node_types=node_types or {},
        daemon_claims={},
        expected_daemons={},
    )


def planned(pods, types, *claims, nodes=(), options=None, pools=None, **fields):
    """Solve a problem with these claims; other fields are the inventory's."""
    asked = problem(pods, catalogue=catalogue(*types), nodes=nodes, pools=pools)
    return solve(replace(asked, devices=inventory(*claims, **fields)), options)


def reason(plan, pod_name):
    (found,) = [
        text.message for uid, text in plan.unschedulable.items() if uid.endswith(f"-{pod_name}")
    ]
    return found
