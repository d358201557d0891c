"""Checks subnets of nodes, and reads them.

Nodes of a cluster are in one virtual network. A virtual network that AKS made has a subnet for AKS's
own use, and takes no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.arm.client import NETWORK_API_VERSION
from karpenter_provider_azure.resource_ids import ResourceId, same_id

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["SUBNETS", "ClusterNetwork", "SubnetReader", "parse_subnet_id", "subnet_problem"]

SUBNETS: Final = "Microsoft.Network/virtualNetworks/subnets"
TTL: Final = timedelta(minutes=1)
"""NodeClasses that are resolved together share a read."""
_MANAGED_NETWORK: Final = re.compile(r"aks-vnet-\d{8}", re.IGNORECASE)
_MANAGED_SUBNET: Final = "aks-subnet"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNetwork:
    """The settings that describe the network of the cluster."""

    vnet_subnet_id: str
    """The subnet of the cluster: the default of NodeClasses."""
    node_resource_group: str

    @classmethod
    def of(cls, settings: AzureSettings) -> ClusterNetwork:
        """Return the network of a cluster with these settings."""
        return cls(
            vnet_subnet_id=settings.vnet_subnet_id, node_resource_group=settings.node_resource_group
        )

    def is_managed(self, subnet: ResourceId) -> bool:
        """Whether AKS made a subnet and its virtual network, and attaches the security group itself."""
        return (
            subnet.resource_group.lower() == self.node_resource_group.lower()
            and _MANAGED_NETWORK.fullmatch(subnet.parent().name) is not None
            and subnet.name.lower() == _MANAGED_SUBNET
        )

    def needs_security_group(self, subnet_id: str) -> bool:
        """Whether interfaces in a subnet need the managed security group.

        Raises:
            ValueError: it is not the id of a subnet.
        """
        return not self.is_managed(parse_subnet_id(subnet_id))


def parse_subnet_id(text: str) -> ResourceId:
    """Read the id of a subnet.

    Raises:
        ValueError: it is not one.
    """
    parsed = ResourceId.parse(text)
    if not parsed.is_type(SUBNETS):
        raise ValueError(f'"{text}" is the id of a {parsed.resource_type}, not of a {SUBNETS}')
    return parsed


def subnet_problem(subnet_id: str, cluster: ClusterNetwork) -> str:
    """Return why nodes cannot be in a subnet; empty if they can, as far as ids tell."""
    try:
        subnet = parse_subnet_id(subnet_id)
        cluster_subnet = parse_subnet_id(cluster.vnet_subnet_id)
    except ValueError as error:
        return str(error)
    if same_id(subnet_id, cluster.vnet_subnet_id):
        return ""
    network, cluster_network = str(subnet.parent()), str(cluster_subnet.parent())
    if not same_id(network, cluster_network):
        return (
            f'"{subnet_id}" is not in the virtual network of the cluster, {cluster_network} '
            "(setting vnet-subnet-id)"
        )
    if cluster.is_managed(cluster_subnet):
        return (
            f'"{subnet_id}" is in the virtual network {cluster_subnet.parent().name}, which AKS '
            "manages: nodes can only be in its own subnet"
        )
    return ""


@final
class SubnetReader:
    """Reads subnets; callable from any thread."""

    def __init__(self, arm: ArmClient, clock: Clock) -> None:
        self._arm: Final = arm
        self._existing: Final[TtlCache[str, str]] = TtlCache(clock, TTL)

    def require(self, subnet_id: str) -> None:
        """Return if a subnet exists.

        Raises:
            ArmNotFoundError: it does not.
            CloudProviderError: Azure refused or did not answer.
        """
        key = subnet_id.lower()
        if self._existing.get(key):
            return
        self._arm.get(
            subnet_id, api_version=NETWORK_API_VERSION, action="virtualNetworks/subnets:get"
        )
        self._existing.put(key, subnet_id)
