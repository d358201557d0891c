"""Reads AKS machines as Azure describes them. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_azure.arm.reads import properties_of
from karpenter_provider_azure.described_vms import instance_id, parse_time
from karpenter_provider_azure.json_values import object_of
from karpenter_provider_azure.labels import (
    AKS_MACHINE_NODE_CLAIM_TAG,
    CLUSTER_TAG,
    REGIONAL_ZONE,
)
from karpenter_provider_azure.resource_ids import ResourceId, provider_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping

__all__ = [
    "DescribedMachine",
    "claim_of_machine",
    "is_owned_machine",
    "machine_name",
    "read_machine",
]

_DELETING: Final = "deleting"
_IN_SYNC: Final = frozenset({"", "synced"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMachine:
    """An AKS machine that exists, with its virtual machine."""

    id: str
    """`instance_id` of its virtual machine."""
    name: str
    """Its name in the agent pool."""
    provider_id: str
    """The `spec.providerID` of its Node: that of its virtual machine."""
    instance_type: str
    """The VM size."""
    zone: str
    """The zone label: `westus2-1`, or `0` without a zone."""
    capacity_type: str
    image_id: str = ""
    """`nodeImageVersion`: `AKSUbuntu-2204gen2containerd-202410.15.0`."""
    state: str = ""
    """`provisioningState` in lower case."""
    drift_action: str = ""
    """Action that AKS recommends: `Synced`, `Recreate`; empty if AKS does not say."""
    launched_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.state == _DELETING

    @property
    def is_gone(self) -> bool:
        """Whether it exists no more: Azure does not describe such machines."""
        return False

    @property
    def reservation_id(self) -> str:
        """The reservation whose capacity it uses; always empty."""
        return ""

    @property
    def must_be_replaced(self) -> bool:
        """Whether AKS says that it is not as the cluster is now."""
        return self.drift_action.lower() not in _IN_SYNC


def machine_name(vm_name: str, pool: str) -> str:
    """Return the name of the machine of a virtual machine; empty if it is none of the pool.

    AKS names the virtual machine `aks-POOL-MACHINE-NUMBER-vm`.
    """
    pattern = rf"aks-{re.escape(pool)}-(.+)-[0-9a-z]+-vm"
    found = re.fullmatch(pattern, vm_name, re.IGNORECASE)
    return found[1] if found else ""


def is_owned_machine(item: JsonMapping, cluster: str) -> bool:
    """Whether a machine was made for a claim of a cluster, by its tags."""
    own = _own_tags(_tags(item))
    return own.get(CLUSTER_TAG) == cluster and bool(own.get(AKS_MACHINE_NODE_CLAIM_TAG))


def claim_of_machine(machine: DescribedMachine) -> ClaimRef | None:
    """Return the claim of a machine, whose UID is not known; None if it has none.

    The name of a machine is that of its claim, shortened if it has more than 34 characters: the tag has
    the whole name.
    """
    name = _own_tags(machine.tags).get(AKS_MACHINE_NODE_CLAIM_TAG, "")
    return ClaimRef(name=name, uid="") if name else None


def read_machine(item: JsonMapping, *, location: str, vm_id: str = "") -> DescribedMachine | None:
    """Read a machine of a GET or a listing; None if it has no virtual machine.

    `vm_id` is the id of its virtual machine, if the machine itself does not say it. One that is being
    made or deleted, or has failed, may have none; it is no instance then.

    Raises:
        CloudProviderError: its name, its virtual machine or its size is missing or cannot be read.
    """
    name, properties = str(item.get("name") or ""), properties_of(item)
    if not name:
        raise CloudProviderError(f"an AKS machine has no name: {item.get('id') or item!r}")
    state = str(properties.get("provisioningState") or "").lower()
    resource_id = str(properties.get("resourceId") or vm_id)
    if not resource_id and state in {"creating", "failed", "canceled", _DELETING}:
        return None
    try:
        vm, own_provider_id = ResourceId.parse(resource_id), provider_id(resource_id)
    except ValueError as error:
        raise CloudProviderError(f"AKS machine {name} cannot be read: {error}") from error
    size = str(object_of(properties.get("hardware")).get("vmSize") or "")
    if not size:
        raise CloudProviderError(f"AKS machine {name} has no size")
    status = object_of(properties.get("status"))
    zones = cast("list[object]", item.get("zones") or ())
    return DescribedMachine(
        id=instance_id(vm.name),
        name=name,
        provider_id=own_provider_id,
        instance_type=size,
        zone=f"{location}-{zones[0]}" if zones else REGIONAL_ZONE,
        # AKS writes a priority for spot machines alone.
        capacity_type=SPOT if str(properties.get("priority")).lower() == "spot" else ON_DEMAND,
        image_id=str(properties.get("nodeImageVersion") or ""),
        state=state,
        drift_action=str(status.get("driftAction") or ""),
        launched_at=parse_time(status.get("creationTimestamp")),
        tags=_tags(item),
    )


def _tags(item: JsonMapping) -> dict[str, str]:
    tags = object_of(properties_of(item).get("tags"))
    return {str(key): str(value) for key, value in tags.items()}


def _own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags by key in lower case, as Azure compares keys."""
    return {key.lower(): value for key, value in tags.items()}
