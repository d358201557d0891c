"""NodeClaim: the request for one node, and the instance that serves it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

from pydantic import Field

from karpenter_core.api.base import (
    CustomResource,
    KubernetesObject,
    Model,
    PrinterColumn,
    Timestamp,
)
from karpenter_core.api.cel import CEL, RuleSlot
from karpenter_core.api.conditions import Condition, ConditionRules
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.facets import DURATION, DURATION_OR_NEVER, QUALIFIED_NAME, Facets
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
    "NODE_REFUSED",
    "REGISTERED",
    "REGISTRATION_HOOK_PENDING",
    "REQUIREMENTS_DRIFTED",
    "REQUIREMENT_RULES",
    "RESOURCE_NOT_REGISTERED",
    "STARTUP_TAINTS_EXIST",
    "TERMINATION_GRACE_PERIOD_ELAPSED",
    "VOLUMES_DETACHED",
    "NodeClaim",
    "NodeClaimSpec",
    "NodeClaimStatus",
    "NodeClassRef",
    "RequirementKey",
    "RequirementOperator",
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
NODE_REFUSED: Final = "NodeRefused"
REGISTRATION_HOOK_PENDING: Final = "RegistrationHookPending"
MULTIPLE_NODES_FOUND: Final = "MultipleNodesFound"
NODE_NOT_READY: Final = "NodeNotReady"
STARTUP_TAINTS_EXIST: Final = "StartupTaintsExist"
KNOWN_EPHEMERAL_TAINTS_EXIST: Final = "KnownEphemeralTaintsExist"
RESOURCE_NOT_REGISTERED: Final = "ResourceNotRegistered"
DRA_DRIVER_POOLS_NOT_PUBLISHED: Final = "DRADriverPoolsNotPublished"

# Reasons of the independent conditions
NODE_POOL_DRIFTED: Final = "NodePoolDrifted"
REQUIREMENTS_DRIFTED: Final = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND: Final = "InstanceTypeNotFound"
CONSISTENCY_CHECK_FAILED: Final = "ConsistencyCheckFailed"
DRAINING: Final = "Draining"
AWAITING_VOLUME_DETACHMENT: Final = "AwaitingVolumeDetachment"
TERMINATION_GRACE_PERIOD_ELAPSED: Final = "TerminationGracePeriodElapsed"


# Upstream's order; it is the order in which the API server lists them in its refusals.
_OPERATORS: Final = ("Gte", "Lte", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

REQUIREMENT_RULES: Final = (
    CEL(
        "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
        "requirements with operator 'In' must have a value defined",
    ),
    CEL(
        "self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || "
        "x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer "
        "value",
    ),
    CEL(
        "self.all(x, (x.operator == 'In' && has(x.minValues)) ? "
        "x.values.size() >= x.minValues : true)",
        "requirements with 'minValues' must have at least that many values specified in the "
        "'values' field",
    ),
)


RequirementKey: TypeAlias = Annotated[
    str,
    Facets(max_length=316, pattern=QUALIFIED_NAME),
    CEL(
        'self in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || '
        '!self.find("^([^/]+)").endsWith("karpenter.sh")',
        'label domain "karpenter.sh" is restricted',
    ),
    CEL('self != "kubernetes.io/hostname"', 'label "kubernetes.io/hostname" is restricted'),
    RuleSlot.REQUIREMENT_KEY,
]
"""The label key of a requirement."""

RequirementOperator: TypeAlias = Annotated[str, Facets(enum=_OPERATORS)]
"""The operator of a requirement."""


class TaintSpec(Model):
    """A taint: pods that do not tolerate it are not scheduled on the node."""

    key: Annotated[str, Facets(min_length=1, pattern=QUALIFIED_NAME)]
    """Key of the taint, optionally with a domain prefix."""
    effect: Annotated[str, Facets(enum=("NoSchedule", "PreferNoSchedule", "NoExecute"))]
    """Effect of the taint on pods that do not tolerate it."""
    value: Annotated[str, Facets(pattern=QUALIFIED_NAME)] = ""
    """Value of the taint, compared with the value of a toleration."""
    time_added: Timestamp | None = None
    """Time at which the taint was added."""


class RequirementSpec(Model):
    """A requirement on a node label, optionally with a minimum number of values."""

    key: RequirementKey
    """Label key."""
    operator: RequirementOperator
    """Relation between the label's value and `values`."""
    # Upstream attaches the pattern of label values to the array, where the API server ignores
    # it: values are judged by runtime validation, so that no manifest is refused here alone.
    values: Annotated[tuple[str, ...], Facets(list_type="atomic")] = ()
    """Label values: at least one for In, exactly one integer for Gt, Lt, Gte and Lte."""
    min_values: Annotated[int | None, Facets(minimum=1, maximum=50)] = None
    """Minimum number of different values among the instance types of a NodeClaim. Alpha."""


