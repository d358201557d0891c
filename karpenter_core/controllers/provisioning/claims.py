"""The object that is written for a planned claim, with the decision it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from karpenter_core.api.labels import CREATED_FOR
from karpenter_core.lifecycle.claim_status import with_metadata
from karpenter_core.lifecycle.nodeclaim.claims import build_node_claim
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, node_pool_hash

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["CAUSE", "DECISION", "Decided", "claim_for", "manifest_of", "name_suffix"]

DECISION: Final = "karpenter.sh/decision-id"
"""Annotation: the id of the pass or command that a claim was created by, as in the logs."""
CAUSE: Final = "karpenter.sh/decision-cause"
"""Annotation: what that pass or command was for."""

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own for generated names: no words
_SUFFIX_LENGTH: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Which decision something is done for."""

    id: str
    cause: str


def name_suffix(unique: str) -> str:
    """Return the end of a claim's name, made of an id that nobody else has."""
    number = int.from_bytes(blake2b(unique.encode(), digest_size=8).digest(), "big")
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        suffix += _ALPHABET[index]
    return suffix


def claim_for(
    planned: PlannedNodeClaim,
    pool: NodePool,
    *,
    unique: str,
    decided: Decided,
    reason: str = "provisioned",
) -> NodeClaim:
    """Return the claim to create: complete, so that nothing is patched before it is launched."""
    claim = build_node_claim(
        planned,
        pool,
        suffix=name_suffix(unique),
        node_pool_hash=node_pool_hash(pool),
        node_pool_hash_version=HASH_VERSION,
    )
    annotations = {
        **claim.metadata.annotations,
        DECISION: decided.id,
        CAUSE: decided.cause,
        CREATED_FOR: reason,
    }
    return with_metadata(claim, annotations=annotations)


def manifest_of(claim: NodeClaim) -> dict[str, Any]:
    """Return a claim as the API server is to be sent it.

    What is at its default is left out: the server knows it, and an empty taint value, for one,
    is something that its schema refuses when spelled out.
    """
    manifest = claim.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True, include={"metadata", "spec"}
    )
    return {"apiVersion": claim.api_version, "kind": claim.kind, **manifest}
