"""Builds the core's description of a launched instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, RESERVED, ZONE
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch_candidates import allocatable_for
from karpenter_provider_alibabacloud.described_instances import provider_id
from karpenter_provider_alibabacloud.labels import (
    CAPACITY_RESERVATION_ID,
    RESERVATION_LABELS,
    ZONE_ID,
)
from karpenter_provider_alibabacloud.launch.filters import reservation_of

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType, Offering

__all__ = ["LaunchDetails", "launched_instance"]

_NEVER_COPIED: Final = RESERVATION_LABELS
"""What a type could be launched into says nothing of what it was launched into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDetails:
    """The details of a launched instance."""

    region: str
    instance_id: str
    zone: str
    capacity_type: str
    image_id: str
    reservation_id: str = ""


def launched_instance(
    details: LaunchDetails, instance_type: InstanceType, claim: NodeClaim
) -> LaunchedInstance:
    """Return the outcome of a launch."""
    offering = _offering(instance_type, details)
    capacity = {**instance_type.capacity, **((offering and offering.capacity_override) or {})}
    allocatable = (
        instance_type.allocatable()
        if offering is None
        else allocatable_for(instance_type, offering)
    )
    return LaunchedInstance(
        provider_id=provider_id(details.region, details.instance_id),
        instance_type=instance_type.name,
        zone=details.zone,
        capacity_type=details.capacity_type,
        capacity={name: amount for name, amount in capacity.items() if amount},
        allocatable={name: amount for name, amount in allocatable.items() if amount},
        image_id=details.image_id,
        labels=_labels(details, instance_type, claim),
    )


def _offering(instance_type: InstanceType, details: LaunchDetails) -> Offering | None:
    return next(
        (
            offering
            for offering in instance_type.offerings
            if offering.zone == details.zone
            and offering.capacity_type == details.capacity_type
            and reservation_of(offering) == details.reservation_id
        ),
        None,
    )


def _labels(
    details: LaunchDetails, instance_type: InstanceType, claim: NodeClaim
) -> dict[str, str]:
    labels = {
        key: instance_type.requirements.single_value(key)
        for key in instance_type.requirements
        if key not in _NEVER_COPIED
    }
    labels |= {
        INSTANCE_TYPE: instance_type.name,
        ZONE: details.zone,
        ZONE_ID: details.zone,
        CAPACITY_TYPE: details.capacity_type,
        NODE_POOL: claim.metadata.labels.get(NODE_POOL, ""),
    }
    if details.capacity_type == RESERVED:
        labels[CAPACITY_RESERVATION_ID] = details.reservation_id
    return {key: labels[key] for key in sorted(labels) if labels[key]}
