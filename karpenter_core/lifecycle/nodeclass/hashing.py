"""Static drift of a NodeClass: its hash on the NodeClass, and on the claims launched from it.

The provider computes the hash; the annotations have the names that Karpenter's providers use,
`<group>/<kind>-hash` and `<group>/<kind>-hash-version`, so that a cluster can change hands. Hashes of
different versions are never compared: what another controller wrote makes no node look drifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.lifecycle.claim_status import with_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass

__all__ = [
    "NODE_CLASS_DRIFT",
    "hash_annotations",
    "is_hash_current",
    "node_class_drift",
    "with_migrated_hash",
]

NODE_CLASS_DRIFT: Final = "NodeClassDrift"
"""Reason of the condition Drifted, as Karpenter's providers give it."""


def hash_annotations(node_class: NodeClass, *, value: str, version: str) -> dict[str, str]:
    """Return what a NodeClass, and claims launched from it, are to be annotated with."""
    hash_key, version_key = _keys(node_class)
    return {hash_key: value, version_key: version}


def is_hash_current(node_class: NodeClass, annotations: Mapping[str, str]) -> bool:
    """Tell whether the version that a NodeClass was stamped by is that of these annotations."""
    _, version_key = _keys(node_class)
    return node_class.metadata.annotations.get(version_key) == annotations[version_key]


def with_migrated_hash(
    claim: NodeClaim, node_class: NodeClass, annotations: Mapping[str, str]
) -> NodeClaim:
    """Return a claim stamped by the current hash function; the same object when it is.

    One that has drifted keeps its old hash, so that it stays drifted.
    """
    hash_key, version_key = _keys(node_class)
    if claim.metadata.annotations.get(version_key) == annotations[version_key]:
        return claim
    stamp = dict(annotations)
    if find(claim.status.conditions, DRIFTED) is not None:
        del stamp[hash_key]
    return with_metadata(claim, annotations={**claim.metadata.annotations, **stamp})


def node_class_drift(claim: NodeClaim, node_class: NodeClass) -> str:
    """Return the reason why a claim has drifted from its NodeClass; empty when it has not."""
    ours, theirs = claim.metadata.annotations, node_class.metadata.annotations
    hash_key, version_key = _keys(node_class)
    if not all(key in stamp for key in (hash_key, version_key) for stamp in (ours, theirs)):
        return ""
    if ours[version_key] != theirs[version_key] or ours[hash_key] == theirs[hash_key]:
        return ""
    return NODE_CLASS_DRIFT


def _keys(node_class: NodeClass) -> tuple[str, str]:
    resource = type(node_class).resource
    key = f"{resource.group}/{resource.kind.lower()}-hash"
    return key, f"{key}-version"
