"""Holds what the devices of a pass are allocated from, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.devices import (
        DeviceClassView,
        InstanceDevices,
        ResourceClaimView,
        ResourceSliceView,
    )

__all__ = ["DeviceInventory"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceInventory:
    """ResourceClaims, DeviceClasses and ResourceSlices of the cluster.

    `node_types` are the devices of the instance types that a node which is not initialised may have,
    by the name of its `ExistingNode`. Such a node has these, whatever is published on it: drivers
    may have published a part only. `daemon_claims` are the claims that Kubernetes generates for the
    pod of each DaemonSet, and `expected_daemons` the DaemonSets whose pods have no devices yet on a
    node that is not initialised.
    """

    claims: Mapping[str, ResourceClaimView]
    """By `namespace/name`."""
    classes: Mapping[str, DeviceClassView]
    slices: tuple[ResourceSliceView, ...]
    node_types: Mapping[str, tuple[InstanceDevices | None, ...]]
    daemon_claims: Mapping[str, tuple[ResourceClaimView, ...]]
    """By `namespace/name` of the DaemonSet; none without generated claims."""
    expected_daemons: Mapping[str, frozenset[str]]
