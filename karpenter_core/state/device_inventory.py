"""Builds what ResourceClaims are allocated from: claims, classes, slices and instance types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.scheduling.devices.inventory import DeviceInventory
from karpenter_core.state.node_pool_usage import is_launched, listed_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.devices import InstanceDevices, ResourceSliceView
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["build_device_inventory", "slices_of_node"]


def build_device_inventory(snapshot: Snapshot, state_nodes: Iterable[StateNode]) -> DeviceInventory:
    """Return the inventory of a pass; `state_nodes` are those that take pods."""
    node_types: dict[str, tuple[InstanceDevices | None, ...]] = {}
    for state_node in state_nodes:
        if state_node.claim is not None and not state_node.initialized:
            types = _possible_devices(snapshot, state_node, state_node.claim)
            if types:
                node_types[state_node.name] = types
    return DeviceInventory(
        claims=snapshot.resource_claims,
        classes=snapshot.device_classes,
        slices=tuple(one for _, one in sorted(snapshot.resource_slices.items())),
        node_types=node_types,
    )


def _possible_devices(
    snapshot: Snapshot, state_node: StateNode, claim: NodeClaim
) -> tuple[InstanceDevices | None, ...]:
    catalogue = snapshot.catalogues.get(state_node.pool)
    name = state_node.labels.get(INSTANCE_TYPE, "")
    if is_launched(state_node) and name and catalogue is not None:
        types = tuple(item for item in catalogue.instance_types if item.name == name)
    else:
        types = listed_types(claim, catalogue)
    return tuple(dict.fromkeys(item.devices for item in types))


def slices_of_node(snapshot: Snapshot, name: str) -> tuple[ResourceSliceView, ...]:
    """Return the ResourceSlices that a Node's drivers published for it."""
    return tuple(
        one
        for _, one in sorted(snapshot.resource_slices.items())
        if name in {one.node_name, one.owner_node}
    )
