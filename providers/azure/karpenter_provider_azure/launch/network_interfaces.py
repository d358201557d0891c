"""Builds the network interface that Azure makes together with a virtual machine. Pure functions.

A virtual machine declares its interface (`networkInterfaceConfigurations`), and Azure deletes it with the
virtual machine. An interface needs no allocation method: its addresses are dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["NETWORK_API_VERSION", "NetworkInterface", "address_count", "network_profile"]

NETWORK_API_VERSION: Final = "2022-11-01"
"""The newest version of Microsoft.Network that virtual machines create interfaces with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInterface:
    """The only interface of a virtual machine."""

    name: str
    subnet_id: str
    backend_pool_ids: tuple[str, ...] = ()
    """Pools of load balancers that the first address is in."""
    security_group_id: str = ""
    """Empty: that of the subnet is enough."""
    is_accelerated: bool = False
    """Whether the size supports accelerated networking."""
    addresses: int = 1
    """Addresses of the subnet: the node's own and, without an overlay network, those of pods."""


def address_count(settings: AzureSettings, *, max_pods: int) -> int:
    """Return the addresses of an interface: `max_pods` for Azure CNI without an overlay, else one."""
    takes_subnet_addresses = settings.network_plugin == "azure" and not settings.is_overlay
    return max_pods if takes_subnet_addresses else 1


def network_profile(interface: NetworkInterface, tags: Mapping[str, str]) -> JsonObject:
    """Return the `networkProfile` of a virtual machine."""
    properties: JsonObject = {
        "primary": True,
        "deleteOption": "Delete",
        "enableAcceleratedNetworking": interface.is_accelerated,
        "enableIPForwarding": False,
        "ipConfigurations": [
            _ip_configuration(interface, index) for index in range(max(interface.addresses, 1))
        ],
    }
    if interface.security_group_id:
        properties["networkSecurityGroup"] = {"id": interface.security_group_id}
    configuration = {"name": interface.name, "properties": properties, "tags": dict(tags)}
    return {
        "networkApiVersion": NETWORK_API_VERSION,
        "networkInterfaceConfigurations": [configuration],
    }


def _ip_configuration(interface: NetworkInterface, index: int) -> JsonObject:
    properties: JsonObject = {"primary": index == 0, "subnet": {"id": interface.subnet_id}}
    if index == 0 and interface.backend_pool_ids:
        pools = [{"id": each} for each in interface.backend_pool_ids]
        properties["loadBalancerBackendAddressPools"] = pools
    return {"name": f"ipconfig{index}" if index else interface.name, "properties": properties}
