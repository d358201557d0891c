"""Names of labels, annotations, tags and resources.

The strings are the public API of Karpenter's Azure provider (`karpenter.azure.com`) and AKS's own
node labels (`kubernetes.azure.com`).
"""

from __future__ import annotations

from typing import Final

from karpenter_core.api.labels import ON_DEMAND, SPOT, ZONE
from karpenter_core.provider.contract import LabelClasses

__all__ = ["placement_scope", "zone_label", "zone_number"]

GROUP: Final = "karpenter.azure.com"
AKS_DOMAIN: Final = "kubernetes.azure.com"

# Labels that follow from the size of the virtual machine
SKU_NAME: Final = f"{GROUP}/sku-name"
SKU_FAMILY: Final = f"{GROUP}/sku-family"
SKU_SERIES: Final = f"{GROUP}/sku-series"
SKU_VERSION: Final = f"{GROUP}/sku-version"
SKU_CPU: Final = f"{GROUP}/sku-cpu"
SKU_MEMORY: Final = f"{GROUP}/sku-memory"  # MiB
SKU_NETWORKING_ACCELERATED: Final = f"{GROUP}/sku-networking-accelerated"
SKU_STORAGE_PREMIUM_CAPABLE: Final = f"{GROUP}/sku-storage-premium-capable"
SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE: Final = f"{GROUP}/sku-storage-ephemeralos-maxsize"  # GB
SKU_GPU_NAME: Final = f"{GROUP}/sku-gpu-name"
SKU_GPU_MANUFACTURER: Final = f"{GROUP}/sku-gpu-manufacturer"
SKU_GPU_COUNT: Final = f"{GROUP}/sku-gpu-count"
AKS_SKU_CPU: Final = f"{AKS_DOMAIN}/sku-cpu"
"""Equals `SKU_CPU`."""
AKS_SKU_MEMORY: Final = f"{AKS_DOMAIN}/sku-memory"
"""Equals `SKU_MEMORY`."""

# Labels that follow from the offering
SKU_STORAGE_ULTRA_SSD: Final = f"{GROUP}/sku-storage-ultra-ssd"
PLACEMENT_SCOPE: Final = f"{GROUP}/placement-scope"
AKS_SCALE_SET_PRIORITY: Final = f"{AKS_DOMAIN}/scalesetpriority"
AKS_PRIORITY: Final = f"{AKS_DOMAIN}/priority"

# Labels that follow from the cluster, the NodeClass or the NodeClaim
AKS_CLUSTER: Final = f"{AKS_DOMAIN}/cluster"
AKS_MODE: Final = f"{AKS_DOMAIN}/mode"
AKS_OS_SKU: Final = f"{AKS_DOMAIN}/os-sku"
AKS_FIPS_ENABLED: Final = f"{AKS_DOMAIN}/fips_enabled"

SKU_HYPERV_GENERATION: Final = f"{GROUP}/sku-hyperv-generation"
"""Selects images; never a label of a node."""

NODE_CLASS: Final = f"{GROUP}/aksnodeclass"
"""Name of the NodeClass: a label of nodes, set by the core."""

# Labels that only nodes have
AKS_ROLE: Final = f"{AKS_DOMAIN}/role"
AKS_KUBELET_IDENTITY_CLIENT_ID: Final = f"{AKS_DOMAIN}/kubelet-identity-client-id"
AKS_OS_SKU_REQUESTED: Final = f"{AKS_DOMAIN}/os-sku-requested"
AKS_OS_SKU_EFFECTIVE: Final = f"{AKS_DOMAIN}/os-sku-effective"
AKS_LOCAL_DNS_STATE: Final = f"{AKS_DOMAIN}/localdns-state"
AKS_ARTIFACT_STREAMING_ENABLED: Final = f"{AKS_DOMAIN}/artifactstreaming-enabled"
AKS_NETWORK_SUBNET: Final = f"{AKS_DOMAIN}/network-subnet"
AKS_NODE_NETWORK_VNET_GUID: Final = f"{AKS_DOMAIN}/nodenetwork-vnetguid"
AKS_AZURE_CNI_OVERLAY: Final = f"{AKS_DOMAIN}/azure-cni-overlay"
AKS_POD_NETWORK_TYPE: Final = f"{AKS_DOMAIN}/podnetwork-type"
AKS_NETWORK_STATELESS_CNI: Final = f"{AKS_DOMAIN}/network-stateless-cni"
AKS_EBPF_DATAPLANE: Final = f"{AKS_DOMAIN}/ebpf-dataplane"

# Values
ZONAL: Final = "zonal"
REGIONAL: Final = "regional"
REGIONAL_ZONE: Final = "0"
"""The zone of instances without a zone, as the cloud's node controller labels them."""
MODE_SYSTEM: Final = "system"
MODE_USER: Final = "user"
PRIORITY_REGULAR: Final = "regular"
PRIORITY_SPOT: Final = "spot"
OS_SKU_UBUNTU: Final = "Ubuntu"
OS_SKU_AZURE_LINUX: Final = "AzureLinux"
NVIDIA: Final = "nvidia"
AMD: Final = "amd"
TRUE: Final = "true"
FALSE: Final = "false"
BOOLEANS: Final = frozenset({TRUE, FALSE})

PRIORITY_OF: Final = {ON_DEMAND: PRIORITY_REGULAR, SPOT: PRIORITY_SPOT}
"""Value of `AKS_PRIORITY` and `AKS_SCALE_SET_PRIORITY` by capacity type."""

