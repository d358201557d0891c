"""Hashes the NodeClass fields whose change drifts its nodes.

The results of discovery (subnets, groups, images, reservations) are not hashed: a node drifts when
the resources *found* no longer include its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.node_class.hashing import (
    canonical_json,
    hash_fields,
    significant_value,
)

if TYPE_CHECKING:
    from karpenter_core.provider.contract import NodeClassHash
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

__all__ = ["HASH_VERSION", "hash_node_class"]

HASH_VERSION: Final = "py1"
"""To be raised when the same NodeClass would get another hash."""

_NOT_HASHED: Final = frozenset(
    {
        "subnet_selector_terms",
        "security_group_selector_terms",
        "capacity_reservation_selector_terms",
        "ami_selector_terms",
        "ami_family",  # what it resolves to counts
        "ip_prefix_count",
        "kubelet",  # counts as text
    }
)


def hash_node_class(node_class: EC2NodeClass, *, ca_bundle: str = "") -> NodeClassHash:
    """Return the hash of a NodeClass for a cluster whose nodes trust `ca_bundle` (base64).

    Neither the order of lists counts nor whether a false, empty or zero value is written out. Only
    of `spec.kubelet` everything counts but the order of keys.
    """
    hashed = {
        "spec": significant_value(
            node_class.spec.model_dump(mode="json", by_alias=True, exclude=set(_NOT_HASHED)),
            zero_counts=False,
        ),
        "amiFamily": node_class.ami_family.value,
        "caBundle": "".join(ca_bundle.split()),
        "kubelet": canonical_json(node_class.spec.kubelet or None),
    }
    return hash_fields(hashed, version=HASH_VERSION)
