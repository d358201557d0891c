"""Names a cluster's tenant, subscription, groups, network and identities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["AzureWorld"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AzureWorld:
    """One subscription in one region, with an AKS cluster; the resources are made by their parts."""

    tenant_id: str = "11111111-aaaa-4bbb-8ccc-000000000001"
    subscription_id: str = "12345678-1234-4123-8123-123456789012"
    location: str = "westus2"
    zones: tuple[str, ...] = ("1", "2", "3")
    """The logical availability zones of the region."""
    cluster_name: str = "test-cluster"
    cluster_group: str = "test-group"
    """The resource group of the managed cluster."""
    machines_pool: str = "aksmanagedap"
    """The agent pool of AKS machines."""
    kubernetes_version: str = "1.34.2"
    vnet_name: str = "aks-vnet-12345678"
    vnet_group: str = ""
    """The resource group of the virtual network; empty for the node resource group (managed)."""
    vnet_guid: str = "22222222-aaaa-4bbb-8ccc-000000000002"
    subnet_name: str = "aks-subnet"
    subnet_prefix: str = "10.224.0.0/16"
    network_security_group: str = "aks-agentpool-12345678-nsg"
    client_id: str = "33333333-aaaa-4bbb-8ccc-000000000003"
    """The application of the controller's workload identity."""
    object_id: str = "44444444-aaaa-4bbb-8ccc-000000000004"
    """The service principal of that identity."""
    kubelet_client_id: str = "55555555-aaaa-4bbb-8ccc-000000000005"
    identity_names: tuple[str, ...] = ("test-cluster-agentpool",)
    """The user-assigned identities of the node resource group; the first is the kubelets'."""

    @property
    def node_group(self) -> str:
        """The node resource group: `MC_test-group_test-cluster_westus2`."""
        return f"MC_{self.cluster_group}_{self.cluster_name}_{self.location}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The resource groups that exist."""
        named = (self.node_group, self.cluster_group, self.vnet_group)
        return tuple(dict.fromkeys(each for each in named if each))

    @property
    def subscription_path(self) -> str:
        """The path of the subscription."""
        return f"/subscriptions/{self.subscription_id}"

    def group_path(self, group: str = "") -> str:
        """Return the path of a resource group, by default of the node resource group."""
        return f"{self.subscription_path}/resourceGroups/{group or self.node_group}"

    def resource_id(self, resource_type: str, *names: str, group: str = "") -> str:
        """Return the id of a resource: `Microsoft.Network/virtualNetworks/subnets` has two names."""
        namespace, *kinds = resource_type.split("/")
        tail = "/".join(f"{kind}/{name}" for kind, name in zip(kinds, names, strict=True))
        return f"{self.group_path(group)}/providers/{namespace}/{tail}"

    @property
    def vnet_id(self) -> str:
        """The id of the virtual network."""
        return self.resource_id(
            "Microsoft.Network/virtualNetworks", self.vnet_name, group=self.vnet_group
        )

    @property
    def subnet_id(self) -> str:
        """The id of the subnet of the cluster's nodes."""
        return f"{self.vnet_id}/subnets/{self.subnet_name}"

    @property
    def network_security_group_id(self) -> str:
        """The id of the managed network security group."""
        return self.resource_id(
            "Microsoft.Network/networkSecurityGroups", self.network_security_group
        )

    @property
    def identity_ids(self) -> tuple[str, ...]:
        """The ids of the user-assigned identities."""
        kind = "Microsoft.ManagedIdentity/userAssignedIdentities"
        return tuple(self.resource_id(kind, each) for each in self.identity_names)

    @property
    def cluster_id(self) -> str:
        """The id of the managed cluster."""
        return self.resource_id(
            "Microsoft.ContainerService/managedClusters",
            self.cluster_name,
            group=self.cluster_group,
        )
