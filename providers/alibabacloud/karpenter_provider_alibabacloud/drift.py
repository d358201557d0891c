"""Finds the reason why an instance has drifted from its NodeClass.

The first reason counts, in the order of `DriftReason`; `NodeClassDrift`, which comes before all of
them, is the core's. All reasons are judged by the live instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.instances.drift import (
    detect_drift,
    has_left_reservation,
    require_described,
    require_resolved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.described_instances import DescribedInstance

__all__ = ["DriftDetector", "DriftReason", "drift_of"]


class DriftReason(StrEnum):
    """Kinds of drift."""

    IMAGE = "ImageDrift"
    SECURITY_GROUP = "SecurityGroupDrift"
    VSWITCH = "VSwitchDrift"
    CAPACITY_RESERVATION = "CapacityReservationDrift"
    DEPLOYMENT_SET = "DeploymentSetDrift"
    SYSTEM_EVENT = "SystemEventScheduled"
    """Not different, but ECS is going to work on it: it is replaced before."""


def drift_of(
    claim: NodeClaim,
    node_class: ECSNodeClass,
    instance: DescribedInstance,
    *,
    is_scheduled: bool = False,
) -> DriftReason | None:
    """Return the first reason; None when the instance is as it should be.

    `is_scheduled` is whether a system event of it comes later (`SystemEventPoll.scheduled`).

    Raises:
        CloudProviderError: the NodeClass has not found what there is to compare with.
    """
    status = node_class.status
    require_resolved(
        f'ECSNodeClass "{node_class.name}"',
        images=status.images,
        securityGroups=status.security_groups,
        vSwitches=status.v_switches,
    )
    require_described(
        instance,
        image=instance.image_id,
        security_groups=instance.security_groups,
        vswitch=instance.vswitch_id,
    )
    if instance.image_id not in {image.id for image in status.images}:
        return DriftReason.IMAGE
    if instance.security_groups != frozenset(group.id for group in status.security_groups):
        return DriftReason.SECURITY_GROUP
    if instance.vswitch_id not in {vswitch.id for vswitch in status.v_switches}:
        return DriftReason.VSWITCH
    reservations = {reservation.id for reservation in status.capacity_reservations}
    if has_left_reservation(claim, instance, reservations):
        return DriftReason.CAPACITY_RESERVATION
    if instance.deployment_set_id != node_class.spec.deployment_set_id:
        return DriftReason.DEPLOYMENT_SET
    return DriftReason.SYSTEM_EVENT if is_scheduled else None


@final
class DriftDetector:
    """Answers `karpenter_detect_drift`; callable from any thread."""

    def __init__(
        self,
        *,
        instances: ClusterInstances[DescribedInstance],
        scheduled: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`scheduled` is `SystemEventPoll.scheduled`."""
        self._instances: Final = instances
        self._scheduled: Final = scheduled

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: ECSNodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the instances cannot be read.
        """
        scheduled = self._scheduled()

        def compare(claim: NodeClaim, instance: DescribedInstance) -> DriftReason | None:
            return drift_of(claim, node_class, instance, is_scheduled=instance.id in scheduled)

        return detect_drift(node_claims, self._instances, compare)
