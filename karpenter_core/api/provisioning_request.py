"""ProvisioningRequest: a job requests room for all of its pods at once.

The API version is `autoscaling.x-k8s.io/v1`. The kind belongs to Cluster Autoscaler's API, so no
CRD is rendered from this model. Names, defaults and conditions:
https://github.com/kubernetes/autoscaler, `cluster-autoscaler/apis/provisioningrequest`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, KubernetesObject, Model
from karpenter_core.api.conditions import TRUE, Condition, find_condition, is_true

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ACCEPTED",
    "ATOMIC_SCALE_UP",
    "BOOKING_EXPIRED",
    "BOOKING_TIME",
    "CAPACITY_REVOKED",
    "CHECK_CAPACITY",
    "CONSUMED_REQUEST",
    "CONSUMED_REQUEST_DEPRECATED",
    "CONSUMING_ANNOTATIONS",
    "FAILED",
    "GANG_ATTEMPT",
    "GANG_PODS",
    "GANG_REQUEST",
    "GANG_SIZE",
    "GANG_UID",
    "PARTIAL_CAPACITY_FOUND",
    "PROVISIONED",
    "SUPPORTED_CLASSES",
    "PodSet",
    "PodTemplateRef",
    "ProvisioningRequest",
    "ProvisioningRequestSpec",
    "ProvisioningRequestStatus",
    "consumed_request",
]

CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
"""Class: tell whether existing nodes have the room now, and book it."""
ATOMIC_SCALE_UP: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""Class: launch what is missing, all or nothing, and book it."""
SUPPORTED_CLASSES: Final = frozenset({CHECK_CAPACITY, ATOMIC_SCALE_UP})

# Conditions
ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"

PARTIAL_CAPACITY_FOUND: Final = "PartialCapacityIsFound"
"""Reason of Provisioned: there is capacity for some pod sets only (`partialCapacityCheck`)."""

BOOKING_TIME: Final = timedelta(minutes=10)
"""Time for which found capacity is booked (upstream default)."""

# Annotations of pods that use the booked capacity
CONSUMED_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CONSUMED_REQUEST_DEPRECATED: Final = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
CONSUMING_ANNOTATIONS: Final = frozenset({CONSUMED_REQUEST, CONSUMED_REQUEST_DEPRECATED})

# Annotations of NodeClaims that were created for a request; ours
GANG_REQUEST: Final = "karpenter.sh/provisioning-request"
"""`namespace/name` of the request."""
GANG_UID: Final = "karpenter.sh/provisioning-request-uid"
GANG_ATTEMPT: Final = "karpenter.sh/provisioning-attempt"
"""Number of the attempt; removed once the whole request is provisioned."""
GANG_SIZE: Final = "karpenter.sh/provisioning-attempt-size"
"""Number of NodeClaims of that attempt."""
GANG_PODS: Final = "karpenter.sh/provisioning-pods"
"""Pods that the NodeClaim is for, as `index of the pod set=count`, comma separated."""


class PodTemplateRef(Model):
    """The name of a PodTemplate in the namespace of the request."""

    name: str


class PodSet(Model):
    """So many pods of one template."""

    pod_template_ref: PodTemplateRef
    count: int = Field(ge=1)


class ProvisioningRequestSpec(Model):
    """The pods that need room, and the class that says how it is provided; immutable."""

    provisioning_class_name: str
    pod_sets: tuple[PodSet, ...] = Field(min_length=1, max_length=32)
    parameters: dict[str, str] = Field(default_factory=dict)


class ProvisioningRequestStatus(Model):
    """Conditions, and details of the class."""

    conditions: tuple[Condition, ...] = ()
    provisioning_class_details: dict[str, str] = Field(default_factory=dict)


class ProvisioningRequest(KubernetesObject):
    """A request for the room that the pods of a job need, all or nothing."""

    resource: ClassVar[CustomResource] = CustomResource(
        group="autoscaling.x-k8s.io",
        version="v1",
        kind="ProvisioningRequest",
        plural="provisioningrequests",
        singular="provisioningrequest",
        short_names=("provreq", "provreqs"),
        categories=(),
        scope="Namespaced",
    )

    spec: ProvisioningRequestSpec
    status: ProvisioningRequestStatus = Field(default_factory=ProvisioningRequestStatus)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or ''}/{self.metadata.name}"

    @property
    def pod_count(self) -> int:
        """The number of pods of all pod sets."""
        return sum(pod_set.count for pod_set in self.spec.pod_sets)

    def is_true(self, condition_type: str) -> bool:
        """Tell whether a condition is True."""
        return is_true(self.status.conditions, condition_type)

    def condition(self, condition_type: str) -> Condition | None:
        """Return a condition, if it is there."""
        return find_condition(self.status.conditions, condition_type)

    @property
    def is_finished(self) -> bool:
        """Whether the request has failed, or books nothing any more."""
        return self.end is not None

    @property
    def end(self) -> Condition | None:
        """The True condition by which the request is finished; None: it is not."""
        for condition_type in (FAILED, CAPACITY_REVOKED, BOOKING_EXPIRED):
            condition = self.condition(condition_type)
            if condition is not None and condition.status == TRUE:
                return condition
        return None

    @property
    def is_partial(self) -> bool:
        """Whether the capacity of some of the pod sets only was found."""
        condition = self.condition(PROVISIONED)
        return condition is not None and condition.reason == PARTIAL_CAPACITY_FOUND

    @property
    def is_booked(self) -> bool:
        """Whether the capacity was found and is kept free."""
        return self.is_true(PROVISIONED) and not self.is_finished


def consumed_request(annotations: Mapping[str, str]) -> str:
    """Return the name of the request whose capacity a pod uses; empty for other pods."""
    return annotations.get(CONSUMED_REQUEST) or annotations.get(CONSUMED_REQUEST_DEPRECATED) or ""
