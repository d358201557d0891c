"""Builds the network interfaces of a launch, and counts addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_simulated_aws.instances import InstanceInterface

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_aws.networks import SecurityGroup, SimulatedSubnet

__all__ = ["addresses_wanted", "interfaces_for"]

_PREFIX_ADDRESSES = 16


def _wanted(
    data: RequestLaunchTemplateDataTypeDef,
) -> Sequence[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef]:
    return data.get("NetworkInterfaces") or [{"DeviceIndex": 0, "NetworkCardIndex": 0}]


def _has_address(
    interface: LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
) -> bool:
    return interface.get("InterfaceType") != "efa-only"


def addresses_wanted(data: RequestLaunchTemplateDataTypeDef) -> int:
    """Return how many addresses of the subnet one instance takes."""
    return sum(
        int(_has_address(each)) + _PREFIX_ADDRESSES * each.get("Ipv4PrefixCount", 0)
        for each in _wanted(data)
    )


def interfaces_for(
    data: RequestLaunchTemplateDataTypeDef,
    *,
    subnet: SimulatedSubnet,
    groups: Mapping[str, SecurityGroup],
    addresses: Iterator[str],
    ids: IdGenerator,
    tags: Mapping[str, str],
) -> tuple[InstanceInterface, ...]:
    """Make the interfaces of one instance; without groups they have the VPC's default one."""
    default = [
        group.id
        for group in groups.values()
        if group.vpc_id == subnet.vpc_id and group.name == "default"
    ]
    return tuple(
        InstanceInterface(
            id=ids.new("eni"),
            attachment_id=ids.new("eni-attach"),
            kind=each.get("InterfaceType", "interface"),
            card=each.get("NetworkCardIndex", 0),
            device=each.get("DeviceIndex", 0),
            address=next(addresses) if _has_address(each) else "",
            groups=tuple(
                (group_id, groups[group_id].name)
                for group_id in each.get("Groups") or data.get("SecurityGroupIds") or default
            ),
            public=each.get("AssociatePublicIpAddress", subnet.public),
            ipv4_prefixes=each.get("Ipv4PrefixCount", 0),
            ipv6_addresses=each.get("Ipv6AddressCount", 0),
            ipv6_prefixes=each.get("Ipv6PrefixCount", 0),
            tags=tags,
        )
        for each in _wanted(data)
    )
