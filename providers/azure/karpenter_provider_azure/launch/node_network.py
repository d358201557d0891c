"""Builds the network interface that Azure creates with a virtual machine.

A virtual machine declares its interface (`networkInterfaceConfigurations`), and Azure deletes it with the
virtual machine. An interface needs no allocation method: its addresses are dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import BadInputError
from karpenter_provider_azure.catalogue.class_traits import max_pods_of
from karpenter_provider_azure.network.cluster_network import refers_to_missing_pool
from karpenter_provider_azure.network.subnets import ClusterNetwork

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.kit.shared_answer import SharedAnswer
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.errors import ArmError
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.network.cluster_network import (
        SecurityGroupReader,
    )
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "NETWORK_API_VERSION",
    "NetworkInterface",
    "NodeNetwork",
    "address_count",
    "network_profile",
]

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


@final
class NodeNetwork:
    """Subnet, security group and backend pools of new nodes; callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        *,
        pools: SharedAnswer[tuple[str, ...]],
        security_groups: SecurityGroupReader,
    ) -> None:
        self._settings: Final = settings
        self._pools: Final = pools
        self._security_groups: Final = security_groups
        self._cluster: Final = ClusterNetwork.of(settings)

    def interface(self, name: str, node_class: AKSNodeClass, size: VmSize) -> NetworkInterface:
        """Return the interface of a node.

        Raises:
            CloudProviderError: pools or security groups could not be read, or there are several groups.
            BadInputError: the id of the subnet is malformed.
        """
        subnet_id = self.subnet_id(node_class)
        try:
            needs_group = self._cluster.needs_security_group(subnet_id)
        except ValueError as error:
            raise BadInputError(f'AKSNodeClass "{node_class.name}": {error}') from error
        group = self._security_groups.current() if needs_group else None
        max_pods = max_pods_of(node_class, self._settings)
        return NetworkInterface(
            name=name,
            subnet_id=subnet_id,
            backend_pool_ids=self._pools.current().value,
            security_group_id=group.id if group is not None else "",
            is_accelerated=size.accelerated_networking,
            addresses=address_count(self._settings, max_pods=max_pods),
        )

    def subnet_id(self, node_class: AKSNodeClass) -> str:
        """Return the subnet of a NodeClass: its own or that of the cluster."""
        return node_class.spec.vnet_subnet_id or self._settings.vnet_subnet_id

    def with_current_pools(
        self, interface: NetworkInterface, error: ArmError
    ) -> NetworkInterface | None:
        """Return the interface with pools as they are now; None if the error is not about its pools.

        Parallel launches that met the same error share one read.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        used = interface.backend_pool_ids
        if not refers_to_missing_pool(error.codes, error.text, used):
            return None
        seen = self._pools.current()
        newer = self._pools.newer_than(seen) if seen.value == used else seen
        return replace(interface, backend_pool_ids=newer.value)
