"""Virtual networks, subnets with their addresses, network security groups and load balancers."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import ResourceTable, not_found, page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["LoadBalancer", "NetworkSecurityGroup", "Networks", "Subnet", "VirtualNetwork"]

NETWORK_VERSIONS: Final = ApiVersions(earliest="2023-01-01", latest="2026-12-31", previews=False)
VNET_TYPE: Final = "Microsoft.Network/virtualNetworks"
SUBNET_TYPE: Final = f"{VNET_TYPE}/subnets"
NSG_TYPE: Final = "Microsoft.Network/networkSecurityGroups"
LOAD_BALANCER_TYPE: Final = "Microsoft.Network/loadBalancers"
_FIRST_ADDRESS: Final = 4
"""The first four addresses and the last one of a subnet are Azure's."""
_OWN_ADDRESSES: Final = 5
_PAGE: Final = 100


@dataclass(slots=True, kw_only=True, eq=False)
class Subnet:
    """A subnet with the addresses that were given out."""

    id: str
    prefix: str
    security_group_id: str = ""
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """The id of the IP configuration by address."""

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
        """The number of free addresses."""
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
        free = self._free_addresses()
        given = [next(free) for _ in owners]
        self.addresses |= dict(zip(given, owners, strict=True))
        return given

    def _free_addresses(self) -> Iterator[str]:
        network = IPv4Network(self.prefix)
        first = int(network.network_address) + _FIRST_ADDRESS
        for number in range(self.size):
            address = str(IPv4Address(first + number))
            if address not in self.addresses:
                yield address

    def release(self, addresses: Sequence[str]) -> None:
        """Take addresses back."""
        for each in addresses:
            self.addresses.pop(each, None)

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


