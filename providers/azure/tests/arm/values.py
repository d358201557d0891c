"""Settings and ids for tests."""

from __future__ import annotations

from karpenter_provider_azure.cloud_environment import CloudEnvironment
from karpenter_provider_azure.settings import AzureSettings

SUBSCRIPTION = "12345678-1234-1234-1234-123456789012"
GROUP = "MC_demo"
SUBNET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network"
    "/virtualNetworks/vnet/subnets/nodes"
)
VMS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
    "/virtualMachines"
)
API_VERSION = "2024-07-01"


def settings_for(url="https://management.azure.com", ca_bundle="", **more):
    cloud = CloudEnvironment(
        name="", resource_manager=url, audience=url, authority=url, is_named=False
    )
    return AzureSettings(
        **{
            "cluster_name": "demo",
            "cluster_endpoint": "https://demo.example.com",
            "kubelet_bootstrap_token": "abcdef.0123456789abcdef",
            "ssh_public_key": "ssh-ed25519 AAAA",
            "vnet_subnet_id": SUBNET,
            "node_resource_group": GROUP,
            "azure_subscription_id": SUBSCRIPTION,
            "location": "westus2",
            "cloud": cloud,
            "ca_bundle": ca_bundle,
            **more,
        }
    )
