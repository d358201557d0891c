"""Declares the base of every cloud's NodeClass: metadata and conditions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from karpenter_core.api.base import KubernetesObject, Model
from karpenter_core.api.conditions import STRICT_CONDITION, Condition

__all__ = ["NodeClass", "NodeClassStatus"]


class NodeClassStatus(Model):
    """Observed state of the NodeClass."""

    conditions: Annotated[tuple[Condition, ...], *STRICT_CONDITION] = ()
    """Conditions of the NodeClass; `Ready` is True if nodes can be launched with it."""


class NodeClass(KubernetesObject):
    """Base of the providers' NodeClass models."""

    status: NodeClassStatus = Field(default_factory=NodeClassStatus)
