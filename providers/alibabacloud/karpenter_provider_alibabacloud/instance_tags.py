"""Builds the tags that instances are created with.

The process keeps no record of instances: the tags of their creation name their claims
(`claim_tags`). ECS does not name the provisioning group of an instance, so a group is known by the
claims it was made for.

An instance takes 20 tags of 128 characters, so claims are written short: the UID as 22 characters
of base64, and of the name the part that follows the NodePool's.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64Error
from typing import TYPE_CHECKING, Final
from uuid import UUID

from karpenter_core.provider.kit.claim_tags import ClaimTags
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_alibabacloud.labels import (
    CLUSTER_ID_TAG,
    CLUSTER_TAG_PREFIX,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    NODE_CLAIM_TAG,
    NODE_CLAIMS_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
    OWNED,
    RESTRICTED_TAG_PREFIXES,
    RESTRICTED_TAGS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CLAIM_TAGS",
    "cluster_tag",
    "is_owned",
    "owned_tags",
    "restricted_tags",
    "to_tag_list",
]

_UID_CHARACTERS: Final = 22
"""Of the 16 bytes of a UUID in base64 without padding."""
_POOL_AND: Final = "-"
"""Begins an entry whose name is the NodePool's, a hyphen, and what follows."""
_WHOLE: Final = "="
"""Begins an entry with the whole name. Something must begin it: ECS refuses values that begin with
`aliyun` or `acs:`."""
_PLAIN_UID: Final = "!"
"""Begins a UID that is no UUID, and is written as it is."""


def _written(claim: ClaimRef, node_pool: str) -> str:
    """Return name and UID, short; there is no colon and no space in either."""
    prefix = f"{node_pool}-"
    if claim.name.startswith(prefix):
        name = f"{_POOL_AND}{claim.name.removeprefix(prefix)}"
    else:
        name = f"{_WHOLE}{claim.name}"
    return f"{name}:{_short_uid(claim.uid)}"


def _read(entry: str, node_pool: str) -> ClaimRef | None:
    name, colon, uid = entry.rpartition(":")
    whole = _long_uid(uid)
    if not colon or not whole:
        return None
    if name.startswith(_POOL_AND):
        return ClaimRef(name=f"{node_pool}{name}", uid=whole)
    return ClaimRef(name=name.removeprefix(_WHOLE), uid=whole)


def _short_uid(uid: str) -> str:
    try:
        parsed = UUID(uid)
    except ValueError:
        return f"{_PLAIN_UID}{uid}"
    if str(parsed) != uid:
        return f"{_PLAIN_UID}{uid}"
    return urlsafe_b64encode(parsed.bytes).decode().rstrip("=")


def _long_uid(text: str) -> str:
    """Return a UID as Kubernetes writes it; empty for what is none."""
    if text.startswith(_PLAIN_UID):
        return text.removeprefix(_PLAIN_UID)
    if len(text) != _UID_CHARACTERS:
        return ""
    try:
        return str(UUID(bytes=urlsafe_b64decode(f"{text}==")))
    except (NotBase64Error, ValueError):
        return ""


CLAIM_TAGS: Final = ClaimTags(
    key=NODE_CLAIMS_TAG,
    own_key=NODE_CLAIM_TAG,
    pool_key=NODE_POOL_TAG,
    call_key="",
    max_characters=MAX_TAG_LENGTH,
    max_tags=MAX_TAGS,
    max_claim_tags=MAX_TAGS,
    later_tags=2,
    write=_written,
    read=_read,
)
"""Of the instances of a group."""


def cluster_tag(cluster_id: str) -> str:
    """Return the key of the tag that every instance of a cluster has, with the value `owned`."""
    return f"{CLUSTER_TAG_PREFIX}{cluster_id}"


def is_owned(tags: Mapping[str, str], cluster_id: str) -> bool:
    """Whether an instance was launched for a claim of this cluster.

    Nodes of ACK's own node pools have the cluster's tags too, but neither NodePool nor NodeClass.
    """
    return (
        tags.get(cluster_tag(cluster_id)) == OWNED
        and tags.get(CLUSTER_ID_TAG, cluster_id) == cluster_id
        and bool(tags.get(NODE_POOL_TAG) or tags.get(NODE_CLASS_TAG))
    )


def restricted_tags(user_tags: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that users may not set, sorted: those by which instances are known as ours."""
    return tuple(
        sorted(
            key
            for key in user_tags
            if key in RESTRICTED_TAGS or key.startswith(RESTRICTED_TAG_PREFIXES)
        )
    )


def owned_tags(
    user_tags: Mapping[str, str], *, cluster_id: str, node_class: str, node_pool: str = ""
) -> dict[str, str]:
    """Return the tags of everything that is launched: the user's, and over them ours.

    Sorted by key, so that equal inputs make equal requests.
    """
    ours = {
        cluster_tag(cluster_id): OWNED,
        CLUSTER_ID_TAG: cluster_id,
        NODE_CLASS_TAG: node_class,
    }
    if node_pool:
        ours[NODE_POOL_TAG] = node_pool
    theirs = {key: user_tags[key] for key in user_tags if not CLAIM_TAGS.is_key(key)}
    tags = {**theirs, **ours}
    return {key: tags[key] for key in sorted(tags)}


def to_tag_list(tags: Mapping[str, str]) -> list[dict[str, object]]:
    """Return tags as ECS takes them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
