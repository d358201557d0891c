"""What the core knows of every cloud's NodeClass: metadata and conditions."""

from __future__ import annotations

from pydantic import Field

from karpenter_core.api.base import KubernetesObject, Model
from karpenter_core.api.conditions import Condition

__all__ = ["NodeClass", "NodeClassStatus"]


class NodeClassStatus(Model):
    """The part of a NodeClass' status that the core reads."""

    conditions: tuple[Condition, ...] = ()


class NodeClass(KubernetesObject):
    """Base of the providers' NodeClass models."""

    status: NodeClassStatus = Field(default_factory=NodeClassStatus)
