"""Builds the tags that instances and other resources are created with.

The process keeps no record of instances: the tags of their creation name their claims
(`claim_tags`).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.claim_tags import ClaimTags
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_aws.labels import (
    CLUSTER_TAG_PREFIX,
    EKS_CLUSTER_NAME_TAG,
    GROUP,
    NODE_CLAIM_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
    OWNED,
    RESTRICTED_TAGS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from types_boto3_ec2.type_defs import TagTypeDef

__all__ = [
    "CLAIM_TAGS",
    "FLEET_ID_TAG",
    "INDEX_TAG",
    "claim_batches",
    "claim_tags",
    "from_tag_list",
    "index_pattern",
    "owned_tags",
    "restricted_tags",
    "to_tag_list",
]

FLEET_ID_TAG: Final = "aws:ec2:fleet-id"
"""Put on instances by EC2."""

INDEX_TAG: Final = f"{GROUP}/nodeclaim-index"
"""Short codes of all claims of a fleet, in one value: EC2 finds instances by the value of a named tag, and
the claims themselves are spread over up to ten tags."""
_CODE_BYTES: Final = 3
"""Of the digest of a UID: four characters. Calls with the same code by chance differ in their claims."""
_MOST_CLAIMS: Final = 51
"""Codes that one value has room for."""

_CLUSTER_TAG: Final = re.compile(r"kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*")


def _written(claim: ClaimRef, _: str) -> str:
    """Return `name:uid`; neither has a colon or a space in it."""
    return f"{claim.name}:{claim.uid}"


def _read(entry: str, _: str) -> ClaimRef | None:
    name, colon, uid = entry.rpartition(":")
    return ClaimRef(name=name, uid=uid) if colon and uid else None


CLAIM_TAGS: Final = ClaimTags(
    key=f"{GROUP}/nodeclaims",
    own_key=NODE_CLAIM_TAG,
    pool_key=NODE_POOL_TAG,
    call_key=FLEET_ID_TAG,
    max_characters=256,
    max_tags=50,
    max_claim_tags=10,
    later_tags=2,
    write=_written,
    read=_read,
)
"""Of the instances of a fleet."""


def claim_tags(claims: Collection[ClaimRef], *, other_tags: int) -> dict[str, str]:
    """Return the tags that tell whose the instances of a fleet for these claims are.

    Raises:
        ClaimsTooManyError: they do not fit; those of a batch of `claim_batches` do.
    """
    index = "".join(f":{_code(uid)}" for uid in sorted(claim.uid for claim in claims))
    return {**CLAIM_TAGS.tags_for(claims, other_tags=other_tags + 1), INDEX_TAG: f"{index}:"}


def claim_batches(
    claims: Iterable[ClaimRef], *, other_tags: int
) -> tuple[tuple[ClaimRef, ...], ...]:
    """Cut claims into as few fleets as their tags have room for."""
    return CLAIM_TAGS.batches(claims, other_tags=other_tags + 1, max_claims=_MOST_CLAIMS)


def index_pattern(uid: str) -> str:
    """Return the value by which a filter on `INDEX_TAG` finds the instances of a claim's fleets."""
    return f"*:{_code(uid)}:*"


def _code(uid: str) -> str:
    """Return four characters for a UID, none of which means anything to a filter."""
    return urlsafe_b64encode(sha256(uid.encode()).digest()[:_CODE_BYTES]).decode()


def restricted_tags(user_tags: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that users may not set, sorted: those by which resources are known as ours."""
    return tuple(
        sorted(key for key in user_tags if key in RESTRICTED_TAGS or _CLUSTER_TAG.fullmatch(key))
    )


def owned_tags(
    user_tags: Mapping[str, str], *, cluster: str, node_class: str, node_pool: str = ""
) -> dict[str, str]:
    """Return the tags of everything that is made: the user's, and over them ours.

    Sorted by key, so that equal inputs make equal requests.
    """
    ours = {
        f"{CLUSTER_TAG_PREFIX}{cluster}": OWNED,
        EKS_CLUSTER_NAME_TAG: cluster,
        NODE_CLASS_TAG: node_class,
    }
    if node_pool:
        ours[NODE_POOL_TAG] = node_pool
    theirs = {
        key: user_tags[key] for key in user_tags if not (CLAIM_TAGS.is_key(key) or key == INDEX_TAG)
    }
    tags = {**theirs, **ours}
    return {key: tags[key] for key in sorted(tags)}


def to_tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Return tags as EC2 takes them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def from_tag_list(tags: Iterable[TagTypeDef]) -> dict[str, str]:
    """Return tags as EC2 gives them, by key."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in tags}
