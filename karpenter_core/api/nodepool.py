"""NodePool: permitted nodes, their number, and the rules of disruption."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model, PrinterColumn
from karpenter_core.api.cel import CEL, RuleSlot
from karpenter_core.api.conditions import STRICT_CONDITION, Condition, ConditionRules
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.facets import (
    DURATION,
    DURATION_OR_NEVER,
    LABEL_VALUE,
    Facets,
    NestedFacets,
)
from karpenter_core.api.labels import DETECT_ONLY, DRIFT, GROUP, VERSION
from karpenter_core.api.nodeclaim import (
    REQUIREMENT_RULES,
    NodeClassRef,
    RequirementSpec,
    TaintSpec,
)
from karpenter_core.api.quantities import Quantity

__all__ = [
    "CONSOLIDATION_POLICIES",
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
    "NodeClaimTemplate",
    "NodePool",
    "NodePoolSpec",
    "NodePoolStatus",
    "TemplateMetadata",
    "TemplateSpec",
    "is_detect_only",
]

# Conditions; Ready depends on the first two, the third is independent.
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


CONSOLIDATION_POLICIES: Final = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")

# Patterns of the API reference
_BUDGET_NODES: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"
_BUDGET_SCHEDULE: Final = (
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
)
_BUDGET_DURATION: Final = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"

_Labels = Annotated[
    dict[str, Annotated[str, Facets(max_length=63, pattern=LABEL_VALUE)]],
    Facets(max_properties=100, map_type="atomic"),
    CEL(
        'self.all(x, x in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || '
        '!x.find("^([^/]+)").endsWith("karpenter.sh"))',
        'label domain "karpenter.sh" is restricted',
    ),
    CEL(
        'self.all(x, x != "karpenter.sh/nodepool")',
        'label "karpenter.sh/nodepool" is restricted',
    ),
    CEL(
        'self.all(x, x != "kubernetes.io/hostname")',
        'label "kubernetes.io/hostname" is restricted',
    ),
    RuleSlot.TEMPLATE_LABELS,
]


class TemplateMetadata(Model):
    """Labels and annotations of every NodeClaim and Node of the pool."""

    labels: _Labels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: Annotated[dict[str, str], Facets(map_type="granular")] = Field(
        default_factory=dict
    )
    """Annotations of the nodes."""


class TemplateSpec(Model):
    """Spec of the NodeClaims of the pool."""

    taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints of the nodes."""
    startup_taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints that nodes start with and that another component, such as a DaemonSet, removes.

    Pods need not tolerate them for a node to be launched; a node is initialised only after they
    are removed.
    """
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        Facets(list_type="atomic", max_items=100, required=True),
        *REQUIREMENT_RULES,
        NestedFacets(
            "items.key",
            CEL('self != "karpenter.sh/nodepool"', 'label "karpenter.sh/nodepool" is restricted'),
        ),
    ] = ()
    """Requirements on the labels of the nodes; pods add their own requirements to these."""
    node_class_ref: Annotated[
        NodeClassRef,
        CEL("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
        CEL("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
    ]
    """NodeClass that configures the instances in the cloud."""
    termination_grace_period: Annotated[Duration | None, Facets(pattern=DURATION)] = None
    """Longest time that a deleted node may drain before its instance is terminated.

    After it, PodDisruptionBudgets and do-not-disrupt annotations no longer delay the
    termination; pods are deleted early enough to have their own grace period. If unset, nodes
    drain without a time limit.
    """
    expire_after: Annotated[NillableDuration, Facets(pattern=DURATION_OR_NEVER)] = NillableDuration(
        "720h"
    )
    """Age at which a node is replaced, or Never."""


class NodeClaimTemplate(Model):
    """Template of the pool's NodeClaims."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the pool's NodeClaims and Nodes."""
    spec: TemplateSpec


class Budget(Model):
    """A limit on the number of nodes that are disrupted at the same time."""

    nodes: Annotated[str, Facets(pattern=_BUDGET_NODES, required=True)] = "10%"
    """Number of nodes, or percentage of the pool (rounded up)."""
    reasons: Annotated[
        tuple[Annotated[str, Facets(enum=("Underutilized", "Empty", "Drifted"))], ...] | None,
        Facets(list_type="set", max_items=50),
    ] = None
    """Disruption reasons that the budget applies to; all of them if unset."""
    schedule: Annotated[str | None, Facets(pattern=_BUDGET_SCHEDULE)] = None
    """Start times of the budget in UTC: cron with five fields, or a macro such as @daily.

    Requires `duration`. Without both, the budget is always active.
    """
    duration: Annotated[Duration | None, Facets(pattern=_BUDGET_DURATION)] = None
    """Time that the budget stays active after each start, in hours and minutes."""


class Disruption(Model):
    """Rules for the disruption of the pool's nodes."""

    consolidate_after: Annotated[
        NillableDuration, Facets(pattern=DURATION_OR_NEVER, required=True)
    ] = NillableDuration("0s")
    """Time without pods added or removed after which a node may be consolidated, or Never.

    Ignored by static pools.
    """
    consolidation_policy: Annotated[str, Facets(enum=CONSOLIDATION_POLICIES)] = (
        "WhenEmptyOrUnderutilized"
    )
    """Nodes that consolidation may remove or replace. Ignored by static pools."""
    budgets: Annotated[
        tuple[Budget, ...],
        Facets(list_type="atomic", max_items=50),
        CEL(
            "self.all(x, has(x.schedule) == has(x.duration))",
            "'schedule' must be set with 'duration'",
        ),
    ] = (Budget(),)
    """Limits on nodes disrupted at the same time; the strictest active budget applies."""


