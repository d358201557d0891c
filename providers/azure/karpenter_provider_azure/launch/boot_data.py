"""Declares how launches get what a node does at its first boot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import Requirements
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["SCRIPT_EXTENSION", "BootData", "BootDataBuilder", "BootTarget"]

SCRIPT_EXTENSION: Final = "cse-agent-karpenter"
"""The name of the extension that runs the custom script of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTarget:
    """The node that boots."""

    node_claim: NodeClaim
    node_class: AKSNodeClass
    size: VmSize
    requirements: Requirements
    """Of the instance type."""
    capacity_type: str
    zone: str
    """Zone label of the chosen offering: `westus2-1`, or `0`."""
    image_id: str = ""
    uses_ultra_ssd: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BootData:
    """Data for the first boot of a node; contains the bootstrap token."""

    custom_data: str
    """In base64."""
    custom_script: str = field(default="", repr=False)
    """The command of the extension that makes the node join; empty if the custom data does it."""


class BootDataBuilder(Protocol):
    """Builds boot data; callable from any thread."""

    def boot_data(self, target: BootTarget) -> BootData:
        """Return the boot data of a node.

        Raises:
            CloudProviderError: what it needs is not known yet, or a service refused or did not answer.
            BadInputError: the NodeClass or the claim cannot be used.
        """
        ...
