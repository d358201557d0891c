"""NodePool: what kind of machines may be launched, how many, and how they may be disrupted."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model
from karpenter_core.api.conditions import Condition, ConditionRules
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import GROUP, VERSION
from karpenter_core.api.nodeclaim import NodeClassRef, RequirementSpec, TaintSpec
from karpenter_core.api.quantities import Quantity

__all__ = [
    "NODE_CLASS_NOT_FOUND",
    "NODE_CLASS_READINESS_UNKNOWN",
    "NODE_CLASS_READY",
    "NODE_CLASS_TERMINATING",
    "NODE_POOL_CONDITIONS",
    "NODE_POOL_VALIDATION_FAILED",
    "NODE_REGISTRATION_HEALTHY",
    "REGISTRATION_FAILED",
    "VALIDATION_SUCCEEDED",
    "Budget",
    "Disruption",
    "NodePool",
    "NodePoolSpec",
    "NodePoolStatus",
    "Template",
    "TemplateMetadata",
    "TemplateSpec",
]

# Conditions; the first two are what Ready depends on, the third stands beside it.
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
NODE_CLASS_READY: Final = "NodeClassReady"
NODE_REGISTRATION_HEALTHY: Final = "NodeRegistrationHealthy"

NODE_POOL_CONDITIONS: Final = ConditionRules(dependents=(VALIDATION_SUCCEEDED, NODE_CLASS_READY))

# Reasons while they are not True
NODE_POOL_VALIDATION_FAILED: Final = "NodePoolValidationFailed"
NODE_CLASS_NOT_FOUND: Final = "NodeClassNotFound"
NODE_CLASS_TERMINATING: Final = "NodeClassTerminating"
NODE_CLASS_READINESS_UNKNOWN: Final = "NodeClassReadinessUnknown"
REGISTRATION_FAILED: Final = "RegistrationFailed"


class TemplateMetadata(Model):
    """Labels and annotations that every node of the pool carries."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class TemplateSpec(Model):
    """What a NodeClaim of the pool looks like."""

    taints: tuple[TaintSpec, ...] = ()
    startup_taints: tuple[TaintSpec, ...] = ()
    requirements: tuple[RequirementSpec, ...] = ()
    node_class_ref: NodeClassRef
    termination_grace_period: Duration | None = None
    expire_after: NillableDuration = NillableDuration("720h")


class Template(Model):
    """The mould of the pool's NodeClaims."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    spec: TemplateSpec


class Budget(Model):
    """How many nodes may be disrupted at once, and when."""

    nodes: str = "10%"
    reasons: tuple[str, ...] | None = None
    schedule: str | None = None
    duration: Duration | None = None


class Disruption(Model):
    """How the pool's nodes may be disrupted."""

    consolidate_after: NillableDuration = NillableDuration("0s")
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = (Budget(),)


class NodePoolSpec(Model):
    """What is wanted of the pool."""

    template: Template
    disruption: Disruption = Field(default_factory=Disruption)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Model):
    """What the pool has."""

    resources: dict[str, Quantity] = Field(default_factory=dict)
    nodes: int = 0
    node_class_observed_generation: int | None = None
    conditions: tuple[Condition, ...] = ()


class NodePool(KubernetesObject):
    """A kind of machine that may be launched."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version=VERSION,
        kind="NodePool",
        plural="nodepools",
        singular="nodepool",
        scale=(".spec.replicas", ".status.nodes"),
    )

    spec: NodePoolSpec
    status: NodePoolStatus = Field(default_factory=NodePoolStatus)
