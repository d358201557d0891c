"""Reads AKS machines as Azure describes them. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_azure.described_vms import DELETING, DescribedNode, instance_id, parse_time
from karpenter_provider_azure.json_values import object_of, properties_of, tags_of, texts_of
from karpenter_provider_azure.labels import (
    AKS_MACHINE_NODE_CLAIM_TAG,
    CLUSTER_TAG,
    REGIONAL_ZONE,
)
from karpenter_provider_azure.resource_ids import ResourceId, provider_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = [
    "DescribedMachine",
    "claim_of_machine",
    "is_owned_machine",
    "machine_name",
    "read_machine",
]

_IN_SYNC: Final = frozenset({"", "synced"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMachine(DescribedNode):
    """An AKS machine; the name is its own in the agent pool, the rest that of its virtual machine.

    The image is `nodeImageVersion`: `AKSUbuntu-2204gen2containerd-202410.15.0`.
    """

    drift_action: str
    """Action that AKS recommends: `Synced`, `Recreate`; empty if AKS does not say."""

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
    own = _own_tags(tags_of(properties_of(item).get("tags")))
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
    if not resource_id and state in {"creating", "failed", "canceled", DELETING}:
        return None
    try:
        vm, own_provider_id = ResourceId.parse(resource_id), provider_id(resource_id)
    except ValueError as error:
        raise CloudProviderError(f"AKS machine {name} cannot be read: {error}") from error
    size = str(object_of(properties.get("hardware")).get("vmSize") or "")
    if not size:
        raise CloudProviderError(f"AKS machine {name} has no size")
    status = object_of(properties.get("status"))
    zones = texts_of(item.get("zones"))
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
        tags=tags_of(properties_of(item).get("tags")),
    )


def _own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags by key in lower case, as Azure compares keys."""
    return {key.lower(): value for key, value in tags.items()}
