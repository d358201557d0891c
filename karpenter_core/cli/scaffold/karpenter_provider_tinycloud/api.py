"""Defines TinyCloudNodeClass, the configuration of VMs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus
from karpenter_core.provider.contract import NodeClassHash
from karpenter_core.provider.kit.node_class.hashing import hash_fields

__all__ = ["GROUP", "HASH_VERSION", "TinyCloudNodeClass", "TinyCloudNodeClassSpec", "static_hash"]

GROUP: Final = "karpenter.tinycloud.example.com"
HASH_VERSION: Final = "v1"
"""Raise it whenever `static_hash` changes: hashes of different versions are never compared."""


class TinyCloudNodeClassSpec(Model):
    """The desired image and disk of the VMs."""

    image: str = "debian"
    """The name of an image; its newest version is used."""
    disk_gib: Annotated[int, Facets(minimum=10, maximum=1000)] = 20
    """The size of the disk in GiB."""


class TinyCloudNodeClassStatus(NodeClassStatus):
    """The image that the provider found."""

    image_version: str = ""
    """The version of the image that new VMs run."""


class TinyCloudNodeClass(NodeClass):
    """Configures the VMs that the provider launches."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1alpha1",
        kind="TinyCloudNodeClass",
        plural="tinycloudnodeclasses",
        singular="tinycloudnodeclass",
    )

    spec: TinyCloudNodeClassSpec = Field(default_factory=TinyCloudNodeClassSpec)
    status: TinyCloudNodeClassStatus = Field(  # pyright: ignore[reportIncompatibleVariableOverride] - models are frozen
        default_factory=TinyCloudNodeClassStatus
    )


def static_hash(spec: TinyCloudNodeClassSpec) -> NodeClassHash:
    """Hash the fields whose change is drift; the image of each VM is compared instead."""
    return hash_fields({"diskGib": spec.disk_gib}, version=HASH_VERSION)
