"""Builds the core's description of a launched instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import RESERVED
from karpenter_core.provider.kit.launch.launched_instances import describe_launch, offering_in
from karpenter_provider_alibabacloud.described_instances import provider_id
from karpenter_provider_alibabacloud.labels import (
    CAPACITY_RESERVATION_ID,
    RESERVATION_LABELS,
    ZONE_ID,
)

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchedInstance

__all__ = ["LaunchDetails", "launched_instance"]


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
    offering = offering_in(
        instance_type,
        zone=details.zone,
        capacity_type=details.capacity_type,
        reservation_label=CAPACITY_RESERVATION_ID,
        reservation_id=details.reservation_id,
    )
    is_reserved = details.capacity_type == RESERVED
    return describe_launch(
        claim,
        instance_type,
        offering,
        provider_id=provider_id(details.region, details.instance_id),
        zone=details.zone,
        capacity_type=details.capacity_type,
        image_id=details.image_id,
        labels={
            ZONE_ID: details.zone,
            CAPACITY_RESERVATION_ID: details.reservation_id if is_reserved else "",
        },
        offering_labels=RESERVATION_LABELS,
    )
