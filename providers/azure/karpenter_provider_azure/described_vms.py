"""Reads virtual machines as Azure describes them. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import CloudProviderError, TerminationRefusedError
from karpenter_provider_azure.json_values import object_of, objects_of, tags_of, texts_of
from karpenter_provider_azure.labels import AKS_MACHINE_NODE_CLAIM_TAG, REGIONAL_ZONE
from karpenter_provider_azure.resource_ids import ResourceId, provider_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = [
    "DELETING",
    "VM_API_VERSION",
    "DescribedNode",
    "DescribedVm",
    "instance_id",
    "parse_time",
    "read_vm",
]

VM_API_VERSION: Final = "2025-04-01"
"""The earliest version of Microsoft.Compute in which inline network interfaces have tags."""
DELETING: Final = "deleting"
_FAILED: Final = frozenset({"failed", "canceled"})
_SUCCEEDED: Final = "succeeded"


def instance_id(vm_name: str) -> str:
    """Return the id by which this process knows a virtual machine: its name in lower case.

    All virtual machines of a cluster are in its node resource group, and Azure ignores the case of names.
    """
    return vm_name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedNode:
    """A virtual machine or AKS machine that exists; Azure describes none that is gone."""

    id: str
    """`instance_id` of its virtual machine."""
    name: str
    provider_id: str
    """The `spec.providerID` of its Node."""
    instance_type: str
    """The VM size; empty if Azure does not describe it."""
    zone: str
    """The zone label: `westus2-1`, or `0` without a zone."""
    capacity_type: str
    image_id: str = ""
    state: str = ""
    """`provisioningState` in lower case: `creating`, `succeeded`, `failed`, `updating`, `deleting`."""
    launched_at: datetime | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.state == DELETING

    @property
    def is_gone(self) -> bool:
        """Always False."""
        return False

    @property
    def reservation_id(self) -> str:
        """Always empty: no capacity is reserved."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedVm(DescribedNode):
    """A virtual machine."""

    vm_id: str = ""
    """The GUID that tells two virtual machines of one name apart; empty if Azure does not say it."""
    extensions: frozenset[str] = frozenset()
    """Names of its extensions in lower case."""
    identities: frozenset[str] = frozenset()
    """Ids of its user-assigned identities in lower case."""
    has_system_identity: bool = False
    """Whether it has an identity of its own besides them."""
    interfaces: tuple[str, ...] = ()
    """Ids of its network interfaces."""

    @property
    def machine_claim(self) -> str:
        """The claim of the AKS machine that the virtual machine is one of; empty if it is of none."""
        return next(
            (
                value
                for key, value in self.tags.items()
                if key.lower() == AKS_MACHINE_NODE_CLAIM_TAG
            ),
            "",
        )

    def require_no_machine(self) -> None:
        """Refuse to treat an AKS machine as a virtual machine.

        Raises:
            TerminationRefusedError: it is one: only AKS may change or delete its virtual machine.
        """
        if self.machine_claim:
            raise TerminationRefusedError(
                f"virtual machine {self.name} is that of an AKS machine (NodeClaim "
                f'"{self.machine_claim}"), which is left alone: set '
                "--manage-existing-aks-machines and --aks-machines-pool-name to its agent pool"
            )

    @property
    def has_failed(self) -> bool:
        """Whether its last operation failed: its launch, or a later change."""
        return self.state in _FAILED

    @property
    def has_succeeded(self) -> bool:
        """Whether its last operation succeeded, so that extensions can be added."""
        return self.state == _SUCCEEDED


def read_vm(item: JsonMapping) -> DescribedVm:
    """Read a virtual machine of a GET, a listing or the answer of its creation.

    Raises:
        CloudProviderError: its id is missing or cannot be read.
    """
    resource_id = str(item.get("id") or "")
    try:
        own_provider_id, name = provider_id(resource_id), ResourceId.parse(resource_id).name
    except ValueError as error:
        raise CloudProviderError(f"a virtual machine cannot be read: {error}") from error
    properties = object_of(item.get("properties"))
    size = str(object_of(properties.get("hardwareProfile")).get("vmSize") or "")
    image = object_of(object_of(properties.get("storageProfile")).get("imageReference"))
    identity = object_of(item.get("identity"))
    location = str(item.get("location") or "").lower().replace(" ", "")
    zones = texts_of(item.get("zones"))
    return DescribedVm(
        id=instance_id(name),
        name=name,
        provider_id=own_provider_id,
        instance_type=size,
        zone=f"{location}-{zones[0]}" if zones else REGIONAL_ZONE,
        capacity_type=SPOT if str(properties.get("priority")).lower() == "spot" else ON_DEMAND,
        image_id=str(image.get("communityGalleryImageId") or image.get("id") or ""),
        state=str(properties.get("provisioningState") or "").lower(),
        vm_id=str(properties.get("vmId") or ""),
        launched_at=parse_time(properties.get("timeCreated")),
        tags=tags_of(item.get("tags")),
        extensions=frozenset(
            str(each.get("id") or "").rpartition("/")[2].lower()
            for each in objects_of(item.get("resources"))
        ),
        identities=frozenset(
            str(key).lower() for key in object_of(identity.get("userAssignedIdentities"))
        ),
        has_system_identity="systemassigned" in str(identity.get("type") or "").lower(),
        interfaces=tuple(
            str(each.get("id") or "")
            for each in objects_of(
                object_of(properties.get("networkProfile")).get("networkInterfaces")
            )
        ),
    )


def parse_time(value: object) -> datetime | None:
    """Return an instant; None for a missing or unreadable one."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
