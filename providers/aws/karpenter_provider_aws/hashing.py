"""Hashes the NodeClass fields whose change drifts its nodes.

The results of discovery (subnets, groups, images, reservations) are not hashed: a node drifts when
the resources *found* no longer include its own. Other implementations of Karpenter hash Go structs,
which cannot be done elsewhere; this hash has a version of its own, and hashes of different versions
are never compared. So taking over a cluster drifts no node.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.contract import NodeClassHash

if TYPE_CHECKING:
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
_DIGITS: Final = 16


def hash_node_class(node_class: EC2NodeClass, *, ca_bundle: str = "") -> NodeClassHash:
    """Return the hash of a NodeClass for a cluster whose nodes trust `ca_bundle` (base64).

    Neither the order of lists counts nor whether a false, empty or zero value is written out. Only
    of `spec.kubelet` everything counts but the order of keys.
    """
    hashed = {
        "spec": _significant(
            node_class.spec.model_dump(mode="json", by_alias=True, exclude=set(_NOT_HASHED))
        ),
        "amiFamily": node_class.ami_family.value,
        "caBundle": "".join(ca_bundle.split()),
        "kubelet": _canonical(node_class.spec.kubelet or None),
    }
    digest = hashlib.sha256(_canonical(hashed).encode())
    return NodeClassHash(value=digest.hexdigest()[:_DIGITS], version=HASH_VERSION)


def _significant(value: object) -> object:
    """Return a JSON value without what means nothing, lists in an order of their own."""
    if isinstance(value, dict):
        below = {
            name: _significant(item) for name, item in cast("dict[str, object]", value).items()
        }
        return {name: item for name, item in below.items() if item}
    if isinstance(value, list):
        items = {_canonical(_significant(item)) for item in cast("list[object]", value)}
        return sorted(items)
    return value


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
