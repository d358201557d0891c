"""Parses and builds ids of resources, and the names that this provider gives.

Azure ignores the case of ids, and answers with several spellings of one id: ids are compared with
`same_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = [
    "VIRTUAL_MACHINES",
    "ResourceId",
    "agent_pool_id",
    "claim_name",
    "named_after_claim",
    "parse_provider_id",
    "provider_id",
    "resource_group_path",
    "same_id",
    "vm_id",
    "vm_name",
]

VIRTUAL_MACHINES: Final = "Microsoft.Compute/virtualMachines"
_SCHEME: Final = "azure://"
_NAME_PREFIX: Final = "aks-"
_LONGEST_VM_NAME: Final = 63
"""Azure permits 64 characters for Linux; the name is the node's label `kubernetes.io/hostname`, too."""
_DIGEST_BYTES: Final = 6
_HEAD: Final = 4
"""Number of segments before `providers`: subscription and resource group with their keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceId:
    """The id of a resource in a resource group."""

    subscription: str
    resource_group: str
    namespace: str
    """The resource provider: `Microsoft.Compute`."""
    types: tuple[str, ...]
    """The types by level: `virtualNetworks`, `subnets`."""
    names: tuple[str, ...]
    """The names by level, as many as types."""

    @classmethod
    def parse(cls, text: str) -> ResourceId:
        """Read an id.

        Raises:
            ValueError: it is not the id of a resource in a resource group.
        """
        segments = text.split("/")[1:] if text.startswith("/") else []
        head, rest = segments[:_HEAD], segments[_HEAD:]
        keys = [segment.lower() for segment in head[::2]]
        is_id = (
            keys == ["subscriptions", "resourcegroups"]
            and len(rest) >= _HEAD
            and len(rest) % 2 == 0
            and rest[0].lower() == "providers"
            and all(segments)
        )
        if not is_id:
            raise ValueError(
                f'"{text}" is no resource id: it must be /subscriptions/ID/resourceGroups/NAME/'
                "providers/NAMESPACE/TYPE/NAME"
            )
        return cls(
            subscription=head[1],
            resource_group=head[3],
            namespace=rest[1],
            types=tuple(rest[2::2]),
            names=tuple(rest[3::2]),
        )

    @property
    def name(self) -> str:
        """The name of the resource, without those of its parents."""
        return self.names[-1]

    @property
    def resource_type(self) -> str:
        """Namespace and types: `Microsoft.Network/virtualNetworks/subnets`."""
        return "/".join((self.namespace, *self.types))

    def is_type(self, resource_type: str) -> bool:
        """Whether this is a resource of a type; the case does not count."""
        return self.resource_type.lower() == resource_type.lower()

    def parent(self) -> ResourceId:
        """Return the id of the parent: of the virtual network of a subnet.

        Raises:
            ValueError: it has none.
        """
        if len(self.types) == 1:
            raise ValueError(f"{self} has no parent resource")
        return ResourceId(
            subscription=self.subscription,
            resource_group=self.resource_group,
            namespace=self.namespace,
            types=self.types[:-1],
            names=self.names[:-1],
        )

    def __str__(self) -> str:
        levels = (f"{kind}/{name}" for kind, name in zip(self.types, self.names, strict=True))
        group = resource_group_path(self.subscription, self.resource_group)
        return "/".join((f"{group}/providers/{self.namespace}", *levels))


def same_id(one: str, other: str) -> bool:
    """Whether two ids name one resource."""
    return one.lower() == other.lower()


def resource_group_path(subscription: str, resource_group: str) -> str:
    """Return the id of a resource group, which the paths of its resources begin with."""
    return f"/subscriptions/{subscription}/resourceGroups/{resource_group}"


def vm_id(subscription: str, resource_group: str, name: str) -> str:
    """Return the id of a virtual machine."""
    group = resource_group_path(subscription, resource_group)
    return f"{group}/providers/{VIRTUAL_MACHINES}/{name}"


def agent_pool_id(subscription: str, resource_group: str, cluster: str, pool: str) -> str:
    """Return the id of an agent pool of a managed cluster."""
    group = resource_group_path(subscription, resource_group)
    return (
        f"{group}/providers/Microsoft.ContainerService/managedClusters/{cluster}/agentPools/{pool}"
    )


def provider_id(resource_id: str) -> str:
    """Return the provider ID of the Node of a virtual machine.

    The resource group is in lower case, as the cloud controller manager of Azure writes it.

    Raises:
        ValueError: `resource_id` is no id of a virtual machine.
    """
    parsed = _virtual_machine(resource_id)
    return _SCHEME + vm_id(parsed.subscription, parsed.resource_group.lower(), parsed.name)


def parse_provider_id(text: str) -> ResourceId:
    """Return the id of the virtual machine of a provider ID.

    Raises:
        ValueError: it is no provider ID of a virtual machine of Azure.
    """
    if not text.startswith(_SCHEME):
        raise ValueError(f'"{text}" is no provider ID of Azure: it must begin with {_SCHEME}')
    return _virtual_machine(text.removeprefix(_SCHEME))


def _virtual_machine(text: str) -> ResourceId:
    parsed = ResourceId.parse(text)
    if not parsed.is_type(VIRTUAL_MACHINES):
        raise ValueError(f'"{text}" is no id of a virtual machine')
    return parsed


def vm_name(claim: str) -> str:
    """Return the name of the virtual machine of a NodeClaim, and of its interface and disk.

    The name is that of the host, which cloud-init cuts at the first dot: it has hyphens for dots. One that
    would be too long ends with a digest of the claim's name. A tag has the claim's name where it differs.
    """
    name = f"{_NAME_PREFIX}{claim.replace('.', '-')}"
    if len(name) <= _LONGEST_VM_NAME:
        return name
    digest = blake2b(claim.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: _LONGEST_VM_NAME - len(digest) - 1].rstrip('-')}-{digest}"


def named_after_claim(claim: NodeClaim) -> str:
    """Return the name of a claim's virtual machine in lower case, if `vm_name` gave it; else empty."""
    try:
        name = parse_provider_id(claim.status.provider_id).name.lower()
    except ValueError:
        return ""
    return name if name == vm_name(claim.name).lower() else ""


def claim_name(vm: str) -> str:
    """Return the name of the NodeClaim of a virtual machine; empty if the name is no such name.

    If `vm_name` has changed the name of the claim, this is the changed one.
    """
    return vm.removeprefix(_NAME_PREFIX) if vm.lower().startswith(_NAME_PREFIX) else ""
