"""Defines SampleNodeClass, the configuration of servers."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus


class SampleNodeClassSpec(Model):
    """The desired image and disk of the servers."""

    image: str = "debian"
    """The name of an image; its newest version is used."""
    disk_gib: Annotated[int, Facets(minimum=10, maximum=1000)] = 20
    """The size of the disk in GiB."""


class SampleNodeClassStatus(NodeClassStatus):
    """The image that the provider found."""

    image_id: str = ""
    """The newest version of the image; new servers run it, and others drift."""


class SampleNodeClass(NodeClass):
    """Configures the servers that the provider launches."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="karpenter.sample.example.com",
        version="v1",
        kind="SampleNodeClass",
        plural="samplenodeclasses",
        singular="samplenodeclass",
    )
    spec: SampleNodeClassSpec = Field(default_factory=SampleNodeClassSpec)
    status: SampleNodeClassStatus = Field(default_factory=SampleNodeClassStatus)  # pyright: ignore[reportIncompatibleVariableOverride] - models are frozen
