"""TinyCloudNodeClass: what there is to say about a machine of tinycloud."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus

__all__ = ["GROUP", "HASH_VERSION", "TinyCloudNodeClass", "TinyCloudNodeClassSpec", "static_hash"]

GROUP: Final = "karpenter.tinycloud.example.com"
HASH_VERSION: Final = "v1"
"""Goes up when `static_hash` computes something else, so that no node is replaced for that."""


class TinyCloudNodeClassSpec(Model):
    """What is wanted of the machines."""

    image: str = "debian"
    """The name of an image; its newest version is used."""
    disk_gib: Annotated[int, Facets(minimum=10, maximum=1000)] = 20
    """The size of the disk in GiB."""


class TinyCloudNodeClassStatus(NodeClassStatus):
    """What the provider found."""

    image_version: str = ""
    """The version of the image that new machines get."""


class TinyCloudNodeClass(NodeClass):
    """How machines of tinycloud are made."""

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


def static_hash(spec: TinyCloudNodeClassSpec) -> str:
    """Digest the fields whose change is drift; the image is compared with the machine's own."""
    text = json.dumps({"diskGib": spec.disk_gib}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
