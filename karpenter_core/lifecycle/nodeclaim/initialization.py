"""Sets the condition Initialized once a node is Ready and usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import UNKNOWN, is_true
from karpenter_core.api.labels import INITIALIZED as INITIALIZED_LABEL
from karpenter_core.api.labels import REQUESTED_DRA_DRIVERS
from karpenter_core.api.nodeclaim import (
    DRA_DRIVER_POOLS_NOT_PUBLISHED,
    INITIALIZED,
    KNOWN_EPHEMERAL_TAINTS_EXIST,
    NODE_NOT_FOUND,
    NODE_NOT_READY,
    REGISTERED,
    RESOURCE_NOT_REGISTERED,
    STARTUP_TAINTS_EXIST,
)
from karpenter_core.api.quantities import parse_resources
from karpenter_core.lifecycle.changes import LifecycleStep, NodePatch
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.scheduling.devices.pools import has_complete_pool
from karpenter_core.scheduling.taints import taint_text
from karpenter_core.state.device_inventory import slices_of_node
from karpenter_core.state.taints import has_taint, is_ephemeral, taint_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.devices import ResourceSliceView
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["initialization_step", "is_usable", "published_slices", "requested_drivers"]


def initialization_step(
    claim: NodeClaim,
    nodes: Sequence[NodeView],
    *,
    now: datetime,
    slices: Sequence[ResourceSliceView] | None,
) -> LifecycleStep:
    """Set Initialized once the node is Ready, without startup taints and with all resources.

    Until then the condition names the first requirement that is not met. With `slices`, those of
    the node, each driver whose devices the claim was created for has to have a complete pool.
    """
    conditions = claim.status.conditions
    if not is_true(conditions, REGISTERED) or is_true(conditions, INITIALIZED):
        return LifecycleStep(claim=claim)
    if len(nodes) != 1:
        return _waiting(claim, NODE_NOT_FOUND, "Node not registered with cluster", now)
    node = nodes[0]
    unmet = _unmet_requirement(claim, node)
    if unmet is None and slices is not None:
        unmet = _missing_devices(claim, slices)
    if unmet is not None:
        return _waiting(claim, *unmet, now)
    return LifecycleStep(
        claim=with_condition(claim, INITIALIZED, now=now),
        node=NodePatch(labels={INITIALIZED_LABEL: "true"}),
    )


def is_usable(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether a Node meets the requirements of initialisation, those of devices apart."""
    return _unmet_requirement(claim, node) is None


def _unmet_requirement(claim: NodeClaim, node: NodeView) -> tuple[str, str] | None:
    if node.ready != "True":
        return NODE_NOT_READY, "Node status is NotReady"
    for spec in claim.spec.startup_taints:
        taint = taint_of(spec)
        if has_taint(node.taints, taint):
            return STARTUP_TAINTS_EXIST, f'StartupTaint "{taint_text(taint)}" still exists'
    for taint in node.taints:
        if is_ephemeral(taint):
            text = f'KnownEphemeralTaint "{taint_text(taint)}" still exists'
            return KNOWN_EPHEMERAL_TAINTS_EXIST, text
    for name, amount in sorted(parse_resources(claim.spec.resources.requests).items()):
        if amount and not node.allocatable.get(name, 0):
            return RESOURCE_NOT_REGISTERED, f'Resource "{name}" was requested but not registered'
    return None


def _missing_devices(
    claim: NodeClaim, slices: Sequence[ResourceSliceView]
) -> tuple[str, str] | None:
    for driver in requested_drivers(claim):
        if not has_complete_pool(slices, driver):
            return (
                DRA_DRIVER_POOLS_NOT_PUBLISHED,
                f'DRA driver "{driver}" has not published a complete resource pool',
            )
    return None


def requested_drivers(claim: NodeClaim) -> tuple[str, ...]:
    """Return the drivers whose devices a claim was created for."""
    text = claim.metadata.annotations.get(REQUESTED_DRA_DRIVERS, "")
    return tuple(filter(None, (driver.strip() for driver in text.split(","))))


def published_slices(
    claim: NodeClaim, nodes: Sequence[NodeView], snapshot: Snapshot
) -> tuple[ResourceSliceView, ...] | None:
    """Return the ResourceSlices of a claim's node; None if its initialisation does not depend on them."""
    if not requested_drivers(claim) or is_true(claim.status.conditions, INITIALIZED):
        return None
    return tuple(one for node in nodes for one in slices_of_node(snapshot, node.name))


def _waiting(claim: NodeClaim, reason: str, message: str, now: datetime) -> LifecycleStep:
    return LifecycleStep(
        claim=with_condition(
            claim, INITIALIZED, status=UNKNOWN, reason=reason, message=message, now=now
        )
    )
