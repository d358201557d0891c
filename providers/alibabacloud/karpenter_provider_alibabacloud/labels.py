"""Names of labels, annotations, tags and resources.

The strings are the public API of Karpenter's Alibaba Cloud provider (`karpenter.k8s.alibabacloud`);
what it does not have is marked as ours.
"""

from __future__ import annotations

from typing import Final

from karpenter_core.api.labels import NODE_POOL, WINDOWS_BUILD, ZONE
from karpenter_core.provider.contract import LabelClasses

GROUP: Final = "karpenter.k8s.alibabacloud"

# Labels that follow from the instance type
INSTANCE_CATEGORY: Final = f"{GROUP}/instance-category"
INSTANCE_FAMILY: Final = f"{GROUP}/instance-family"
INSTANCE_GENERATION: Final = f"{GROUP}/instance-generation"
INSTANCE_SIZE: Final = f"{GROUP}/instance-size"
INSTANCE_CPU: Final = f"{GROUP}/instance-cpu"
INSTANCE_CPU_MODEL: Final = f"{GROUP}/instance-cpu-model"
INSTANCE_MEMORY: Final = f"{GROUP}/instance-memory"  # MiB
INSTANCE_GPU_NAME: Final = f"{GROUP}/instance-gpu-name"
INSTANCE_GPU_MANUFACTURER: Final = f"{GROUP}/instance-gpu-manufacturer"
INSTANCE_GPU_COUNT: Final = f"{GROUP}/instance-gpu-count"
INSTANCE_GPU_MEMORY: Final = f"{GROUP}/instance-gpu-memory"  # GiB of each

# The same; ours
INSTANCE_LOCAL_DISK_CATEGORY: Final = f"{GROUP}/instance-local-disk-category"
INSTANCE_LOCAL_DISK_SIZE: Final = f"{GROUP}/instance-local-disk-size"  # GiB, all disks together
INSTANCE_NETWORK_BANDWIDTH: Final = f"{GROUP}/instance-network-bandwidth"  # Mbit/s
INSTANCE_FAMILY_LEVEL: Final = f"{GROUP}/instance-family-level"
"""`EntryLevel`, `EnterpriseLevel` or `CreditEntryLevel`."""
INSTANCE_NVME: Final = f"{GROUP}/instance-nvme"

# Labels that follow from where and how it runs
ZONE_ID: Final = "topology.k8s.alibabacloud/zone-id"
CAPACITY_RESERVATION_ID: Final = f"{GROUP}/capacity-reservation-id"  # ours

NODE_CLASS: Final = f"{GROUP}/ecsnodeclass"
"""Name of the NodeClass: a label of nodes (put there by the core) and a tag of instances."""

RESERVATION_LABELS: Final = frozenset({CAPACITY_RESERVATION_ID})
"""Known from the launched instance alone, never from what an instance type could be launched into."""

INSTANCE_LABELS: Final = frozenset(
    {
        INSTANCE_CATEGORY,
        INSTANCE_FAMILY,
        INSTANCE_GENERATION,
        INSTANCE_SIZE,
        INSTANCE_CPU,
        INSTANCE_CPU_MODEL,
        INSTANCE_MEMORY,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_LOCAL_DISK_CATEGORY,
        INSTANCE_LOCAL_DISK_SIZE,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_FAMILY_LEVEL,
        INSTANCE_NVME,
    }
)
"""Known from the instance type alone."""

WELL_KNOWN: Final = frozenset({*INSTANCE_LABELS, *RESERVATION_LABELS, ZONE_ID, WINDOWS_BUILD})
"""Labels that NodePools and pods may ask for; each instance type says what it has of them."""

DISK_CSI_ZONE: Final = "topology.diskplugin.csi.alibabacloud.com/zone"
"""In the node affinity of volumes that the CSI driver for disks has made."""

LABEL_CLASSES: Final = LabelClasses(
    well_known=WELL_KNOWN,
    restricted_domains=frozenset({GROUP}),
    aliases={DISK_CSI_ZONE: ZONE},
)

# Labels that ACK's nodes have, and the switch that makes ACK take a node for one of its own
ACK_NODE_LABEL: Final = "k8s.aliyun.com"
ACK_CLUSTER_LABEL: Final = "ack.aliyun.com"

# Tags
NAME_TAG: Final = "Name"
NODE_POOL_TAG: Final = NODE_POOL
NODE_CLAIM_TAG: Final = "karpenter.sh/nodeclaim"
NODE_CLASS_TAG: Final = NODE_CLASS
CLUSTER_ID_TAG: Final = "ecs:ecs-cluster-id"
CLUSTER_NAME_TAG: Final = "ecs:ecs-cluster-name"
PROVISIONING_GROUP_TAG: Final = f"{GROUP}/autoprovisiongroup"
"""On a provisioning group itself; the value is `true`."""
NODE_CLAIMS_TAG: Final = f"{GROUP}/nodeclaims"
"""The claims that an instance was launched for, with its siblings; further ones have `-1`, `-2`
and so on behind it. Ours."""
CLUSTER_TAG_PREFIX: Final = "kubernetes.io/cluster/"
"""Followed by the cluster's id; the value is `owned`."""
OWNED: Final = "owned"

RESTRICTED_TAGS: Final = (
    CLUSTER_NAME_TAG,
    CLUSTER_ID_TAG,
    NODE_POOL_TAG,
    NODE_CLAIM_TAG,
    NODE_CLASS_TAG,
)
"""Tags by which a resource is known as ours: users may set neither these nor a cluster's."""
RESTRICTED_TAG_PREFIXES: Final = (CLUSTER_TAG_PREFIX.rstrip("/"), NODE_CLAIMS_TAG)

# Limits of ECS (API reference of TagResources)
MAX_TAGS: Final = 20
"""Tags that an instance can have, ours included."""
MAX_USER_TAGS: Final = 13
"""Largest number of tags of users: cluster, cluster id, NodePool, NodeClass, NodeClaim and Name are ours,
and one is kept in reserve."""
MAX_TAG_LENGTH: Final = 128
"""Characters in a key, and in a value."""

# Extended resources
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
ENI: Final = "aliyun/eni"
