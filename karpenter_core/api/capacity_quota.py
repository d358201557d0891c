"""Defines CapacityQuota: a limit for all nodes with certain labels.

The API version is `autoscaling.x-k8s.io/v1beta1`. The kind belongs to Cluster Autoscaler's API, so
no CRD is rendered from this model. Names, reasons and rules:
https://github.com/kubernetes/autoscaler, `cluster-autoscaler/apis/capacityquota`. Spec and status
are kept as they are: a quota that cannot be read must be known, as it refuses launches.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject
from karpenter_core.api.json_objects import JsonObject

__all__ = ["RECONCILED", "RECONCILIATION_FAILED", "RECONCILIATION_SUCCEEDED", "CapacityQuota"]

RECONCILED: Final = "Reconciled"
"""The condition of a quota whose status shows what is used."""
RECONCILIATION_SUCCEEDED: Final = "ReconciliationSucceeded"
RECONCILIATION_FAILED: Final = "ReconciliationFailed"


class CapacityQuota(KubernetesObject):
    """A limit of resources, of nodes, or of the price of all nodes that a selector selects."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="autoscaling.x-k8s.io",
        version="v1beta1",
        kind="CapacityQuota",
        plural="capacityquotas",
        singular="capacityquota",
        short_names=("cq",),
        categories=(),
    )

    spec: JsonObject = Field(default_factory=dict)
    status: JsonObject = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return f'CapacityQuota "{self.name}"'
