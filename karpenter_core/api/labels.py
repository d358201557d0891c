"""Names in the API: groups, labels, annotations, taints and finalizers.

The strings are Karpenter's public API (`karpenter.sh/v1`) and Kubernetes' well-known names.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "karpenter.sh"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Labels
NODE_POOL: Final = "karpenter.sh/nodepool"
INITIALIZED: Final = "karpenter.sh/initialized"
REGISTERED: Final = "karpenter.sh/registered"
DO_NOT_SYNC_TAINTS: Final = "karpenter.sh/do-not-sync-taints"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
HOSTNAME: Final = "kubernetes.io/hostname"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"
EXCLUDE_BALANCERS: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

# Values of CAPACITY_TYPE
ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RESERVED: Final = "reserved"
CAPACITY_TYPES: Final = (RESERVED, SPOT, ON_DEMAND)

# Annotations
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DO_NOT_EVICT: Final = "karpenter.sh/do-not-evict"  # of v1alpha5, still on many pods
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""Of nodes that Cluster Autoscaler keeps."""
NODE_POOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODE_POOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
PAUSE_DISRUPTION: Final = "karpenter.sh/pause-disruption"  # ours; of NodePools
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
DRIFT: Final = "karpenter.sh/drift"
"""On a NodePool: whether drift is acted on. Ours; the reference has no such annotation."""
SAVINGS_FLOOR: Final = "karpenter.sh/savings-floor"
"""On a NodePool: the least that a consolidation must save, `10%` or an amount per hour. Ours."""
CREATED_FOR: Final = "karpenter.sh/created-for"
"""On a NodeClaim: why it was created, such as `provisioned`, `underutilized` or `drifted`. Ours."""
SPOT_SHARE: Final = "karpenter.sh/spot-share"
"""On a NodePool: the percentage of its nodes that should be spot, `70%`. Ours."""
SCHEDULES: Final = "karpenter.sh/schedules"
"""On a NodePool: windows of time with other limits, replicas or consolidation, in JSON. Ours."""
EXPENDABLE: Final = "karpenter.sh/expendable"
"""On a pod: `true` if no node may be launched, kept or replaced for it. Ours."""
SURGE_MOVE: Final = "karpenter.sh/surge-move"
"""On a pod: `true` if a rollout restart is to replace it before a drain evicts it. Ours."""
VPA_OBSERVED: Final = "vpaObservedContainers"
"""On a pod: set by the VerticalPodAutoscaler's admission controller when the pod was created."""
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""Label of the pods of a Deployment: the hash of their template, with which their ReplicaSet's name ends."""
RETURN_AFTER: Final = "karpenter.sh/return-after"
"""On a NodePool: age at which a second choice is replaced by the first choice. Ours."""
RETURN_BUDGET: Final = "karpenter.sh/return-budget"
"""On a NodePool: how many nodes may be disrupted at once for that, `1` or `10%`. Ours."""

PRICE_PER_NODE: Final = "karpenter.sh/price-per-node"
"""On a NodeOverlay: what each selected node costs per hour beside its price. Ours."""
PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
"""On a NodeClaim: an overlay has changed the prices that it was planned by."""
CAPACITY_OVERLAY_APPLIED: Final = "karpenter.sh/capacity-overlay-applied"
"""On a NodeClaim: an overlay has set resources of the instance types that it was planned for."""

# Value of DRIFT
DETECT_ONLY: Final = "detect-only"
"""Claims get the condition Drifted, but no node is disrupted for it."""

REQUESTED_DRA_DRIVERS: Final = "karpenter.sh/requested-dra-drivers"
"""Annotation of claims: the drivers that have to publish devices on the node, with commas."""

# Taints (identified by key and effect) and the finalizer
DISRUPTED_TAINT: Final = "karpenter.sh/disrupted"
UNREGISTERED_TAINT: Final = "karpenter.sh/unregistered"
TERMINATION_FINALIZER: Final = "karpenter.sh/termination"

# Resource names
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
NODES: Final = "nodes"  # a resource of ours: counts nodes in limits and usage
PRICE_PER_HOUR: Final = "karpenter.sh/price-per-hour"
"""In limits of NodePools and of CapacityQuotas: the price of the nodes per hour, in the reporting
currency. Ours."""

WELL_KNOWN: Final = frozenset(
    {NODE_POOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD},
)
"""Labels the core knows every node to have; providers add theirs (`karpenter_classify_labels`)."""

RESTRICTED_DOMAIN: Final = "karpenter.sh"

ALIASES: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}
"""Deprecated keys and the canonical ones they stand for."""


def node_class_label(group: str, kind: str) -> str:
    """Return the label that carries the NodeClass' name on claims and nodes."""
    return f"{group}/{kind.lower()}"
