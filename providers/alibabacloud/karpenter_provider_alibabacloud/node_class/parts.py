"""Turns discovery results into conditions and status of a NodeClass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    RETRY_USUAL,
    absent_terms_message,
    condition_met,
    condition_unmet,
)
from karpenter_provider_alibabacloud.api.nodeclass import SecurityGroup, VSwitch
from karpenter_provider_alibabacloud.discovery import images, security_groups, vswitches
from karpenter_provider_alibabacloud.node_class.conditions import (
    CAPACITY_RESERVATIONS_READY,
    IMAGES_READY,
    NOTHING_FOUND,
    SECURITY_GROUPS_READY,
    VSWITCHES_READY,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from karpenter_core.api.base import Model
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_alibabacloud.api.nodeclass import Image
    from karpenter_provider_alibabacloud.discovery.queries import DiscoveryResult
    from karpenter_provider_alibabacloud.discovery.reservations import DescribedReservation
    from karpenter_provider_alibabacloud.discovery.security_groups import DescribedSecurityGroup
    from karpenter_provider_alibabacloud.discovery.vswitches import DescribedVSwitch

__all__ = ["image_part", "reservation_part", "security_group_part", "vpcs", "vswitch_part"]

SHORTEST: Final = timedelta(seconds=1)


def vpcs(found: DiscoveryResult[DescribedVSwitch]) -> frozenset[str]:
    """Return the VPCs that vSwitches are in."""
    return frozenset(vswitch.vpc_id for vswitch in found.items)


def vswitch_part(found: DiscoveryResult[DescribedVSwitch]) -> ResolutionPart:
    """Return the vSwitches, which are looked at each minute for their free addresses.

    All must be in one VPC, or launches would land in whichever has the cheapest zone.
    """
    if not found.items:
        return _nothing(
            VSWITCHES_READY, "vSwitchesNotFound", vswitches.FIELD, found.absent, "vSwitches"
        )
    listed = _plain([VSwitch(id=v.id, zone_id=v.zone) for v in found.items])
    status = {"vSwitches": listed}
    networks = sorted(vpcs(found))
    if len(networks) > 1:
        message = f"{vswitches.FIELD}: the vSwitches are in several VPCs: {', '.join(networks)}"
        return condition_unmet(VSWITCHES_READY, "MultipleVPCs", message, status=status)
    return condition_met(
        VSWITCHES_READY, absent_terms_message(found.absent), status=status, retry_after=RETRY_SOON
    )


def security_group_part(
    found: DiscoveryResult[DescribedSecurityGroup], networks: Collection[str]
) -> ResolutionPart:
    """Return the security groups.

    `networks` are the VPCs of the vSwitches, none where they are not known. An instance takes groups
    of its own VPC only, and either basic or enterprise ones.
    """
    field = security_groups.FIELD
    if not found.items:
        return _nothing(
            SECURITY_GROUPS_READY, "SecurityGroupsNotFound", field, found.absent, "securityGroups"
        )
    listed = [SecurityGroup(id=group.id, name=group.name) for group in found.items]
    status = {"securityGroups": _plain(listed)}
    if len({group.kind for group in found.items}) > 1:
        group_text = ", ".join(f"{group.id} is {group.kind}" for group in found.items)
        message = f"{field}: basic (normal) and enterprise groups cannot be mixed: {group_text}"
        return condition_unmet(
            SECURITY_GROUPS_READY, "MixedSecurityGroupTypes", message, status=status
        )
    strangers = [group for group in found.items if networks and group.vpc_id not in networks]
    if strangers:
        group_text = ", ".join(f"{group.id} is in {group.vpc_id}" for group in strangers)
        message = f"{field}: not in the VPC of the vSwitches ({', '.join(sorted(networks))}): {group_text}"
        return condition_unmet(
            SECURITY_GROUPS_READY, "SecurityGroupVPCMismatch", message, status=status
        )
    return condition_met(SECURITY_GROUPS_READY, absent_terms_message(found.absent), status=status)


def image_part(found: DiscoveryResult[Image]) -> ResolutionPart:
    """Return the images."""
    if not found.items:
        return _nothing(IMAGES_READY, "ImagesNotFound", images.FIELD, found.absent, "images")
    return condition_met(
        IMAGES_READY, absent_terms_message(found.absent), status={"images": _plain(found.items)}
    )


def reservation_part(
    found: DiscoveryResult[DescribedReservation], *, now: datetime
) -> ResolutionPart:
    """Return the reservations; to find none is fine.

    They are looked at each minute, and when the first of them ends.
    """
    ends = (item.end_time - now for item in found.items if item.end_time is not None)
    is_wanted = bool(found.items or found.absent)
    return condition_met(
        CAPACITY_RESERVATIONS_READY,
        absent_terms_message(found.absent),
        status={"capacityReservations": _plain([item.status() for item in found.items])},
        retry_after=max(min([RETRY_SOON, *ends]), SHORTEST) if is_wanted else RETRY_USUAL,
    )


def _nothing(
    condition_type: str, reason: str, field: str, absent: Sequence[str], status_field: str
) -> ResolutionPart:
    message = absent_terms_message(absent) or f"{field} has no term that matches anything"
    return condition_unmet(
        condition_type, reason, message, status={status_field: []}, retry_after=NOTHING_FOUND
    )


def _plain(items: Sequence[Model]) -> list[dict[str, object]]:
    return [item.model_dump(mode="json", exclude_none=True) for item in items]
