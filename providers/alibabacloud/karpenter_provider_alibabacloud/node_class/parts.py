"""Turns discovery results into the parts of an ECSNodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.kit.node_class.discovery import found_part
from karpenter_core.provider.kit.node_class.parts import RETRY_SOON, condition_unmet
from karpenter_provider_alibabacloud.api.nodeclass import SecurityGroup, VSwitch
from karpenter_provider_alibabacloud.discovery import images, security_groups, vswitches
from karpenter_provider_alibabacloud.node_class.conditions import (
    IMAGES_READY,
    NOTHING_FOUND,
    SECURITY_GROUPS_READY,
    VSWITCHES_READY,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.provider.kit.node_class.discovery import DiscoveryResult
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_alibabacloud.api.nodeclass import Image
    from karpenter_provider_alibabacloud.discovery.security_groups import DescribedSecurityGroup
    from karpenter_provider_alibabacloud.discovery.vswitches import DescribedVSwitch

__all__ = ["image_part", "security_group_part", "vpcs", "vswitch_part"]


def vpcs(found: DiscoveryResult[DescribedVSwitch]) -> frozenset[str]:
    """Return the VPCs that vSwitches are in."""
    return frozenset(vswitch.vpc_id for vswitch in found.items)


def vswitch_part(found: DiscoveryResult[DescribedVSwitch]) -> ResolutionPart:
    """Return the vSwitches, which are looked at each minute for their free addresses.

    All must be in one VPC, or launches would land in whichever has the cheapest zone.
    """
    part = found_part(
        VSWITCHES_READY,
        found,
        [VSwitch(id=v.id, zone_id=v.zone) for v in found.items],
        field=vswitches.FIELD,
        status_field="vSwitches",
        reason="vSwitchesNotFound",
        retry_after=RETRY_SOON,
        retry_absent_after=NOTHING_FOUND,
    )
    networks = sorted(vpcs(found))
    if len(networks) > 1:
        message = f"{vswitches.FIELD}: the vSwitches are in several VPCs: {', '.join(networks)}"
        return condition_unmet(VSWITCHES_READY, "MultipleVPCs", message, status=part.status)
    return part


def security_group_part(
    found: DiscoveryResult[DescribedSecurityGroup], networks: Collection[str]
) -> ResolutionPart:
    """Return the security groups.

    `networks` are the VPCs of the vSwitches, none where they are not known. An instance takes groups
    of its own VPC only, and either basic or enterprise ones.
    """
    field = security_groups.FIELD
    part = found_part(
        SECURITY_GROUPS_READY,
        found,
        [SecurityGroup(id=group.id, name=group.name) for group in found.items],
        field=field,
        status_field="securityGroups",
        reason="SecurityGroupsNotFound",
        retry_absent_after=NOTHING_FOUND,
    )
    if len({group.kind for group in found.items}) > 1:
        group_text = ", ".join(f"{group.id} is {group.kind}" for group in found.items)
        message = f"{field}: basic (normal) and enterprise groups cannot be mixed: {group_text}"
        return condition_unmet(
            SECURITY_GROUPS_READY, "MixedSecurityGroupTypes", message, status=part.status
        )
    strangers = [group for group in found.items if networks and group.vpc_id not in networks]
    if strangers:
        group_text = ", ".join(f"{group.id} is in {group.vpc_id}" for group in strangers)
        message = f"{field}: not in the VPC of the vSwitches ({', '.join(sorted(networks))}): {group_text}"
        return condition_unmet(
            SECURITY_GROUPS_READY, "SecurityGroupVPCMismatch", message, status=part.status
        )
    return part


def image_part(found: DiscoveryResult[Image]) -> ResolutionPart:
    """Return the images."""
    return found_part(
        IMAGES_READY,
        found,
        found.items,
        field=images.FIELD,
        status_field="images",
        reason="ImagesNotFound",
        retry_absent_after=NOTHING_FOUND,
    )