class NodePoolSpec(Model):
    """Desired state of the NodePool."""

    cel: ClassVar = (
        CEL(
            "has(self.replicas) == has(oldSelf.replicas)",
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas "
            "unset) provisioning modes",
        ),
        CEL(
            "!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || "
            "(size(self.limits) == 1 && 'nodes' in self.limits))",
            "only 'limits.nodes' is supported on static NodePools",
        ),
        CEL(
            "!has(self.replicas) || !has(self.weight)",
            "'weight' is not supported on static NodePools",
        ),
    )

    template: NodeClaimTemplate
    """Template of the pool's NodeClaims."""
    disruption: Annotated[Disruption, Facets(default={"consolidateAfter": "0s"})] = Field(
        default_factory=Disruption
    )
    """Rules for the disruption of the pool's nodes."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """Upper limits for the sum of the pool's resources; `nodes` limits the number of nodes.

    Static pools support `nodes` only.
    """
    weight: Annotated[int | None, Facets(format="int32", minimum=1, maximum=100)] = None
    """Priority of the pool: greater weights are tried first, unset counts as 0.

    Not supported on static pools.
    """
    replicas: Annotated[int | None, Facets(format="int64", minimum=0)] = None
    """Number of nodes of a static pool, independent of pods; unset for a dynamic pool. Alpha."""


class NodePoolStatus(Model):
    """Observed state of the NodePool."""

    resources: dict[str, Quantity] = Field(default_factory=dict)
    """Sum of the capacity of the pool's nodes."""
    nodes: Annotated[int, Facets(format="int64")] = 0
    """Number of the pool's nodes."""
    node_class_observed_generation: Annotated[int | None, Facets(format="int64")] = None
    """Generation of the NodeClass at the last evaluation of `NodeRegistrationHealthy`."""
    conditions: Annotated[
        tuple[Condition, ...],
        Facets(list_type="map", list_map_keys=("type",)),
        *STRICT_CONDITION,
    ] = ()
    """Conditions of the NodePool; `Ready` is True if nodes can be launched from it."""


class NodePool(KubernetesObject):
    """A template for nodes, with limits and rules for their disruption."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version=VERSION,
        kind="NodePool",
        plural="nodepools",
        singular="nodepool",
        scale=(".spec.replicas", ".status.nodes"),
        printer_columns=(
            PrinterColumn(name="NodeClass", json_path=".spec.template.spec.nodeClassRef.name"),
            PrinterColumn(name="Nodes", json_path=".status.nodes"),
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
            PrinterColumn(name="Weight", json_path=".spec.weight", type="integer", priority=1),
            PrinterColumn(name="CPU", json_path=".status.resources.cpu", priority=1),
            PrinterColumn(name="Memory", json_path=".status.resources.memory", priority=1),
        ),
    )

    spec: NodePoolSpec
    status: NodePoolStatus = Field(default_factory=NodePoolStatus)


def is_detect_only(pool: NodePool) -> bool:
    """Tell whether drift of the pool's nodes is reported but never acted on."""
    return pool.metadata.annotations.get(DRIFT) == DETECT_ONLY
