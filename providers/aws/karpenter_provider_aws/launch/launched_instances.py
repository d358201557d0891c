"""Builds the core's description of a launched instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import RESERVED
from karpenter_core.provider.kit.launch.launched_instances import describe_launch, offering_in
from karpenter_provider_aws.described_instances import provider_id
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    EFA,
    INSTANCE_PROFILE_ANNOTATION,
    INSTANCE_TENANCY,
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_LABELS,
    ZONE_ID,
)

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchedInstance
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["LaunchDetails", "launched_instance"]

_OFFERING_LABELS: Final = RESERVATION_LABELS | {PLACEMENT_GROUP_PARTITION}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDetails:
    """The details of a launched instance."""

    instance_id: str
    zone: str
    subnet_id: str
    capacity_type: str
    image_id: str
    tenancy: str
    reservation_id: str = ""
    partition: int = 0
    """Of a placement group; 0 where there is none, or EC2 has not said yet."""


def launched_instance(
    details: LaunchDetails,
    instance_type: InstanceType,
    claim: NodeClaim,
    node_class: EC2NodeClass,
) -> LaunchedInstance:
    """Return the outcome of a launch."""
    offering = offering_in(
        instance_type,
        zone=details.zone,
        capacity_type=details.capacity_type,
        reservation_label=CAPACITY_RESERVATION_ID,
        reservation_id=details.reservation_id,
    )
    has_efa = EFA in claim.spec.resources.requests or bool(node_class.spec.network_interfaces)
    profile = node_class.status.instance_profile
    return describe_launch(
        claim,
        instance_type,
        offering,
        provider_id=provider_id(details.zone, details.instance_id),
        zone=details.zone,
        capacity_type=details.capacity_type,
        image_id=details.image_id,
        labels=_labels(details, node_class),
        offering_labels=_OFFERING_LABELS,
        absent_resources=() if has_efa else (EFA,),
        annotations={INSTANCE_PROFILE_ANNOTATION: profile} if profile else {},
    )


def _labels(details: LaunchDetails, node_class: EC2NodeClass) -> dict[str, str]:
    zone_ids = {subnet.id: subnet.zone_id for subnet in node_class.status.subnets} | {
        subnet.zone: subnet.zone_id for subnet in node_class.status.subnets
    }
    labels = {
        ZONE_ID: zone_ids.get(details.subnet_id) or zone_ids.get(details.zone, ""),
        INSTANCE_TENANCY: details.tenancy,
        PLACEMENT_GROUP_PARTITION: str(details.partition) if details.partition else "",
    }
    if details.capacity_type == RESERVED:
        labels |= _reservation_labels(details.reservation_id, node_class)
    return labels


def _reservation_labels(reservation_id: str, node_class: EC2NodeClass) -> dict[str, str]:
    for reservation in node_class.status.capacity_reservations:
        if reservation.id == reservation_id:
            return {
                CAPACITY_RESERVATION_ID: reservation.id,
                CAPACITY_RESERVATION_TYPE: reservation.reservation_type,
                CAPACITY_RESERVATION_INTERRUPTIBLE: str(bool(reservation.interruptible)).lower(),
            }
    return {CAPACITY_RESERVATION_ID: reservation_id}
