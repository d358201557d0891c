"""Names of labels, annotations, tags and resources.

The strings are the public API of Karpenter's AWS provider (`karpenter.k8s.aws/v1`).
"""

from __future__ import annotations

from typing import Final

from karpenter_core.api.labels import NODE_POOL, WINDOWS_BUILD, ZONE
from karpenter_core.provider.contract import LabelClasses

GROUP: Final = "karpenter.k8s.aws"
COMPATIBILITY_GROUP: Final = "compatibility.karpenter.k8s.aws"

# Labels that follow from the instance type
INSTANCE_CATEGORY: Final = f"{GROUP}/instance-category"
INSTANCE_GENERATION: Final = f"{GROUP}/instance-generation"
INSTANCE_FAMILY: Final = f"{GROUP}/instance-family"
INSTANCE_SIZE: Final = f"{GROUP}/instance-size"
INSTANCE_CAPABILITY_FLEX: Final = f"{GROUP}/instance-capability-flex"
INSTANCE_CPU: Final = f"{GROUP}/instance-cpu"
INSTANCE_CPU_MANUFACTURER: Final = f"{GROUP}/instance-cpu-manufacturer"
INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: Final = f"{GROUP}/instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY: Final = f"{GROUP}/instance-memory"  # MiB
INSTANCE_EBS_BANDWIDTH: Final = f"{GROUP}/instance-ebs-bandwidth"  # Mbps
INSTANCE_NETWORK_BANDWIDTH: Final = f"{GROUP}/instance-network-bandwidth"  # Mbps
INSTANCE_LOCAL_NVME: Final = f"{GROUP}/instance-local-nvme"  # GB
INSTANCE_HYPERVISOR: Final = f"{GROUP}/instance-hypervisor"
INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: Final = (
    f"{GROUP}/instance-encryption-in-transit-supported"
)
NITRO_SANDBOX: Final = f"{GROUP}/nitro-sandbox"
INSTANCE_GPU_NAME: Final = f"{GROUP}/instance-gpu-name"
INSTANCE_GPU_MANUFACTURER: Final = f"{GROUP}/instance-gpu-manufacturer"
INSTANCE_GPU_COUNT: Final = f"{GROUP}/instance-gpu-count"
INSTANCE_GPU_MEMORY: Final = f"{GROUP}/instance-gpu-memory"  # MiB of each
INSTANCE_ACCELERATOR_NAME: Final = f"{GROUP}/instance-accelerator-name"
INSTANCE_ACCELERATOR_MANUFACTURER: Final = f"{GROUP}/instance-accelerator-manufacturer"
INSTANCE_ACCELERATOR_COUNT: Final = f"{GROUP}/instance-accelerator-count"

# Labels that follow from where and how it runs
ZONE_ID: Final = "topology.k8s.aws/zone-id"
INSTANCE_TENANCY: Final = f"{GROUP}/instance-tenancy"
CAPACITY_RESERVATION_ID: Final = f"{GROUP}/capacity-reservation-id"
CAPACITY_RESERVATION_TYPE: Final = f"{GROUP}/capacity-reservation-type"
CAPACITY_RESERVATION_INTERRUPTIBLE: Final = f"{GROUP}/capacity-reservation-interruptible"
PLACEMENT_GROUP_ID: Final = f"{GROUP}/placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = f"{GROUP}/placement-group-partition"

NODE_CLASS: Final = f"{GROUP}/ec2nodeclass"
"""Name of the NodeClass: a label of nodes (put there by the core) and a tag of instances."""

# Values of INSTANCE_TENANCY
TENANCY_DEFAULT: Final = "default"
TENANCY_DEDICATED: Final = "dedicated"

RESERVATION_LABELS: Final = frozenset(
    {CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE, CAPACITY_RESERVATION_INTERRUPTIBLE}
)
"""Known from the launched instance alone, never from what an instance type could be launched into."""

INSTANCE_LABELS: Final = frozenset(
    {
        INSTANCE_CATEGORY,
        INSTANCE_GENERATION,
        INSTANCE_FAMILY,
        INSTANCE_SIZE,
        INSTANCE_CAPABILITY_FLEX,
        INSTANCE_CPU,
        INSTANCE_CPU_MANUFACTURER,
        INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
        INSTANCE_MEMORY,
        INSTANCE_EBS_BANDWIDTH,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_LOCAL_NVME,
        INSTANCE_HYPERVISOR,
        INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
        NITRO_SANDBOX,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
    }
)
"""Known from the instance type alone."""

WELL_KNOWN: Final = frozenset(
    {
        *INSTANCE_LABELS,
        *RESERVATION_LABELS,
        ZONE_ID,
        INSTANCE_TENANCY,
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
        WINDOWS_BUILD,
    }
)
"""Labels that NodePools and pods may ask for; each instance type says what it has of them."""

EBS_CSI_ZONE: Final = "topology.ebs.csi.aws.com/zone"

LABEL_CLASSES: Final = LabelClasses(
    well_known=WELL_KNOWN,
    restricted_domains=frozenset({GROUP}),
    aliases={EBS_CSI_ZONE: ZONE},
    known_values={INSTANCE_TENANCY: frozenset({TENANCY_DEFAULT, TENANCY_DEDICATED})},
)

# Annotations of NodeClaims; the hash of the NodeClass and its version are written by the core
INSTANCE_PROFILE_ANNOTATION: Final = f"{GROUP}/instance-profile-name"
TAGGED_ANNOTATION: Final = f"{GROUP}/tagged"
CLUSTER_NAME_TAGGED_ANNOTATION: Final = f"{COMPATIBILITY_GROUP}/cluster-name-tagged"

TERMINATION_FINALIZER: Final = f"{GROUP}/termination"

# Tags
NAME_TAG: Final = "Name"
NODE_POOL_TAG: Final = NODE_POOL
NODE_CLAIM_TAG: Final = "karpenter.sh/nodeclaim"
NODE_CLASS_TAG: Final = NODE_CLASS
EKS_CLUSTER_NAME_TAG: Final = "eks:eks-cluster-name"
CLUSTER_TAG_PREFIX: Final = "kubernetes.io/cluster/"
"""Followed by the cluster's name; the value is `owned`."""
OWNED: Final = "owned"

RESTRICTED_TAGS: Final = (EKS_CLUSTER_NAME_TAG, NODE_POOL_TAG, NODE_CLAIM_TAG, NODE_CLASS_TAG)
"""Tags by which a resource is known as ours: users may set neither these nor a cluster's."""

# Extended resources
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
HABANA_GAUDI: Final = "habana.ai/gaudi"
NEURON: Final = "aws.amazon.com/neuron"
NEURON_CORE: Final = "aws.amazon.com/neuroncore"
EFA: Final = "vpc.amazonaws.com/efa"
POD_ENI: Final = "vpc.amazonaws.com/pod-eni"
PRIVATE_IPV4_ADDRESS: Final = "vpc.amazonaws.com/PrivateIPv4Address"
NITRO_SANDBOX_RESOURCE: Final = "eks.amazonaws.com/nitro-sandbox"
"""Asked for by pods that need Nitro Enclaves."""
