"""Builds tags of virtual machines, network interfaces and extensions (pure).

A virtual machine is found by its name, which follows from that of its NodeClaim, and belongs to this cluster by
its tags. Tag keys contain no slash: it is written as an underscore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_provider_azure.labels import (
    AKS_MACHINE_NODE_CLAIM_TAG,
    BILLING_TAG,
    BILLING_TAG_VALUE,
    CLUSTER_TAG,
    GROUP,
    NODE_POOL_TAG,
)
from karpenter_provider_azure.resource_ids import claim_name as claim_name_in
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLAIM_NAME_TAG",
    "CLAIM_UID_TAG",
    "MAX_TAGS",
    "foreign_reason",
    "instance_tags",
    "tag_key",
]

MAX_TAGS: Final = 50
"""Tags of a resource (Azure Resource Manager)."""
CLAIM_UID_TAG: Final = f"{GROUP}_nodeclaim-uid"
"""The UID of the claim. Virtual machines that Karpenter's own provider has made do not have it."""

CLAIM_NAME_TAG: Final = f"{GROUP}_nodeclaim"
"""The name of the claim, if it is not in the name of the virtual machine: it is long, or has dots."""

_OWN_KEYS: Final = frozenset(
    {CLUSTER_TAG, NODE_POOL_TAG, CLAIM_UID_TAG, CLAIM_NAME_TAG, AKS_MACHINE_NODE_CLAIM_TAG}
)
"""Keys by which virtual machines are assigned; those of users count for nothing."""


def tag_key(key: str) -> str:
    """Return a key as Azure permits it: without slashes."""
    return key.replace("/", "_")


def instance_tags(
    class_tags: Mapping[str, str],
    *,
    additional_tags: Mapping[str, str],
    cluster: str,
    claim_uid: str,
    node_pool: str = "",
    claim_name: str = "",
) -> dict[str, str]:
    """Return all tags of a virtual machine, sorted by key, so that equal inputs make equal requests.

    The tags of the NodeClass (`spec.tags`) replace additional ones (`ADDITIONAL_TAGS`), and the managed
    tags replace both; users cannot add tags by which virtual machines are assigned. Keys are compared as
    Azure does: ignoring case.
    """
    managed = {CLUSTER_TAG: cluster, CLAIM_UID_TAG: claim_uid, BILLING_TAG: BILLING_TAG_VALUE}
    if node_pool:
        managed[NODE_POOL_TAG] = node_pool
    if claim_name_in(vm_name(claim_name)) != claim_name:
        managed[CLAIM_NAME_TAG] = claim_name
    merged: dict[str, tuple[str, str]] = {}
    for tags in (additional_tags, class_tags):
        for key, value in tags.items():
            written = tag_key(key)
            if written.lower() not in _OWN_KEYS:
                merged[written.lower()] = (written, value)
    merged |= {key.lower(): (key, value) for key, value in managed.items()}
    return dict(sorted(merged.values()))


def foreign_reason(tags: Mapping[str, str], *, cluster: str, claim_uid: str) -> str:
    """Return why a virtual machine is not this claim's by its tags; empty if it is.

    One without the tag of a claim is the claim's: it has the claim's name.
    """
    own = {key.lower(): value for key, value in tags.items()}
    if own.get(CLUSTER_TAG) != cluster:
        return _tag_text(CLUSTER_TAG, own.get(CLUSTER_TAG))
    if own.get(CLAIM_UID_TAG, claim_uid) != claim_uid:
        return _tag_text(CLAIM_UID_TAG, own[CLAIM_UID_TAG])
    if AKS_MACHINE_NODE_CLAIM_TAG in own:
        return _tag_text(AKS_MACHINE_NODE_CLAIM_TAG, own[AKS_MACHINE_NODE_CLAIM_TAG])
    return ""


def _tag_text(key: str, value: str | None) -> str:
    return f"it does not have the tag {key}" if value is None else f"it has the tag {key}={value}"
