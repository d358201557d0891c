"""NodeClaim: one machine that is wanted, or that is there."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model, Timestamp
from karpenter_core.api.conditions import Condition, ConditionRules
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import GROUP, VERSION
from karpenter_core.api.quantities import Quantity

__all__ = [
    "AWAITING_VOLUME_DETACHMENT",
    "CONSISTENCY_CHECK_FAILED",
    "CONSISTENT_STATE_FOUND",
    "CONSOLIDATABLE",
    "DISRUPTION_REASON",
    "DRAINED",
    "DRAINING",
    "DRIFTED",
    "INITIALIZED",
    "INSTANCE_TERMINATING",
    "INSTANCE_TYPE_NOT_FOUND",
    "KNOWN_EPHEMERAL_TAINTS_EXIST",
    "LAUNCHED",
    "LAUNCH_FAILED",
    "MULTIPLE_NODES_FOUND",
    "NODE_CLAIM_CONDITIONS",
    "NODE_NOT_FOUND",
    "NODE_NOT_READY",
    "NODE_POOL_DRIFTED",
    "REGISTERED",
    "REGISTRATION_HOOK_PENDING",
    "REQUIREMENTS_DRIFTED",
    "RESOURCE_NOT_REGISTERED",
    "STARTUP_TAINTS_EXIST",
    "TERMINATION_GRACE_PERIOD_ELAPSED",
    "VOLUMES_DETACHED",
    "NodeClaim",
    "NodeClaimSpec",
    "NodeClaimStatus",
    "NodeClassRef",
    "RequirementSpec",
    "ResourceRequirements",
    "TaintSpec",
]

# Conditions; the first three are what Ready depends on, the others stand beside it.
LAUNCHED: Final = "Launched"
REGISTERED: Final = "Registered"
INITIALIZED: Final = "Initialized"
CONSOLIDATABLE: Final = "Consolidatable"
DRIFTED: Final = "Drifted"
DISRUPTION_REASON: Final = "DisruptionReason"
CONSISTENT_STATE_FOUND: Final = "ConsistentStateFound"
DRAINED: Final = "Drained"
VOLUMES_DETACHED: Final = "VolumesDetached"
INSTANCE_TERMINATING: Final = "InstanceTerminating"

NODE_CLAIM_CONDITIONS: Final = ConditionRules(dependents=(LAUNCHED, REGISTERED, INITIALIZED))

# Reasons of Launched, Registered and Initialized while they are not True
LAUNCH_FAILED: Final = "LaunchFailed"
NODE_NOT_FOUND: Final = "NodeNotFound"
REGISTRATION_HOOK_PENDING: Final = "RegistrationHookPending"
MULTIPLE_NODES_FOUND: Final = "MultipleNodesFound"
NODE_NOT_READY: Final = "NodeNotReady"
STARTUP_TAINTS_EXIST: Final = "StartupTaintsExist"
KNOWN_EPHEMERAL_TAINTS_EXIST: Final = "KnownEphemeralTaintsExist"
RESOURCE_NOT_REGISTERED: Final = "ResourceNotRegistered"

# Reasons of the independent conditions
NODE_POOL_DRIFTED: Final = "NodePoolDrifted"
REQUIREMENTS_DRIFTED: Final = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND: Final = "InstanceTypeNotFound"
CONSISTENCY_CHECK_FAILED: Final = "ConsistencyCheckFailed"
DRAINING: Final = "Draining"
AWAITING_VOLUME_DETACHMENT: Final = "AwaitingVolumeDetachment"
TERMINATION_GRACE_PERIOD_ELAPSED: Final = "TerminationGracePeriodElapsed"


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
