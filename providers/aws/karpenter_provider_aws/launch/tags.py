"""Tags: what everything we make carries, and whose an instance of a fleet is.

Nothing about instances is kept in the process, so tags at creation are the memory (`claim_tags`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.claim_tags import ClaimTags
from karpenter_core.provider.recent_launches import ClaimRef
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
    from collections.abc import Iterable, Mapping

    from types_boto3_ec2.type_defs import TagTypeDef

__all__ = [
    "CLAIM_TAGS",
    "FLEET_ID_TAG",
    "from_tag_list",
    "owned_tags",
    "restricted_tags",
    "to_tag_list",
]

FLEET_ID_TAG: Final = "aws:ec2:fleet-id"
"""Put on instances by EC2."""

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
    theirs = {key: user_tags[key] for key in user_tags if not CLAIM_TAGS.is_key(key)}
    tags = {**theirs, **ours}
    return {key: tags[key] for key in sorted(tags)}


def to_tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Return tags as EC2 takes them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def from_tag_list(tags: Iterable[TagTypeDef]) -> dict[str, str]:
    """Return tags as EC2 gives them, by key."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in tags}
