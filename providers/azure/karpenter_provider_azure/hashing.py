"""Hashes the AKSNodeClass fields whose change drifts its nodes.

Tags are not hashed: they are updated on running instances. Images and the Kubernetes version are in
the status; a node drifts when the status no longer has its own.

Karpenter's Azure provider hashes with the version `v3`. A version of our own makes hashes of both
incomparable: when a cluster is taken over, claims get the new hash and no node drifts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.node_class.hashing import hash_fields, significant_value
from karpenter_provider_azure.api.local_dns import LocalDNSMode

if TYPE_CHECKING:
    from karpenter_core.provider.contract import NodeClassHash
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass, AKSNodeClassSpec

__all__ = ["HASH_VERSION", "hash_node_class"]

HASH_VERSION: Final = "py-v1"
"""To be raised when the same NodeClass would get another hash."""

_NOT_HASHED: Final = frozenset(
    {
        "tags",
        "vnet_subnet_id",  # these count with their effect, however they are written
        "fips_mode",
        "kubelet",
        "security",
        "gpu",
        "artifact_streaming",
        "local_dns",
    }
)


def hash_node_class(node_class: AKSNodeClass) -> NodeClassHash:
    """Return the hash of a NodeClass.

    Neither the order of lists counts, nor the case of the subnet's id, nor whether a default, an
    empty value or a switch that is off is written out. `kubelet: {}` counts: it has defaults.
    """
    spec = node_class.spec
    hashed = {
        "spec": significant_value(
            spec.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude=set(_NOT_HASHED)
            )
        ),
        "vnetSubnetID": spec.vnet_subnet_id.lower(),
        "fips": spec.uses_fips,
        "kubelet": significant_value(
            spec.kubelet.model_dump(mode="json", by_alias=True) if spec.kubelet else {}
        ),
        "encryptionAtHost": spec.encryption_at_host,
        "vtpm": spec.uses_vtpm,
        "secureBoot": spec.uses_secure_boot,
        "gpuMode": spec.gpu_mode,
        "artifactStreaming": spec.uses_artifact_streaming,
        "localDNS": significant_value(_local_dns(spec)),
    }
    return hash_fields(hashed, version=HASH_VERSION)


def _local_dns(spec: AKSNodeClassSpec) -> dict[str, object]:
    if spec.local_dns is None or spec.local_dns_mode == LocalDNSMode.DISABLED:
        return {}
    return spec.local_dns.model_dump(mode="json", by_alias=True)