INSTANCE_LABELS: Final = frozenset(
    {
        SKU_NAME,
        SKU_FAMILY,
        SKU_SERIES,
        SKU_VERSION,
        SKU_CPU,
        SKU_MEMORY,
        SKU_NETWORKING_ACCELERATED,
        SKU_STORAGE_PREMIUM_CAPABLE,
        SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE,
        SKU_GPU_NAME,
        SKU_GPU_MANUFACTURER,
        SKU_GPU_COUNT,
        AKS_SKU_CPU,
        AKS_SKU_MEMORY,
    }
)
"""Labels that depend on the size alone."""

OFFERING_LABELS: Final = frozenset(
    {SKU_STORAGE_ULTRA_SSD, PLACEMENT_SCOPE, AKS_SCALE_SET_PRIORITY, AKS_PRIORITY}
)
"""Labels that depend on zone and capacity type, besides the core's."""

WELL_KNOWN: Final = frozenset(
    {
        *INSTANCE_LABELS,
        *OFFERING_LABELS,
        AKS_CLUSTER,
        AKS_MODE,
        AKS_OS_SKU,
        AKS_FIPS_ENABLED,
    }
)
"""Labels that NodePools and pods may require; each instance type defines all of them."""

SETTABLE: Final = frozenset(
    {
        AKS_EBPF_DATAPLANE,
        f"{AKS_DOMAIN}/ebpf-host-routing",
        f"{AKS_DOMAIN}/network-policy",
        f"{AKS_DOMAIN}/hostedvm",
    }
)
"""AKS's labels that NodePools may set though no instance type defines them."""

DISK_CSI_ZONE: Final = "topology.disk.csi.azure.com/zone"
"""In the node affinity of volumes that the CSI driver for disks has made; empty without a zone."""

LABEL_CLASSES: Final = LabelClasses(
    well_known=WELL_KNOWN,
    restricted_domains=frozenset({GROUP, AKS_DOMAIN}),
    settable=SETTABLE,
    aliases={DISK_CSI_ZONE: ZONE},
    value_aliases={ZONE: {"": REGIONAL_ZONE}},
    known_values={
        SKU_NETWORKING_ACCELERATED: BOOLEANS,
        SKU_STORAGE_PREMIUM_CAPABLE: BOOLEANS,
        SKU_STORAGE_ULTRA_SSD: BOOLEANS,
        SKU_GPU_MANUFACTURER: frozenset({NVIDIA, AMD}),
        PLACEMENT_SCOPE: frozenset({ZONAL, REGIONAL}),
        AKS_MODE: frozenset({MODE_SYSTEM, MODE_USER}),
        AKS_SCALE_SET_PRIORITY: frozenset({PRIORITY_REGULAR, PRIORITY_SPOT}),
        AKS_PRIORITY: frozenset({PRIORITY_REGULAR, PRIORITY_SPOT}),
        AKS_OS_SKU: frozenset({OS_SKU_UBUNTU, OS_SKU_AZURE_LINUX}),
        AKS_FIPS_ENABLED: frozenset({TRUE}),
    },
)

# Annotations of NodeClaims; the core writes those of the NodeClass hash
IN_PLACE_UPDATE_HASH: Final = f"{GROUP}/in-place-update-hash"
AKS_MACHINE_RESOURCE_ID: Final = f"{GROUP}/aks-machine-resource-id"
"""On NodeClaims of AKS machines, which Karpenter's Azure provider may have left in the cluster."""

TERMINATION_FINALIZER: Final = f"{GROUP}/termination"

# Tags; Azure allows no `/` in their keys, so it is written as `_`
CLUSTER_TAG: Final = f"{GROUP}_cluster"
NODE_POOL_TAG: Final = "karpenter.sh_nodepool"
BILLING_TAG: Final = "compute.aks.billing"
BILLING_TAG_VALUE: Final = "linux"
AKS_MACHINE_NODE_CLAIM_TAG: Final = f"{GROUP}_aksmachine_nodeclaim"
"""On virtual machines of AKS machines, which are not this provider's."""

LONGEST_VALUE: Final = 63
"""Characters in the value of a label (Kubernetes)."""
BAD_ENDS: Final = "-_."
"""Characters that no value ends in."""

# Extended resources
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"


def zone_label(location: str, number: str) -> str:
    """Return the zone label of nodes in an availability zone (`westus2-2`).

    Numbers are logical: two subscriptions may call one datacenter by different numbers.
    """
    return f"{location.lower()}-{number}"


def zone_number(zone: str) -> str:
    """Return the availability zone of a zone label; empty for the regional zone.

    Raises:
        ValueError: the label has no number.
    """
    if zone == REGIONAL_ZONE:
        return ""
    _, _, number = zone.rpartition("-")
    if not number.isdecimal():
        message = f'zone "{zone}" does not end in the number of an availability zone'
        raise ValueError(message)
    return number


def placement_scope(zone: str) -> str:
    """Return `zonal` or `regional`, the placement scope of a zone label."""
    return REGIONAL if zone == REGIONAL_ZONE else ZONAL


def cluster_label_value(node_resource_group: str) -> str:
    """Return the value of the label `kubernetes.azure.com/cluster`, as AKS derives it."""
    value = node_resource_group.replace("(", "-").replace(")", "-")[:LONGEST_VALUE]
    if not value.endswith(tuple(BAD_ENDS)):
        return value
    return f"{value[: LONGEST_VALUE - 1]}z"
