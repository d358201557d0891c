"""What the core knows of every cloud's NodeClass: metadata and conditions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from karpenter_core.api.base import KubernetesObject, Model
from karpenter_core.api.conditions import STRICT_CONDITION, Condition

__all__ = ["NodeClass", "NodeClassStatus"]


class NodeClassStatus(Model):
    """The part of a NodeClass' status that the core reads."""

    conditions: Annotated[tuple[Condition, ...], *STRICT_CONDITION] = ()
    """Whether the NodeClass can be used, and why not."""


class NodeClass(KubernetesObject):
    """Base of the providers' NodeClass models."""

    status: NodeClassStatus = Field(default_factory=NodeClassStatus)
