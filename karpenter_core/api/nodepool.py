"""NodePool: what kind of machines may be launched, how many, and how they may be disrupted."""

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
    Below,
    Facets,
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
    "is_detect_only",
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
    """Labels and annotations that every node of the pool carries."""

    labels: _Labels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: Annotated[dict[str, str], Facets(map_type="granular")] = Field(
        default_factory=dict
    )
    """Annotations of the nodes."""


class TemplateSpec(Model):
    """What a NodeClaim of the pool looks like."""

    taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints of the nodes."""
    startup_taints: Annotated[tuple[TaintSpec, ...], Facets(list_type="atomic")] = ()
    """Taints of young nodes that somebody else, such as a DaemonSet, takes off again.

    Pods need not tolerate them for a node to be launched, and a node counts as initialised only
    when they are gone.
    """
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        Facets(list_type="atomic", max_items=100, required=True),
        *REQUIREMENT_RULES,
        Below(
            "items.key",
            CEL('self != "karpenter.sh/nodepool"', 'label "karpenter.sh/nodepool" is restricted'),
        ),
    ] = ()
    """What the labels of the nodes must satisfy; pods may narrow it further."""
    node_class_ref: Annotated[
        NodeClassRef,
        CEL("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
        CEL("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
    ]
    """The NodeClass that describes the machines to the provider."""
    termination_grace_period: Annotated[Duration | None, Facets(pattern=DURATION)] = None
    """How long a deleted machine may drain before it goes in any case.

    When it is over, budgets of pods and do-not-disrupt annotations no longer hold the machine;
    pods are deleted early enough to have their own grace period. Unset means to wait for ever.
    """
    expire_after: Annotated[NillableDuration, Facets(pattern=DURATION_OR_NEVER)] = NillableDuration(
        "720h"
    )
    """How old a machine may become before it is replaced, or Never."""


class Template(Model):
    """The mould of the pool's NodeClaims."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """What goes into the metadata of claims and nodes."""
    spec: TemplateSpec


class Budget(Model):
    """How many nodes may be disrupted at once, and when."""

    nodes: Annotated[str, Facets(pattern=_BUDGET_NODES, required=True)] = "10%"
    """Number of nodes, or percentage of the pool (rounded up)."""
    reasons: Annotated[
        tuple[Annotated[str, Facets(enum=("Underutilized", "Empty", "Drifted"))], ...] | None,
        Facets(list_type="set", max_items=50),
    ] = None
    """Disruption reasons the budget is for; all of them when unset."""
    schedule: Annotated[str | None, Facets(pattern=_BUDGET_SCHEDULE)] = None
    """When the budget begins to be active: cron with five fields, or a macro like @daily; in UTC.

    Needs `duration`. Without both, the budget is always active.
    """
    duration: Annotated[Duration | None, Facets(pattern=_BUDGET_DURATION)] = None
    """How long the budget stays active after each hit of the schedule, in hours and minutes."""


class Disruption(Model):
    """How the pool's nodes may be disrupted."""

    consolidate_after: Annotated[
        NillableDuration, Facets(pattern=DURATION_OR_NEVER, required=True)
    ] = NillableDuration("0s")
    """How long no pod may come or go before a node is considered for consolidation, or Never.

    Static pools ignore it.
    """
    consolidation_policy: Annotated[
        str, Facets(enum=("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"))
    ] = "WhenEmptyOrUnderutilized"
    """Which nodes consolidation may take. Static pools ignore it."""
    budgets: Annotated[
        tuple[Budget, ...],
        Facets(list_type="atomic", max_items=50),
        CEL(
            "self.all(x, has(x.schedule) == has(x.duration))",
            "'schedule' must be set with 'duration'",
        ),
    ] = (Budget(),)
    """How many nodes may go at once; of several active budgets the strictest counts."""


class NodePoolSpec(Model):
    """What is wanted of the pool."""

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

    template: Template
    disruption: Annotated[Disruption, Facets(default={"consolidateAfter": "0s"})] = Field(
        default_factory=Disruption
    )
    """How nodes of the pool may be taken away again."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """How much the pool may hold in sum; the resource `nodes` counts nodes.

    Static pools take `nodes` only.
    """
    weight: Annotated[int | None, Facets(format="int32", minimum=1, maximum=100)] = None
    """Pools of greater weight are tried first; unset counts as 0. Not for static pools."""
    replicas: Annotated[int | None, Facets(format="int64", minimum=0)] = None
    """Makes the pool static: this many nodes, whatever pods there are. Alpha."""


class NodePoolStatus(Model):
    """What the pool has."""

    resources: dict[str, Quantity] = Field(default_factory=dict)
    """Capacity of the pool's nodes in sum."""
    nodes: Annotated[int, Facets(format="int64")] = 0
    """Number of the pool's nodes."""
    node_class_observed_generation: Annotated[int | None, Facets(format="int64")] = None
    """Generation of the NodeClass for which the registration health was last judged."""
    conditions: Annotated[
        tuple[Condition, ...],
        Facets(list_type="map", list_map_keys=("type",)),
        *STRICT_CONDITION,
    ] = ()
    """Whether the pool can be used, and why not."""


class NodePool(KubernetesObject):
    """A kind of machine that may be launched."""

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
    """Tell whether drift of the pool's nodes is only to be shown, never acted on."""
    return pool.metadata.annotations.get(DRIFT) == DETECT_ONLY
