"""Builds the network interfaces of a launch template.

Security groups always stand on interfaces: EC2 refuses a template that has them in both places. An
interface of the type `efa-only` has no addresses, and refuses all settings of addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from types_boto3_ec2.type_defs import (
        ConnectionTrackingSpecificationRequestTypeDef,
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
    )

    from karpenter_provider_aws.api.nodeclass import ConnectionTracking, EC2NodeClass
    from karpenter_provider_aws.instance_type_info import InterfacePlace

    Interface = LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef

__all__ = ["network_interfaces"]

_EFA_ONLY: Final = "efa-only"


def network_interfaces(
    node_class: EC2NodeClass, *, efa_places: Sequence[InterfacePlace], is_ipv6: bool
) -> list[Interface]:
    """Return the interfaces of an instance: those of the spec; else those with EFAs; else one.

    `efa_places` is empty unless pods ask for EFAs. `is_ipv6` says that pods have IPv6 addresses.
    """
    configured = node_class.spec.network_interfaces
    if configured:
        return [
            _interface(
                node_class,
                device_index=item.device_index,
                card_index=item.network_card_index,
                interface_type=item.interface_type,
                is_ipv6=is_ipv6,
            )
            for item in configured
        ]
    if efa_places:
        return [
            _interface(
                node_class,
                device_index=place.device,
                card_index=place.card,
                interface_type=place.kind,
                is_ipv6=is_ipv6,
            )
            for place in efa_places
        ]
    return [_interface(node_class, device_index=0, is_ipv6=is_ipv6)]


def _interface(
    node_class: EC2NodeClass,
    *,
    device_index: int,
    card_index: int | None = None,
    interface_type: str = "",
    is_ipv6: bool,
) -> Interface:
    interface: Interface = {
        "DeviceIndex": device_index,
        "Groups": [group.id for group in node_class.status.security_groups],
    }
    if card_index is not None:
        interface["NetworkCardIndex"] = card_index
    if interface_type:
        interface["InterfaceType"] = interface_type
    if interface_type != _EFA_ONLY:
        _add_addresses(interface, node_class, is_ipv6=is_ipv6)
    return interface


def _add_addresses(interface: Interface, node_class: EC2NodeClass, *, is_ipv6: bool) -> None:
    spec = node_class.spec
    if spec.associate_public_ip_address is not None:
        interface["AssociatePublicIpAddress"] = spec.associate_public_ip_address
    if is_ipv6:
        interface["PrimaryIpv6"] = True
        interface["Ipv6AddressCount"] = 1
    if spec.ip_prefix_count is not None:
        if is_ipv6:
            interface["Ipv6PrefixCount"] = spec.ip_prefix_count
        else:
            interface["Ipv4PrefixCount"] = spec.ip_prefix_count
    tracking = _connection_tracking(spec.connection_tracking)
    if tracking:
        interface["ConnectionTrackingSpecification"] = tracking


def _connection_tracking(
    options: ConnectionTracking | None,
) -> ConnectionTrackingSpecificationRequestTypeDef:
    tracking: ConnectionTrackingSpecificationRequestTypeDef = {}
    if options is None:
        return tracking
    if options.tcp_established_timeout is not None:
        tracking["TcpEstablishedTimeout"] = options.tcp_established_timeout
    if options.udp_stream_timeout is not None:
        tracking["UdpStreamTimeout"] = options.udp_stream_timeout
    if options.udp_timeout is not None:
        tracking["UdpTimeout"] = options.udp_timeout
    return tracking
