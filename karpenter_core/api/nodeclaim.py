"""NodeClaim: one machine that is wanted, or that is there."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model, Timestamp
from karpenter_core.api.conditions import Condition
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import GROUP, VERSION
from karpenter_core.api.quantities import Quantity

__all__ = [
    "NodeClaim",
    "NodeClaimSpec",
    "NodeClaimStatus",
    "NodeClassRef",
    "RequirementSpec",
    "ResourceRequirements",
    "TaintSpec",
]


class TaintSpec(Model):
    """A taint as written in a manifest."""

    key: str
    effect: str
    value: str = ""
    time_added: Timestamp | None = None


class RequirementSpec(Model):
    """A node requirement as written in a manifest."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class NodeClassRef(Model):
    """Which NodeClass describes the machines."""

    group: str
    kind: str
    name: str


class ResourceRequirements(Model):
    """What the pods on the machine ask for in sum."""

    requests: dict[str, Quantity] = Field(default_factory=dict)


class NodeClaimSpec(Model):
    """What is wanted."""

    taints: tuple[TaintSpec, ...] = ()
    startup_taints: tuple[TaintSpec, ...] = ()
    requirements: tuple[RequirementSpec, ...] = ()
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    node_class_ref: NodeClassRef
    termination_grace_period: Duration | None = None
    expire_after: NillableDuration = NillableDuration("720h")


class NodeClaimStatus(Model):
    """What is there."""

    node_name: str = ""
    provider_id: str = ""
    image_id: str = ""
    capacity: dict[str, Quantity] = Field(default_factory=dict)
    allocatable: dict[str, Quantity] = Field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    last_pod_event_time: Timestamp | None = None


class NodeClaim(KubernetesObject):
    """One machine that is wanted, or that is there."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version=VERSION,
        kind="NodeClaim",
        plural="nodeclaims",
        singular="nodeclaim",
    )

    spec: NodeClaimSpec
    status: NodeClaimStatus = Field(default_factory=NodeClaimStatus)
