"""Defines the CapacityBuffer: free capacity for pods that do not exist yet.

Its API group is `autoscaling.x-k8s.io`. The kind is shared with Cluster Autoscaler: fields,
defaults and rules are those of its CRD, and descriptions are our own.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model, PrinterColumn
from karpenter_core.api.cel import CEL
from karpenter_core.api.conditions import STRICT_CONDITION, Condition
from karpenter_core.api.facets import Facets
from karpenter_core.api.quantities import Quantity

__all__ = [
    "ACTIVE_CAPACITY",
    "PROVISIONING",
    "READY_FOR_PROVISIONING",
    "CapacityBuffer",
    "CapacityBufferSpec",
    "CapacityBufferStatus",
    "LocalObjectRef",
    "ScalableRef",
]

ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"
"""The provisioning strategy that keeps nodes with free capacity; the default and the only one served."""

# Conditions
READY_FOR_PROVISIONING: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"


class LocalObjectRef(Model):
    """A reference to an object in the same namespace."""

    name: Annotated[str, Facets(min_length=1)]
    """Name of the object."""


class ScalableRef(Model):
    """A reference to a workload with a number of replicas, in the same namespace."""

    api_group: str = ""
    """API group of the workload; empty means `apps`."""
    kind: Annotated[str, Facets(min_length=1)]
    """Kind of the workload: Deployment, StatefulSet or ReplicaSet."""
    name: Annotated[str, Facets(min_length=1)]
    """Name of the workload."""


class CapacityBufferSpec(Model):
    """Desired state of the CapacityBuffer."""

    cel: ClassVar = (
        CEL(
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
            "If podTemplateRef is set, replicas or limits must also be set",
        ),
        CEL(
            "!(has(self.podTemplateRef) && has(self.scalableRef))",
            "You must define either PodTemplateRef or ScalableRef, but not both",
        ),
    )

    provisioning_strategy: Annotated[str | None, Facets(default=ACTIVE_CAPACITY)] = None
    """Strategy of the buffer; `buffer.x-k8s.io/active-capacity` keeps nodes with free capacity."""
    pod_template_ref: LocalObjectRef | None = None
    """PodTemplate of the pods to keep capacity for. Excludes `scalableRef`."""
    scalable_ref: ScalableRef | None = None
    """Workload whose pod template the buffer uses. Excludes `podTemplateRef`."""
    replicas: Annotated[int | None, Facets(format="int32", minimum=0)] = None
    """Number of pods to keep capacity for. With `percentage`, the greater of the two counts."""
    percentage: Annotated[int | None, Facets(format="int32", minimum=0)] = None
    """Number of pods to keep capacity for, in percent of the replicas of `scalableRef`, rounded up."""
    limits: Annotated[dict[str, Quantity] | None, Facets()] = None
    """Upper limits for the sum of the pods' requests.

    Without `replicas` and `percentage` they give the number of pods.
    """


class CapacityBufferStatus(Model):
    """Observed state of the CapacityBuffer."""

    pod_template_ref: LocalObjectRef | None = None
    """PodTemplate that the pods are made of; absent for a workload."""
    replicas: Annotated[int | None, Facets(format="int32")] = None
    """Number of pods that capacity is kept for."""
    pod_template_generation: Annotated[int | None, Facets(format="int64")] = None
    """Generation of the PodTemplate."""
    conditions: Annotated[
        tuple[Condition, ...],
        Facets(list_type="map", list_map_keys=("type",)),
        *STRICT_CONDITION,
    ] = ()
    """Conditions of the CapacityBuffer; `Provisioning` is True if all its pods fit on nodes."""
    provisioning_strategy: str | None = None
    """The strategy that is used."""


class CapacityBuffer(KubernetesObject):
    """Keeps free capacity on nodes for pods that do not exist yet."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="autoscaling.x-k8s.io",
        version="v1beta1",
        kind="CapacityBuffer",
        plural="capacitybuffers",
        singular="capacitybuffer",
        short_names=("cb",),
        categories=("autoscaling",),
        scope="Namespaced",
        printer_columns=(
            PrinterColumn(name="Strategy", json_path=".spec.provisioningStrategy"),
            PrinterColumn(name="PodTemplate", json_path=".status.podTemplateRef.name"),
            PrinterColumn(name="Replicas", json_path=".status.replicas", type="integer"),
            PrinterColumn(name="ConditionsType", json_path=".status.conditions[*].type"),
            PrinterColumn(name="ConditionsStatus", json_path=".status.conditions[*].status"),
            PrinterColumn(name="ConditionsReason", json_path=".status.conditions[*].reason"),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
        ),
    )

    spec: CapacityBufferSpec
    status: CapacityBufferStatus = Field(default_factory=CapacityBufferStatus)

    @property
    def namespace(self) -> str:
        """The buffer's namespace."""
        return self.metadata.namespace or ""

    @property
    def key(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.namespace}/{self.name}"