@final
class Networks:
    """The networks of a subscription in a region."""

    def __init__(self, world: AzureWorld, ids: IdGenerator) -> None:
        self._world: Final = world
        self._ids: Final = ids
        self._vnets: Final[ResourceTable[VirtualNetwork]] = ResourceTable()
        self._security_groups: Final[ResourceTable[NetworkSecurityGroup]] = ResourceTable()
        self._load_balancers: Final[ResourceTable[LoadBalancer]] = ResourceTable()
        self.page_size = _PAGE

    def reset(self) -> None:
        """Make the networks of the world: what AKS makes for a cluster."""
        world = self._world
        for table in (self._vnets, self._security_groups, self._load_balancers):
            table.clear()
        self.page_size = _PAGE
        self.add_vnet(
            world.vnet_name,
            prefix="10.224.0.0/12",
            group=world.vnet_group,
            guid=world.vnet_guid,
        )
        self.add_security_group(world.network_security_group)
        self.add_subnet(
            world.vnet_id,
            world.subnet_name,
            world.subnet_prefix,
            security_group_id=world.network_security_group_id,
        )
        self.add_load_balancer("kubernetes", {"aksOutboundBackendPool": (), "kubernetes": ()})

    # -- the world -------------------------------------------------------------------------------

    def add_vnet(
        self, name: str, *, prefix: str, group: str = "", guid: str = ""
    ) -> VirtualNetwork:
        """Make a virtual network, by default in the node resource group."""
        vnet = VirtualNetwork(
            id=self._world.resource_id(VNET_TYPE, name, group=group),
            guid=guid or self._ids.uuid(),
            location=self._world.location,
            prefixes=(prefix,),
        )
        self._vnets.put(vnet.id, vnet)
        return vnet

    def add_subnet(
        self, vnet_id: str, name: str, prefix: str, *, security_group_id: str = ""
    ) -> Subnet:
        """Make a subnet in a virtual network that exists.

        Raises:
            LookupError: there is no such virtual network.
        """
        vnet = self._vnets.get(vnet_id)
        if vnet is None:
            raise LookupError(f"there is no virtual network {vnet_id}")
        subnet = Subnet(
            id=f"{vnet.id}/subnets/{name}", prefix=prefix, security_group_id=security_group_id
        )
        vnet.subnets.append(subnet)
        return subnet

    def add_security_group(self, name: str, *, group: str = "") -> NetworkSecurityGroup:
        """Make a network security group, by default in the node resource group."""
        made = NetworkSecurityGroup(
            id=self._world.resource_id(NSG_TYPE, name, group=group),
            guid=self._ids.uuid(),
            location=self._world.location,
        )
        self._security_groups.put(made.id, made)
        return made

    def add_load_balancer(
        self, name: str, pools: Mapping[str, Sequence[str]], *, group: str = ""
    ) -> LoadBalancer:
        """Make a load balancer or replace it; a pool with IP addresses is IP-based."""
        made = LoadBalancer(
            id=self._world.resource_id(LOAD_BALANCER_TYPE, name, group=group),
            guid=self._ids.uuid(),
            location=self._world.location,
            pools=dict(pools),
        )
        self._load_balancers.put(made.id, made)
        return made

    def remove(self, resource_id: str) -> None:
        """Remove a virtual network, a subnet, a security group or a load balancer."""
        for table in (self._vnets, self._security_groups, self._load_balancers):
            table.remove(resource_id)
        for vnet in self._vnets:
            vnet.subnets = [each for each in vnet.subnets if each.id.lower() != resource_id.lower()]

    def subnet(self, subnet_id: str) -> Subnet | None:
        """Return a subnet; None if there is none with this id."""
        vnet = self._vnets.get(subnet_id.lower().partition("/subnets/")[0])
        if vnet is None:
            return None
        found = (each for each in vnet.subnets if each.id.lower() == subnet_id.lower())
        return next(found, None)

    def has_security_group(self, resource_id: str) -> bool:
        """Return whether a network security group exists."""
        return resource_id in self._security_groups

    def has_backend_pool(self, pool_id: str) -> bool:
        """Return whether a backend pool of a load balancer exists."""
        balancer_id, _, name = pool_id.lower().partition("/backendaddresspools/")
        found = self._load_balancers.get(balancer_id)
        return found is not None and name in {each.lower() for each in found.pools}

    # -- calls -----------------------------------------------------------------------------------

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes of reads."""
        for method, kind, handler in (
            ("GET", VNET_TYPE, self._get_vnet),
            ("LIST", VNET_TYPE, self._list_vnets),
            ("GET", SUBNET_TYPE, self._get_subnet),
            ("GET", NSG_TYPE, self._get_security_group),
            ("LIST", NSG_TYPE, self._list_security_groups),
            ("GET", LOAD_BALANCER_TYPE, self._get_load_balancer),
            ("LIST", LOAD_BALANCER_TYPE, self._list_load_balancers),
        ):
            routes.add(method, kind, handler, api_versions=NETWORK_VERSIONS)

    def _get_vnet(self, call: ArmCall) -> ArmReply:
        return _found(call, self._vnets.get(call.path))

    def _list_vnets(self, call: ArmCall) -> ArmReply:
        return _listed(call, self._vnets, self.page_size)

    def _get_subnet(self, call: ArmCall) -> ArmReply:
        return _found(call, self.subnet(call.path))

    def _get_security_group(self, call: ArmCall) -> ArmReply:
        return _found(call, self._security_groups.get(call.path))

    def _list_security_groups(self, call: ArmCall) -> ArmReply:
        return _listed(call, self._security_groups, self.page_size)

    def _get_load_balancer(self, call: ArmCall) -> ArmReply:
        return _found(call, self._load_balancers.get(call.path))

    def _list_load_balancers(self, call: ArmCall) -> ArmReply:
        return _listed(call, self._load_balancers, self.page_size)


_NetworkResource = VirtualNetwork | Subnet | NetworkSecurityGroup | LoadBalancer


def _found(call: ArmCall, found: _NetworkResource | None) -> ArmReply:
    if found is None:
        raise not_found(call)
    return ArmReply(body=found.to_json())


def _listed(
    call: ArmCall,
    table: ResourceTable[VirtualNetwork]
    | ResourceTable[NetworkSecurityGroup]
    | ResourceTable[LoadBalancer],
    size: int,
) -> ArmReply:
    scope = call.path.lower().partition("/providers/")[0]
    return page(call, [each.to_json() for each in table.below(scope)], size=size)
