"""Refuses pods that request devices by a DeviceClass's extendedResourceName.

Kubernetes allocates such devices when it schedules the pod, and no plan simulates it. A resource that
an instance type or a node has itself is one like others: a device plug-in offers it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import PodShape
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["class_resource_error", "class_resources"]

_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""The beginning of the resource that every class offers; the rest is its name."""


def class_resources(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the names of the DeviceClasses, by resources that only they offer."""
    found: dict[str, str] = {}
    for name, device_class in snapshot.device_classes.items():
        found[_PREFIX + name] = name
        if device_class.extended_resource:
            found[device_class.extended_resource] = name
    if not found:
        return found
    for catalogue in snapshot.catalogues.values():
        for item in catalogue.instance_types:
            for resource in found.keys() & item.capacity.keys():
                del found[resource]
    for node in snapshot.nodes.values():
        for resource in found.keys() & node.allocatable.keys():
            del found[resource]
    return found


def class_resource_error(shape: PodShape, resources: Mapping[str, str]) -> str:
    """Return why a pod that requests such a resource gets no node; empty if it requests none."""
    for resource in sorted(resources.keys() & shape.requests.keys()):
        return (
            f'the resource "{resource}" is that of deviceclass "{resources[resource]}", which is not '
            "supported: request its devices with a ResourceClaim"
        )
    return ""
