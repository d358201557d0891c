"""Builds the manifest of a planned claim, annotated with its decision."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CREATED_FOR
from karpenter_core.lifecycle.claim_status import with_metadata
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import (
    build_node_claim,
    claim_name,
    overlay_annotations,
)
from karpenter_core.lifecycle.nodeclass.hashing import stored_hash
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, node_pool_hash

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.overlays import OverlaidTypes
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = [
    "CAUSE",
    "DECISION",
    "DecisionRef",
    "manifest_of",
    "name_suffix",
    "new_claim",
    "slot_ids",
]

DECISION: Final = "karpenter.sh/decision-id"
"""Annotation: the id of the pass or command that created the claim, as in the logs."""
CAUSE: Final = "karpenter.sh/decision-cause"
"""Annotation: the cause of that pass or command."""

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own for generated names: no words
_SUFFIX_LENGTH: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRef:
    """The id and cause of a decision."""

    id: str
    cause: str


def name_suffix(unique: str) -> str:
    """Return the suffix of a claim's name, derived from a unique id."""
    number = int.from_bytes(blake2b(unique.encode(), digest_size=8).digest(), "big")
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        suffix += _ALPHABET[index]
    return suffix


def slot_ids(pool: NodePool, claims: Container[str], in_flight: Container[str]) -> Iterator[str]:
    """Yield the ids of a static pool's free slots, lowest first; a claim's name derives from one.

    Slots are numbered from 0 in each pool. Two processes that act on the same cluster at once choose
    the same slots and so the same names, and the API server accepts each name once. `claims` has the
    names of existing claims, `in_flight` the ids of slots whose claims are being created; the slot
    of a claim that is gone is used again.
    """
    given: set[str] = set()
    for slot in count():
        unique = f"{pool.uid}/{slot}"
        name = claim_name(pool.name, name_suffix(unique))
        if name not in claims and unique not in in_flight and name not in given:
            given.add(name)
            yield unique


def new_claim(
    planned: PlannedNodeClaim,
    pool: NodePool,
    *,
    unique: str,
    decision_ref: DecisionRef,
    reason: str,
    annotations: Mapping[str, str] | None,
    overlaid: OverlaidTypes | None,
    node_class: NodeClass | None = None,
) -> NodeClaim:
    """Return the complete claim to create, so that it needs no patch before its launch.

    `annotations` are added to those that every claim has. The hash of its NodeClass is that of its
    launch; the one at its creation counts if nothing better is known (`nodeclaim.launch_stamps`).
    """
    claim = build_node_claim(
        planned,
        pool,
        suffix=name_suffix(unique),
        node_pool_hash=node_pool_hash(pool),
        node_pool_hash_version=HASH_VERSION,
    )
    all_annotations = {
        **claim.metadata.annotations,
        **({} if node_class is None else stored_hash(node_class)),
        **(annotations or {}),
        **({} if overlaid is None else overlay_annotations(planned.instance_types, overlaid)),
        DECISION: decision_ref.id,
        CAUSE: decision_ref.cause,
        CREATED_FOR: reason,
    }
    return with_metadata(claim, annotations=all_annotations)


def manifest_of(claim: NodeClaim) -> dict[str, object]:
    """Return a claim as the manifest to send to the API server.

    Defaults are left out: the schema rejects some of them when they are explicit, such as an empty
    taint value.
    """
    manifest = claim.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True, include={"metadata", "spec"}
    )
    return {"apiVersion": claim.api_version, "kind": claim.kind, **manifest}
