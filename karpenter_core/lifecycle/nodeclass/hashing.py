"""Detects static drift by the hashes of a NodeClass and of its claims.

The provider computes the hash. The annotations have the names that Karpenter's providers use,
`<group>/<kind>-hash` and `<group>/<kind>-hash-version`, so that a cluster can move from one controller
to the other. Hashes of different versions are never compared, so such a move causes no drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.lifecycle.claim_status import with_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass

__all__ = [
    "NODE_CLASS_DRIFT",
    "claim_hash",
    "has_hash",
    "hash_annotations",
    "is_hash_current",
    "node_class_drift",
    "stored_hash",
    "with_migrated_hash",
]

NODE_CLASS_DRIFT: Final = "NodeClassDrift"
"""Reason of the condition Drifted, as Karpenter's providers give it."""


def hash_annotations(node_class: NodeClass, *, value: str, version: str) -> dict[str, str]:
    """Return the hash annotations of a NodeClass and of the claims launched from it."""
    hash_key, version_key = _keys(node_class)
    return {hash_key: value, version_key: version}


def stored_hash(node_class: NodeClass) -> dict[str, str]:
    """Return the hash annotations that a NodeClass has; none if it is without."""
    return _hash_in(node_class.metadata.annotations, node_class)


def claim_hash(claim: NodeClaim, node_class: NodeClass) -> dict[str, str]:
    """Return the hash annotations that a claim has of its NodeClass; none if it is without."""
    return _hash_in(claim.metadata.annotations, node_class)


def has_hash(node_class: NodeClass) -> bool:
    """Tell whether the NodeClass has a hash that its claims are compared with."""
    return _keys(node_class)[0] in node_class.metadata.annotations


def is_hash_current(node_class: NodeClass, annotations: Mapping[str, str]) -> bool:
    """Tell whether the NodeClass has a hash of the same version as these annotations."""
    _, version_key = _keys(node_class)
    return node_class.metadata.annotations.get(version_key) == annotations[version_key]


def with_migrated_hash(
    claim: NodeClaim, node_class: NodeClass, annotations: Mapping[str, str]
) -> NodeClaim:
    """Return the claim with a hash of the current version; the same object when it has one.

    A drifted claim keeps its old hash, so that it stays drifted.
    """
    hash_key, version_key = _keys(node_class)
    if claim.metadata.annotations.get(version_key) == annotations[version_key]:
        return claim
    migrated = dict(annotations)
    if find_condition(claim.status.conditions, DRIFTED) is not None:
        del migrated[hash_key]
    return with_metadata(claim, annotations={**claim.metadata.annotations, **migrated})


def node_class_drift(claim: NodeClaim, node_class: NodeClass) -> str:
    """Return the reason why a claim has drifted from its NodeClass; empty when it has not."""
    ours, theirs = claim.metadata.annotations, node_class.metadata.annotations
    hash_key, version_key = _keys(node_class)
    if not all(
        key in annotations for key in (hash_key, version_key) for annotations in (ours, theirs)
    ):
        return ""
    if ours[version_key] != theirs[version_key] or ours[hash_key] == theirs[hash_key]:
        return ""
    return NODE_CLASS_DRIFT


def _hash_in(annotations: Mapping[str, str], node_class: NodeClass) -> dict[str, str]:
    keys = _keys(node_class)
    if not all(key in annotations for key in keys):
        return {}
    return {key: annotations[key] for key in keys}


def _keys(node_class: NodeClass) -> tuple[str, str]:
    resource = type(node_class).resource
    key = f"{resource.group}/{resource.kind.lower()}-hash"
    return key, f"{key}-version"
