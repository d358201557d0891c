"""Virtual networks, subnets, addresses, security groups, load balancers."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final

from karpenter_simulated_azure.arm_api import ArmFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject

__all__ = [
    "LOAD_BALANCER_TYPE",
    "NSG_TYPE",
    "SUBNET_TYPE",
    "VNET_TYPE",
    "LoadBalancer",
    "NetworkSecurityGroup",
    "Subnet",
    "VirtualNetwork",
]

VNET_TYPE: Final = "Microsoft.Network/virtualNetworks"
SUBNET_TYPE: Final = f"{VNET_TYPE}/subnets"
NSG_TYPE: Final = "Microsoft.Network/networkSecurityGroups"
LOAD_BALANCER_TYPE: Final = "Microsoft.Network/loadBalancers"
_FIRST_ADDRESS: Final = 4
"""The first four addresses and the last one of a subnet are Azure's."""
_OWN_ADDRESSES: Final = 5


@dataclass(slots=True, kw_only=True, eq=False)
class Subnet:
    """A subnet with the addresses that were given out."""

    id: str
    prefix: str
    security_group_id: str = ""
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """The id of the IP configuration by address."""
    given: int = 0
    """The number of addresses that were given out, those that were released too."""
    released: list[int] = field(default_factory=list[int])
    """The numbers of the released addresses, as a heap."""

    @property
    def name(self) -> str:
        """The name."""
        return self.id.rpartition("/")[2]

    @property
    def size(self) -> int:
        """The number of addresses for network interfaces, free or not."""
        return max(0, IPv4Network(self.prefix).num_addresses - _OWN_ADDRESSES)

    @property
    def free(self) -> int:
        """The number of free addresses; the next creation frees those of deleted interfaces."""
        return self.size - len(self.addresses)

    def allocate(self, owners: Sequence[str]) -> Sequence[str]:
        """Give an address to each IP configuration.

        Raises:
            ArmFault: `SubnetIsFull`; no address is given then.
        """
        if len(owners) > self.free:
            raise ArmFault(
                "SubnetIsFull",
                f"Subnet {self.id} with address prefix {self.prefix} does not have enough capacity"
                f" for {len(owners)} IP addresses.",
            )
        given = [self._next_address() for _ in owners]
        self.addresses |= dict(zip(given, owners, strict=True))
        return given

    def _next_address(self) -> str:
        """Return the lowest free address."""
        if self.released:
            number = heappop(self.released)
        else:
            number = self.given
            self.given += 1
        first = int(IPv4Network(self.prefix).network_address) + _FIRST_ADDRESS
        return str(IPv4Address(first + number))

    def release(self, addresses: Sequence[str]) -> None:
        """Take addresses back."""
        first = int(IPv4Network(self.prefix).network_address) + _FIRST_ADDRESS
        for each in addresses:
            if self.addresses.pop(each, None) is not None:
                heappush(self.released, int(IPv4Address(each)) - first)

    def to_json(self) -> JsonObject:
        """Return it as the API does."""
        properties: JsonObject = {
            "provisioningState": "Succeeded",
            "addressPrefix": self.prefix,
            "ipConfigurations": [{"id": each} for each in self.addresses.values()],
            "delegations": [],
            "privateEndpointNetworkPolicies": "Disabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
        }
        if self.security_group_id:
            properties["networkSecurityGroup"] = {"id": self.security_group_id}
        return _resource(self.id, SUBNET_TYPE, properties)


@dataclass(slots=True, kw_only=True, eq=False)
class VirtualNetwork:
    """A virtual network."""

    id: str
    guid: str
    location: str
    prefixes: Sequence[str]
    subnets: list[Subnet] = field(default_factory=list[Subnet])
    tags: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> JsonObject:
        """Return it as the API does."""
        properties: JsonObject = {
            "provisioningState": "Succeeded",
            "resourceGuid": self.guid,
            "addressSpace": {"addressPrefixes": list(self.prefixes)},
            "subnets": [each.to_json() for each in self.subnets],
            "virtualNetworkPeerings": [],
            "enableDdosProtection": False,
        }
        found = _resource(self.id, VNET_TYPE, properties)
        return found | {"location": self.location, "tags": dict(self.tags)}


@dataclass(slots=True, kw_only=True, eq=False)
class NetworkSecurityGroup:
    """A network security group."""

    id: str
    guid: str
    location: str

    def to_json(self) -> JsonObject:
        """Return it as the API does."""
        properties: JsonObject = {
            "provisioningState": "Succeeded",
            "resourceGuid": self.guid,
            "securityRules": [],
            "defaultSecurityRules": [],
        }
        return _resource(self.id, NSG_TYPE, properties) | {"location": self.location}


@dataclass(slots=True, kw_only=True, eq=False)
class LoadBalancer:
    """A load balancer with backend pools."""

    id: str
    guid: str
    location: str
    pools: Mapping[str, Sequence[str]]
    """By the name of a pool, the IP addresses of an IP-based one; empty for one of interfaces."""

    def pool_id(self, name: str) -> str:
        """Return the id of a backend pool."""
        return f"{self.id}/backendAddressPools/{name}"

    def to_json(self) -> JsonObject:
        """Return it as the API does."""
        properties: JsonObject = {
            "provisioningState": "Succeeded",
            "resourceGuid": self.guid,
            "frontendIPConfigurations": [],
            "backendAddressPools": [
                self._pool(name, addresses) for name, addresses in self.pools.items()
            ],
            "loadBalancingRules": [],
            "probes": [],
        }
        found = _resource(self.id, LOAD_BALANCER_TYPE, properties)
        return found | {
            "location": self.location,
            "sku": {"name": "Standard", "tier": "Regional"},
        }

    def _pool(self, name: str, addresses: Sequence[str]) -> JsonObject:
        properties: JsonObject = {"provisioningState": "Succeeded"}
        if addresses:
            properties["loadBalancerBackendAddresses"] = [
                {"name": f"{name}-{number}", "properties": {"ipAddress": address}}
                for number, address in enumerate(addresses)
            ]
        kind = f"{LOAD_BALANCER_TYPE}/backendAddressPools"
        return _resource(self.pool_id(name), kind, properties)


def _resource(resource_id: str, kind: str, properties: JsonObject) -> JsonObject:
    return {
        "id": resource_id,
        "name": resource_id.rpartition("/")[2],
        "type": kind,
        "properties": properties,
    }