class NodeClassRef(Model):
    """Reference to the NodeClass that configures the instances."""

    group: Annotated[str, Facets(pattern="^[^/]*$"), CEL("self != ''", "group may not be empty")]
    """API group of the NodeClass."""
    kind: Annotated[str, CEL("self != ''", "kind may not be empty")]
    """Kind of the NodeClass."""
    name: Annotated[str, CEL("self != ''", "name may not be empty")]
    """Name of the NodeClass."""


class ResourceRequirements(Model):
    """Sum of the resources that the planned pods of the node request."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """Minimum resources of the instance, DaemonSet pods included."""


class NodeClaimSpec(Model):
    """Desired state of the NodeClaim; immutable."""

    cel: ClassVar = (CEL("self == oldSelf", "spec is immutable"),)

    taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints of the node."""
    startup_taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints that the node starts with and that another component, such as a DaemonSet, removes.

    Pods need not tolerate them for a node to be launched; the node is initialised only after
    they are removed.
    """
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        Facets(list_type="atomic", max_items=100, required=True),
        *REQUIREMENT_RULES,
    ] = ()
    """Requirements that the labels of the node must satisfy."""
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    """Resources that the instance must provide."""
    node_class_ref: NodeClassRef
    """NodeClass that configures the instance in the cloud."""
    termination_grace_period: Annotated[Duration | None, Facets(pattern=DURATION)] = None
    """Longest time that a deleted node may drain before its instance is terminated.

    After it, PodDisruptionBudgets and do-not-disrupt annotations no longer delay the
    termination; pods are deleted early enough to have their own grace period. If unset, the
    node drains without a time limit.
    """
    expire_after: Annotated[NillableDuration, Facets(pattern=DURATION_OR_NEVER)] = NillableDuration(
        "720h"
    )
    """Age at which the node is replaced, or Never."""


class NodeClaimStatus(Model):
    """Observed state of the NodeClaim."""

    node_name: str = ""
    """Name of the Node."""
    provider_id: str = ""
    """Provider ID of the instance."""
    image_id: str = ""
    """Image of the instance."""
    capacity: dict[str, Quantity] = Field(default_factory=dict)
    """Expected capacity of the node, as estimated by the provider."""
    allocatable: dict[str, Quantity] = Field(default_factory=dict)
    """Expected part of the capacity that pods can use."""
    conditions: Annotated[
        tuple[Condition, ...], Facets(list_type="map", list_map_keys=("type",))
    ] = ()
    """Conditions of the NodeClaim, from launch to termination."""
    last_pod_event_time: Timestamp | None = None
    """Time at which a pod was last bound to the node, finished there, or began to terminate."""


class NodeClaim(KubernetesObject):
    """A request for one node, and the instance that serves it."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version=VERSION,
        kind="NodeClaim",
        plural="nodeclaims",
        singular="nodeclaim",
        printer_columns=(
            PrinterColumn(
                name="Type", json_path=r".metadata.labels.node\.kubernetes\.io/instance-type"
            ),
            PrinterColumn(
                name="Capacity", json_path=r".metadata.labels.karpenter\.sh/capacity-type"
            ),
            PrinterColumn(name="Zone", json_path=r".metadata.labels.topology\.kubernetes\.io/zone"),
            PrinterColumn(name="Node", json_path=".status.nodeName"),
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
            PrinterColumn(name="ImageID", json_path=".status.imageID", priority=1),
            PrinterColumn(name="ID", json_path=".status.providerID", priority=1),
            PrinterColumn(
                name="NodePool", json_path=r".metadata.labels.karpenter\.sh/nodepool", priority=1
            ),
            PrinterColumn(name="NodeClass", json_path=".spec.nodeClassRef.name", priority=1),
            PrinterColumn(
                name="Drifted",
                json_path='.status.conditions[?(@.type=="Drifted")].status',
                priority=1,
            ),
        ),
    )

    spec: NodeClaimSpec
    status: NodeClaimStatus = Field(default_factory=NodeClaimStatus)
