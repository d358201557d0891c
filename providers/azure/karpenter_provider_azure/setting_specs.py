"""Declares settings: flags, environment variables, defaults and help texts.

Names and defaults are those of Karpenter's Azure provider. `--cluster-name` is the core's.
"""

from __future__ import annotations

from typing import Final

from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.kit.plugin import setting_specs

__all__ = [
    "LOCAL_DNS_PREFERRED_SINCE",
    "MACHINE_MODES",
    "NETWORK_DATAPLANES",
    "NETWORK_PLUGINS",
    "NETWORK_PLUGIN_MODES",
    "PRICING_URL",
    "PROVISION_MODES",
    "SCRIPTLESS_MODE",
    "SETTINGS",
    "VM_MODES",
]

SCRIPTLESS_MODE: Final = "aksscriptless"
VM_MODES: Final = (SCRIPTLESS_MODE, "bootstrappingclient")
MACHINE_MODES: Final = ("aksmachineapi", "aksmachineapiheaderbatch")
PROVISION_MODES: Final = (*VM_MODES, *MACHINE_MODES)
NETWORK_PLUGINS: Final = ("azure", "none")
NETWORK_PLUGIN_MODES: Final = ("", "overlay")
NETWORK_DATAPLANES: Final = ("", "azure", "cilium")
PRICING_URL: Final = "https://prices.azure.com/api/retail/prices"

LOCAL_DNS_PREFERRED_SINCE: Final = "1.99.0"
"""AKS prefers LocalDNS for no version so far."""

SETTINGS: Final = (
    SettingSpec(
        flag="--node-resource-group",
        env="AZURE_NODE_RESOURCE_GROUP",
        default="",
        help="Resource group of nodes, MC_... in AKS; required.",
    ),
    SettingSpec(
        flag="--vm-memory-overhead-percent",
        env="VM_MEMORY_OVERHEAD_PERCENT",
        default=0.075,
        help="Share of an instance type's memory that is assumed to be missing on its nodes, until one "
        "of them has registered, such as 0.075 for 7.5 %.",
        falls_back=True,
    ),
    *setting_specs(
        ("--cluster-endpoint", "", "URL of the API server for nodes; required."),
        (
            "--kubelet-bootstrap-token",
            "",
            "Token that kubelets of new nodes register with; a secret; required, or the file.",
        ),
        (
            "--kubelet-bootstrap-token-file",
            "",
            "File with that token, or folder of a mounted bootstrap Secret; read at each launch.",
        ),
        ("--ssh-public-key", "", "Public SSH key of the nodes' administrator; required."),
        ("--vnet-subnet-id", "", "Id of the subnet of nodes; required."),
        ("--location", "", "Region of the cluster, such as westus2; required."),
        ("--azure-subscription-id", "", "Subscription of the node resource group; required."),
        ("--arm-subscription-id", "", "Another name of --azure-subscription-id."),
        ("--azure-tenant-id", "", "Tenant of the subscription."),
        ("--arm-tenant-id", "", "Another name of --azure-tenant-id."),
        ("--arm-resource-group", "", "Resource group of the managed cluster."),
        (
            "--arm-cloud",
            "",
            "AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud; empty = the first.",
        ),
        (
            "--azure-environment-filepath",
            "",
            "JSON file with the endpoints of another cloud, instead of --arm-cloud.",
        ),
        (
            "--azure-ca-bundle",
            "",
            "File with certificates to verify Azure's endpoints by; empty = the usual ones.",
        ),
        (
            "--azure-pricing-url",
            PRICING_URL,
            "URL of the retail prices; empty = the shipped prices.",
        ),
        ("--linux-admin-username", "azureuser", "Administrator of nodes."),
        ("--network-plugin", "azure", "Network plugin of the cluster: azure or none."),
        ("--network-plugin-mode", "overlay", "Mode of the network plugin: overlay or empty."),
        ("--network-policy", "", "Network policy engine of the cluster."),
        ("--network-dataplane", "cilium", "Network dataplane: cilium, azure or empty."),
        (
            "--dns-service-ip",
            "",
            "IP address of the cluster's DNS; empty = that of the Service kube-dns.",
        ),
        (
            "--local-dns-preferred-since",
            LOCAL_DNS_PREFERRED_SINCE,
            "First version of Kubernetes for which localDNS.mode Preferred enables LocalDNS.",
        ),
        ("--vnet-guid", "", "GUID of the virtual network; empty = read from Azure if needed."),
        ("--kubelet-identity-client-id", "", "Client id of the kubelets' identity."),
        ("--node-identities", "", "Resource ids of identities of nodes, separated by commas."),
        (
            "--provision-mode",
            SCRIPTLESS_MODE,
            "Bootstrap of nodes: aksscriptless or bootstrappingclient.",
        ),
        (
            "--nodebootstrapping-server-url",
            "",
            "URL of the bootstrapping service; required for bootstrappingclient.",
        ),
        ("--use-sig", False, "Use images of the shared gallery of AKS, not community images."),
        ("--sig-subscription-id", "", "Subscription of the shared gallery."),
        (
            "--sig-access-token-server-url",
            "",
            "URL that gives tokens for the shared gallery.",
        ),
        ("--additional-tags", "", "Tags of all resources: k=v,k2=v2; those of a class go first."),
        (
            "--enable-azure-sdk-logging",
            True,
            "Log the SDK's requests when the log level is debug.",
        ),
        (
            "--node-osdisk-diskencryptionset-id",
            "",
            "Resource id of the disk encryption set of OS disks.",
        ),
        (
            "--manage-existing-aks-machines",
            False,
            "Manage the existing AKS machines that Karpenter's provider for Azure has created.",
        ),
        (
            "--aks-machines-pool-name",
            "",
            "Agent pool of AKS machines; required for --manage-existing-aks-machines.",
        ),
    ),
)
