"""Turns discovery results into conditions and status of a NodeClass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_provider_aws.api.node_class_status import Subnet
from karpenter_provider_aws.discovery import images, placement_groups, security_groups, subnets
from karpenter_provider_aws.node_class.conditions import (
    AMIS_READY,
    CAPACITY_RESERVATIONS_READY,
    PLACEMENT_GROUP_READY,
    RETRY_SOON,
    RETRY_USUAL,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
    ResolutionPart,
    absent_terms_message,
    condition_met,
    condition_unmet,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.base import Model
    from karpenter_provider_aws.api.node_class_status import Ami, SecurityGroup
    from karpenter_provider_aws.api.nodeclass import PlacementGroupSelector
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.discovery.queries import DiscoveryResult
    from karpenter_provider_aws.discovery.reservations import DescribedReservation
    from karpenter_provider_aws.discovery.subnets import DescribedSubnet

__all__ = [
    "ami_part",
    "placement_group_part",
    "reservation_part",
    "security_group_part",
    "subnet_part",
    "unsupported_alias_part",
]

SHORTEST: Final = timedelta(seconds=1)


def ami_part(found: DiscoveryResult[Ami]) -> ResolutionPart:
    """Return the images."""
    if not found.items:
        message = (
            absent_terms_message(found.absent)
            or f"{images.FIELD} has no term that matches anything"
        )
        return condition_unmet(AMIS_READY, "AMINotFound", message, status={"amis": []})
    return condition_met(
        AMIS_READY, absent_terms_message(found.absent), status={"amis": _plain(found.items)}
    )


def unsupported_alias_part(message: str) -> ResolutionPart:
    """Say that an alias has no images for this Kubernetes; looking again soon would not help."""
    return condition_unmet(AMIS_READY, "UnsupportedAlias", message, retry_after=RETRY_USUAL)


def subnet_part(found: DiscoveryResult[DescribedSubnet]) -> ResolutionPart:
    """Return the subnets, which are looked at each minute for their free addresses."""
    if not found.items:
        message = (
            absent_terms_message(found.absent)
            or f"{subnets.FIELD} has no term that matches anything"
        )
        return condition_unmet(SUBNETS_READY, "SubnetsNotFound", message, status={"subnets": []})
    listed = [Subnet(id=s.id, zone=s.zone, zone_id=s.zone_id) for s in found.items]
    return condition_met(
        SUBNETS_READY,
        absent_terms_message(found.absent),
        status={"subnets": _plain(listed)},
        retry_after=RETRY_SOON,
    )


def security_group_part(found: DiscoveryResult[SecurityGroup]) -> ResolutionPart:
    """Return the security groups."""
    if not found.items:
        field = security_groups.FIELD
        message = absent_terms_message(found.absent) or f"{field} has no term that matches anything"
        return condition_unmet(
            SECURITY_GROUPS_READY, "SecurityGroupsNotFound", message, status={"securityGroups": []}
        )
    return condition_met(
        SECURITY_GROUPS_READY,
        absent_terms_message(found.absent),
        status={"securityGroups": _plain(found.items)},
    )


def reservation_part(
    found: DiscoveryResult[DescribedReservation], *, now: datetime
) -> ResolutionPart:
    """Return the reservations; to find none is fine.

    They are looked at each minute, and when the first of them ends.
    """
    ends = (item.end_time - now for item in found.items if item.end_time is not None)
    return condition_met(
        CAPACITY_RESERVATIONS_READY,
        absent_terms_message(found.absent),
        status={"capacityReservations": _plain([item.status(now) for item in found.items])},
        retry_after=max(min([RETRY_SOON, *ends]), SHORTEST),
    )


def placement_group_part(
    selector: PlacementGroupSelector | None, group: DescribedPlacementGroup | None
) -> ResolutionPart:
    """Return whether the group is there; the status has no field for it."""
    if selector is None or group is not None:
        return condition_met(PLACEMENT_GROUP_READY)
    field = placement_groups.FIELD
    said = f'id "{selector.id}"' if selector.id else f'name "{selector.name}"'
    message = f"{field}: no placement group with the {said} is available"
    return condition_unmet(PLACEMENT_GROUP_READY, "PlacementGroupNotFound", message)


def _plain(items: Sequence[Model]) -> list[dict[str, object]]:
    return [item.model_dump(mode="json", exclude_none=True) for item in items]
