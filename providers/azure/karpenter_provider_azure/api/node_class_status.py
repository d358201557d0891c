"""The status of an AKSNodeClass: images, Kubernetes version and LocalDNS."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.facets import Facets, RenderedAs
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.nodeclass import NodeClassStatus
from karpenter_provider_azure.api.local_dns import LocalDNSState

__all__ = ["AKSNodeClassStatus", "NodeImage"]


class _ImageRequirement(Model):
    """A requirement on the labels that instance types of an image have."""

    key: str
    """Label key."""
    operator: str
    """Relation of the label's value to the values."""
    values: Annotated[tuple[str, ...], Facets(list_type="atomic")] = ()
    """Label values."""


class NodeImage(Model):
    """A node image, and the instance types that it supports."""

    id: str
    """Id of the image's version in its gallery."""
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        RenderedAs(tuple[_ImageRequirement, ...]),
        Facets(required=True),
    ] = ()
    """Requirements that an instance type must meet to run the image."""


class AKSNodeClassStatus(NodeClassStatus):
    """Resources and versions of new nodes, and conditions."""

    images: tuple[NodeImage, ...] = ()
    """Images; an instance runs the first one that supports its type."""
    kubernetes_version: str = ""
    """Kubernetes version of new nodes."""
    local_dns_state: Annotated[
        str, Facets(enum=tuple(item.value for item in LocalDNSState)), Field(alias="localDNSState")
    ] = ""
    """Whether new nodes have LocalDNS."""
