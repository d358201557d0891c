"""Turns discovery results into the parts of an EC2NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.kit.node_class.discovery import found_part
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    RETRY_USUAL,
    condition_met,
    condition_unmet,
)
from karpenter_provider_aws.api.node_class_status import Subnet
from karpenter_provider_aws.discovery import images, placement_groups, security_groups, subnets
from karpenter_provider_aws.node_class.conditions import (
    AMIS_READY,
    PLACEMENT_GROUP_READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
)

if TYPE_CHECKING:
    from karpenter_core.provider.kit.node_class.discovery import DiscoveryResult
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_aws.api.node_class_status import SecurityGroup
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, PlacementGroupSelector
    from karpenter_provider_aws.discovery.images import ImageReader
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.discovery.subnets import DescribedSubnet

__all__ = ["ami_part", "placement_group_part", "security_group_part", "subnet_part"]


def ami_part(reader: ImageReader, node_class: EC2NodeClass) -> ResolutionPart:
    """Return the images, or that an alias has none for this version of Kubernetes."""
    unsupported = reader.unsupported(node_class)
    if unsupported:  # looking again soon would not help
        return condition_unmet(AMIS_READY, "UnsupportedAlias", unsupported, retry_after=RETRY_USUAL)
    found = reader.find(node_class)
    return found_part(
        AMIS_READY,
        found,
        found.items,
        field=images.FIELD,
        status_field="amis",
        reason="AMINotFound",
    )


def subnet_part(found: DiscoveryResult[DescribedSubnet]) -> ResolutionPart:
    """Return the subnets, which are looked at each minute for their free addresses."""
    return found_part(
        SUBNETS_READY,
        found,
        [Subnet(id=s.id, zone=s.zone, zone_id=s.zone_id) for s in found.items],
        field=subnets.FIELD,
        status_field="subnets",
        reason="SubnetsNotFound",
        retry_after=RETRY_SOON,
    )


def security_group_part(found: DiscoveryResult[SecurityGroup]) -> ResolutionPart:
    """Return the security groups."""
    return found_part(
        SECURITY_GROUPS_READY,
        found,
        found.items,
        field=security_groups.FIELD,
        status_field="securityGroups",
        reason="SecurityGroupsNotFound",
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
