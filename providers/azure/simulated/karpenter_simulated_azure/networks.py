"""Keeps the networks of a subscription, and serves reads of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmReply
from karpenter_simulated_azure.network_resources import (
    LOAD_BALANCER_TYPE,
    NSG_TYPE,
    SUBNET_TYPE,
    VNET_TYPE,
    LoadBalancer,
    NetworkSecurityGroup,
    Subnet,
    VirtualNetwork,
)
from karpenter_simulated_azure.resources import ResourceTable, not_found, page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["NETWORK_VERSIONS", "Networks"]

NETWORK_VERSIONS: Final = ApiVersions(earliest="2023-01-01", latest="2026-12-31", previews=False)
_PAGE: Final = 100


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
            ("GET", SUBNET_TYPE, self._get_subnet),
            ("GET", NSG_TYPE, self._get_security_group),
            ("LIST", NSG_TYPE, self._list_security_groups),
            ("LIST", LOAD_BALANCER_TYPE, self._list_load_balancers),
        ):
            routes.add(method, kind, handler, api_versions=NETWORK_VERSIONS)

    def _get_vnet(self, call: ArmCall) -> ArmReply:
        return _found(call, self._vnets.get(call.path))

    def _get_subnet(self, call: ArmCall) -> ArmReply:
        return _found(call, self.subnet(call.path))

    def _get_security_group(self, call: ArmCall) -> ArmReply:
        return _found(call, self._security_groups.get(call.path))

    def _list_security_groups(self, call: ArmCall) -> ArmReply:
        return _listed(call, self._security_groups, self.page_size)

    def _list_load_balancers(self, call: ArmCall) -> ArmReply:
        return _listed(call, self._load_balancers, self.page_size)


def _found(call: ArmCall, found: VirtualNetwork | Subnet | NetworkSecurityGroup | None) -> ArmReply:
    if found is None:
        raise not_found(call)
    return ArmReply(body=found.to_json())


def _listed(
    call: ArmCall,
    table: ResourceTable[NetworkSecurityGroup] | ResourceTable[LoadBalancer],
    size: int,
) -> ArmReply:
    scope = call.path.lower().partition("/providers/")[0]
    return page(call, [each.to_json() for each in table.below(scope)], size=size)
