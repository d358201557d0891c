"""Computes the labels that the kubelet of a node registers it with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_SYNC_TAINTS
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.node_registration import is_settable_by_kubelet
from karpenter_provider_azure import labels
from karpenter_provider_azure.kubernetes_versions import KubernetesVersion
from karpenter_provider_azure.labels import placement_scope

if TYPE_CHECKING:
    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration

__all__ = ["node_labels"]

_STATELESS_CNI_SINCE: Final = KubernetesVersion(1, 34)
_CILIUM: Final = "cilium"
_NEVER_ON_NODES: Final = frozenset({labels.SKU_HYPERV_GENERATION})


def node_labels(boot: BootConfiguration) -> dict[str, str]:
    """Return the labels of a node, sorted by key.

    Labels of AKS yield to those of the NodeClaim, to labels that its requirements or those of the
    instance type fix, and to those of the offering. The kubelet refuses to start with labels of
    Kubernetes' domains that it may not set; these are left out, and the core adds them later.

    Raises:
        NodeClassNotReadyError: version, image family or subnet of the NodeClass is unusable.
    """
    claim = boot.target.node_claim
    merged = (
        _aks_labels(boot)
        | _network_labels(boot)
        | claim.metadata.labels
        | _fixed_labels(Requirements.from_specs(claim.spec.requirements))
        | _fixed_labels(boot.target.requirements)
        | {
            CAPACITY_TYPE: boot.target.capacity_type,
            labels.PLACEMENT_SCOPE: placement_scope(boot.target.zone),
            labels.SKU_STORAGE_ULTRA_SSD: labels.TRUE
            if boot.target.uses_ultra_ssd
            else labels.FALSE,
        }
    )
    return {
        key: merged[key]
        for key in sorted(merged)
        if is_settable_by_kubelet(key) and key not in _NEVER_ON_NODES
    }


def _aks_labels(boot: BootConfiguration) -> dict[str, str]:
    settings, spec, family = boot.cluster.settings, boot.target.node_class.spec, boot.family
    priority = labels.PRIORITY_OF[boot.target.capacity_type]
    found = {
        labels.AKS_ROLE: "agent",
        labels.AKS_CLUSTER: labels.cluster_label_value(settings.node_resource_group),
        labels.AKS_KUBELET_IDENTITY_CLIENT_ID: settings.kubelet_identity_client_id,
        labels.AKS_MODE: labels.MODE_USER,
        labels.AKS_PRIORITY: priority,
        labels.AKS_SCALE_SET_PRIORITY: priority,
        labels.AKS_OS_SKU: family.os_sku,
        labels.AKS_OS_SKU_REQUESTED: spec.image_family,
        labels.AKS_OS_SKU_EFFECTIVE: family.value,
        labels.AKS_FIPS_ENABLED: labels.TRUE if spec.uses_fips else "",
        labels.AKS_LOCAL_DNS_STATE: "enabled" if boot.has_local_dns else "disabled",
        labels.AKS_ARTIFACT_STREAMING_ENABLED: labels.TRUE if boot.streams_artifacts else "",
        DO_NOT_SYNC_TAINTS: labels.TRUE,
    }
    return {key: value for key, value in found.items() if value}


def _network_labels(boot: BootConfiguration) -> dict[str, str]:
    settings = boot.cluster.settings
    found: dict[str, str] = {}
    if settings.is_overlay:
        is_stateless = boot.kubernetes_version >= _STATELESS_CNI_SINCE
        found |= {
            labels.AKS_NETWORK_SUBNET: boot.subnet.name[: labels.LONGEST_VALUE].rstrip(
                labels.BAD_ENDS
            ),
            labels.AKS_NODE_NETWORK_VNET_GUID: boot.cluster.vnet_guid,
            labels.AKS_AZURE_CNI_OVERLAY: labels.TRUE,
            labels.AKS_POD_NETWORK_TYPE: "overlay",
            labels.AKS_NETWORK_STATELESS_CNI: labels.TRUE if is_stateless else labels.FALSE,
        }
    if settings.network_dataplane == _CILIUM:
        found[labels.AKS_EBPF_DATAPLANE] = _CILIUM
    return found


def _fixed_labels(requirements: Requirements) -> dict[str, str]:
    """Return the labels for which requirements leave one value."""
    found = {key: requirements.single_value(key) for key in requirements.keys()}  # noqa: SIM118 - not a mapping
    return {key: value for key, value in found.items() if value}
