"""Builds boot configurations."""

from __future__ import annotations

from typing import Any

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE, ON_DEMAND, OS, ZONE
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.provider.catalogue import Requirement, Requirements
from karpenter_provider_azure import labels
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration, ClusterBoot
from karpenter_provider_azure.catalogue.vm_sizes import VmSize
from karpenter_provider_azure.launch.boot_data import BootTarget
from karpenter_provider_azure.network.cluster_network import ManagedSecurityGroup
from karpenter_provider_azure.settings import AzureSettings
from providers.azure.tests.catalogue.sku_items import plain_vm_size

SUBSCRIPTION = "00000000-0000-0000-0000-00000000000a"
GROUP = "MC_shop_shop_westus2"
SUBNET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    "/providers/Microsoft.Network/virtualNetworks/aks-vnet-12345678/subnets/aks-subnet"
)
TOKEN = "abcdef.0123456789abcdef"


def vm_size(name: str = "Standard_D2s_v5", **fields: Any) -> VmSize:
    whole = {
        "family": "standardDSv5Family",
        "cpus": 2,
        "memory_gib": 8.0,
        "zones": ("1", "2"),
        **fields,
    }
    return plain_vm_size(name, **whole)


def gpu_vm_size(name: str = "Standard_NC24ads_A100_v4") -> VmSize:
    return vm_size(name, family="StandardNCADSA100v4Family", cpus=24, memory_gib=220.0, gpus=1)


def node_class(*, version: str = "1.33.4", status: Any = None, **spec: Any) -> AKSNodeClass:
    return AKSNodeClass.model_validate(
        {
            "metadata": {"name": "web"},
            "spec": spec,
            "status": {"kubernetesVersion": version, **(status or {})},
        }
    )


def node_claim(
    *,
    requirements: Any = (),
    node_labels: Any = None,
    taints: Any = (),
    startup_taints: Any = (),
) -> NodeClaim:
    return NodeClaim.model_validate(
        {
            "metadata": {
                "name": "web-abcde",
                "labels": {"karpenter.sh/nodepool": "web", **(node_labels or {})},
            },
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.azure.com",
                    "kind": "AKSNodeClass",
                    "name": "web",
                },
                "requirements": [
                    {"key": key, "operator": "In", "values": values} for key, values in requirements
                ],
                "taints": list(taints),
                "startupTaints": list(startup_taints),
            },
        }
    )


def settings(**fields: Any) -> AzureSettings:
    whole = {
        "cluster_name": "shop",
        "cluster_endpoint": "https://shop-abc.hcp.westus2.azmk8s.io:443",
        "kubelet_bootstrap_token": TOKEN,
        "ssh_public_key": "ssh-rsa AAAA shop",
        "vnet_subnet_id": SUBNET,
        "node_resource_group": GROUP,
        "azure_subscription_id": SUBSCRIPTION,
        "azure_tenant_id": "00000000-0000-0000-0000-00000000000b",
        "location": "westus2",
        "kubelet_identity_client_id": "00000000-0000-0000-0000-00000000000c",
        **fields,
    }
    return AzureSettings(**whole)


def cluster(**fields: Any) -> ClusterBoot:
    own = {
        name: fields.pop(name)
        for name in ("ca_pem", "bootstrap_token", "dns_service_ip", "vnet_guid", "security_group")
        if name in fields
    }
    whole = {
        "ca_pem": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
        "bootstrap_token": TOKEN,
        "dns_service_ip": "10.0.0.10",
        "vnet_guid": "00000000-0000-0000-0000-00000000000d",
        "security_group": ManagedSecurityGroup(
            id=f"/subscriptions/{SUBSCRIPTION}/nsg",
            name="aks-agentpool-12345678-nsg",
            cluster_id="12345678",
        ),
        **own,
    }
    return ClusterBoot(settings=settings(**fields), **whole)


def type_requirements(size: VmSize) -> Requirements:
    """Return requirements as the catalogue gives them, but fewer."""
    values = {
        INSTANCE_TYPE: (size.name,),
        ARCH: (size.arch,),
        OS: ("linux",),
        ZONE: ("0", "westus2-1", "westus2-2"),
        labels.SKU_CPU: (str(size.cpus),),
        labels.SKU_HYPERV_GENERATION: ("2",),
        labels.AKS_MODE: (labels.MODE_SYSTEM, labels.MODE_USER),
    }
    return Requirements(Requirement.of(key, "In", found) for key, found in values.items())


def boot(
    *,
    size: VmSize | None = None,
    claim: NodeClaim | None = None,
    of: AKSNodeClass | None = None,
    of_cluster: ClusterBoot | None = None,
    **fields: Any,
) -> BootConfiguration:
    size = size or vm_size()
    whole = {"capacity_type": ON_DEMAND, "zone": "westus2-1", **fields}
    return BootConfiguration(
        cluster=of_cluster or cluster(),
        target=BootTarget(
            node_class=of or node_class(),
            node_claim=claim or node_claim(),
            size=size,
            requirements=type_requirements(size),
            **whole,
        ),
    )
