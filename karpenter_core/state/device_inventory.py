"""Builds the inventory of devices: claims, classes, slices, instance types.

ResourceClaims are allocated from it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from karpenter_core.api.devices import ResourceClaimView
from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.scheduling.devices.inventory import DeviceInventory
from karpenter_core.scheduling.devices.pools import PublishedPools
from karpenter_core.state.node_pool_usage import is_launched, listed_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.api.devices import InstanceDevices, ResourceSliceView
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.scheduling.problem import DaemonPod
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["build_device_inventory", "device_counts", "slices_of_node"]


def build_device_inventory(
    snapshot: Snapshot,
    state_nodes: Iterable[StateNode],
    daemons_on: Callable[[StateNode], Iterable[DaemonPod]],
) -> DeviceInventory:
    """Return the inventory of a pass; `state_nodes` are those that take pods.

    `daemons_on` tells which DaemonSets run on a node.
    """
    node_types: dict[str, tuple[InstanceDevices | None, ...]] = {}
    expected: dict[str, frozenset[str]] = {}
    daemon_claims = _daemon_claims(snapshot)
    for state_node in state_nodes:
        if state_node.claim is not None and not state_node.initialized:
            types = _possible_devices(snapshot, state_node, state_node.claim)
            if types:
                node_types[state_node.name] = types
            if daemon_claims:
                names = {daemon.name for daemon in daemons_on(state_node)} & daemon_claims.keys()
                expected[state_node.name] = frozenset(names - _served_daemons(snapshot, state_node))
    return DeviceInventory(
        claims=snapshot.resource_claims,
        classes=snapshot.device_classes,
        slices=tuple(one for _, one in sorted(snapshot.resource_slices.items())),
        node_types=node_types,
        daemon_claims=daemon_claims,
        expected_daemons=expected,
    )


def _daemon_claims(snapshot: Snapshot) -> dict[str, tuple[ResourceClaimView, ...]]:
    """Return the claims that are generated for the pod of each DaemonSet that has some.

    Without the template there is no claim, and the pod does not run.
    """
    found: dict[str, tuple[ResourceClaimView, ...]] = {}
    for name, daemon_set in sorted(snapshot.daemon_sets.items()):
        names = daemon_set.template.resource_claim_templates
        templates = [
            snapshot.resource_claim_templates.get(f"{daemon_set.namespace}/{template}")
            for template in names.values()
        ]
        claims = tuple(
            ResourceClaimView(
                uid="",
                namespace=template.namespace,
                name=template.name,
                requests=template.requests,
                constraints=template.constraints,
                unsupported=template.unsupported,
            )
            for template in templates
            if template is not None
        )
        if claims and len(claims) == len(names):
            found[name] = claims
    return found


def _served_daemons(snapshot: Snapshot, state_node: StateNode) -> set[str]:
    """Return the DaemonSets whose pod on a node has its devices."""
    names = {daemon_set.uid: name for name, daemon_set in snapshot.daemon_sets.items()}
    served: set[str] = set()
    for pod in state_node.pods:
        if pod.is_daemon and pod.owner_uid in names and pod.resource_claim_statuses:
            keys = (f"{pod.namespace}/{one}" for one in pod.resource_claim_statuses.values() if one)
            claims = [snapshot.resource_claims.get(key) for key in keys]
            if all(claim is not None and claim.is_allocated for claim in claims):
                served.add(names[pod.owner_uid])
    return served


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


def device_counts(snapshot: Snapshot) -> Counter[tuple[str, str, str]]:
    """Return the number of published devices by driver, NodePool of their node, and state.

    The state is `allocated`, `free`, or `unusable` for devices of incomplete and invalid pools. The
    NodePool is empty for devices that belong to no single node of a NodePool.
    """
    pool_of = {
        state_node.node.name: state_node.pool
        for state_node in snapshot.state_nodes
        if state_node.node is not None
    }
    allocated = {
        (device.driver, device.pool, device.device)
        for claim in snapshot.resource_claims.values()
        for device in claim.devices
        if not device.admin_access
    }
    counts = Counter[tuple[str, str, str]]()
    slices = [one for _, one in sorted(snapshot.resource_slices.items())]
    for device_id, node, is_usable in PublishedPools(slices).node_names():
        idle = "free" if is_usable else "unusable"
        state = "allocated" if device_id in allocated else idle
        counts[device_id[0], pool_of.get(node, ""), state] += 1
    return counts
