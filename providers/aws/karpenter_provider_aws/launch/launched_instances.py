"""Builds the core's description of a launched instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, RESERVED, ZONE
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch_candidates import allocatable_for
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
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["LaunchDetails", "launched_instance"]

_NEVER_COPIED: Final = RESERVATION_LABELS | {PLACEMENT_GROUP_PARTITION}
"""What a type could be launched into says nothing of what it was launched into."""


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
    offering = _offering(instance_type, details)
    capacity = {**instance_type.capacity, **((offering and offering.capacity_override) or {})}
    allocatable = (
        instance_type.allocatable()
        if offering is None
        else allocatable_for(instance_type, offering)
    )
    if EFA not in claim.spec.resources.requests and not node_class.spec.network_interfaces:
        capacity.pop(EFA, None)
        allocatable.pop(EFA, None)
    profile = node_class.status.instance_profile
    return LaunchedInstance(
        provider_id=provider_id(details.zone, details.instance_id),
        instance_type=instance_type.name,
        zone=details.zone,
        capacity_type=details.capacity_type,
        capacity={name: amount for name, amount in capacity.items() if amount},
        allocatable={name: amount for name, amount in allocatable.items() if amount},
        image_id=details.image_id,
        labels=_labels(details, instance_type, claim, node_class),
        annotations={INSTANCE_PROFILE_ANNOTATION: profile} if profile else {},
    )


def _offering(instance_type: InstanceType, details: LaunchDetails) -> Offering | None:
    return next(
        (
            offering
            for offering in instance_type.offerings
            if offering.zone == details.zone
            and offering.capacity_type == details.capacity_type
            and offering.requirements.single_value(CAPACITY_RESERVATION_ID)
            == details.reservation_id
        ),
        None,
    )


def _labels(
    details: LaunchDetails, instance_type: InstanceType, claim: NodeClaim, node_class: EC2NodeClass
) -> dict[str, str]:
    labels = {
        key: instance_type.requirements.single_value(key)
        for key in instance_type.requirements
        if key not in _NEVER_COPIED
    }
    zone_ids = {subnet.id: subnet.zone_id for subnet in node_class.status.subnets} | {
        subnet.zone: subnet.zone_id for subnet in node_class.status.subnets
    }
    labels |= {
        INSTANCE_TYPE: instance_type.name,
        ZONE: details.zone,
        ZONE_ID: zone_ids.get(details.subnet_id) or zone_ids.get(details.zone, ""),
        CAPACITY_TYPE: details.capacity_type,
        INSTANCE_TENANCY: details.tenancy,
        NODE_POOL: claim.metadata.labels.get(NODE_POOL, ""),
        PLACEMENT_GROUP_PARTITION: str(details.partition) if details.partition else "",
    }
    if details.capacity_type == RESERVED:
        labels |= _reservation_labels(details.reservation_id, node_class)
    return {key: labels[key] for key in sorted(labels) if labels[key]}


def _reservation_labels(reservation_id: str, node_class: EC2NodeClass) -> dict[str, str]:
    for reservation in node_class.status.capacity_reservations:
        if reservation.id == reservation_id:
            return {
                CAPACITY_RESERVATION_ID: reservation.id,
                CAPACITY_RESERVATION_TYPE: reservation.reservation_type,
                CAPACITY_RESERVATION_INTERRUPTIBLE: str(bool(reservation.interruptible)).lower(),
            }
    return {CAPACITY_RESERVATION_ID: reservation_id}
