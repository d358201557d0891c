"""Whose an instance is: tags that it has from the moment it exists.

Nothing about instances is kept in the process, so tags at creation are the memory. A provisioning group
is made for several claims at once, and which of its instances is whose cannot be said in the request:
all claims are written on all instances, and an order that anybody can repeat deals one to the other.
ECS does not tell the group of an instance, so a group is known by the claims it was made for.

An instance takes 20 tags of 128 characters, so claims are written short: the UID as 22 characters of
base64, and of the name what follows the NodePool's. That bounds the size of a group (`group_batches`).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64Error
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from karpenter_core.provider.known_owners import GroupMember
from karpenter_core.provider.known_owners import deal as dealt_to_claims
from karpenter_core.provider.recent_launches import ClaimRef
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
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "MOST_MACHINES",
    "ClaimRef",
    "ClaimsTooManyError",
    "TaggedInstance",
    "claims_of",
    "cluster_tag",
    "deal",
    "group_batches",
    "group_tags",
    "is_owned",
    "owned_tags",
    "owners_of",
    "restricted_tags",
    "to_tag_list",
]

_CLAIMS_KEY: Final = re.compile(rf"{re.escape(NODE_CLAIMS_TAG)}(?:-\d+)?")
_GROUPS_KEPT: Final = 512
"""All instances of a group have the same tags, and each listing brings them again: they are read once."""
MOST_MACHINES: Final = 100
"""Of one call: RunInstances takes no more."""
_LATER_TAGS: Final = 2
"""Name and the claim's own tag, which come when the node has registered."""
_UID_CHARACTERS: Final = 22
"""Of the 16 bytes of a UUID in base64 without padding."""
_POOL_AND: Final = "-"
"""Begins an entry whose name is the NodePool's, a hyphen, and what follows."""
_WHOLE: Final = "="
"""Begins an entry with the whole name. Something must begin it: ECS refuses values that begin with
`aliyun` or `acs:`."""
_PLAIN_UID: Final = "!"
"""Begins a UID that is no UUID, and is written as it is."""


def _claims_key(index: int) -> str:
    return NODE_CLAIMS_TAG if index == 0 else f"{NODE_CLAIMS_TAG}-{index}"


_CLAIMS_KEYS: Final = tuple(_claims_key(index) for index in range(MAX_TAGS))


class ClaimsTooManyError(ValueError):
    """The claims of one group do not fit into its tags; `group_batches` makes groups that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedInstance:
    """An instance and its tags."""

    id: str
    tags: Mapping[str, str]


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
    theirs = {key: user_tags[key] for key in user_tags if not _CLAIMS_KEY.fullmatch(key)}
    tags = {**theirs, **ours}
    return {key: tags[key] for key in sorted(tags)}


def to_tag_list(tags: Mapping[str, str]) -> list[dict[str, object]]:
    """Return tags as ECS takes them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def group_tags(claims: Iterable[ClaimRef], *, node_pool: str, other_tags: int) -> dict[str, str]:
    """Return what the instances of a group carry to tell whose they are.

    `other_tags` is how many tags they have besides. A group for one claim names it outright.

    Raises:
        ClaimsTooManyError: they do not fit.
    """
    claims = sorted(claims, key=_by_uid)
    values = _packed(claims, node_pool)
    if values is None or len(values) > _room(other_tags):
        message = f"{len(claims)} claims do not fit into the tags of a group"
        raise ClaimsTooManyError(message)
    tags = {_claims_key(index): value for index, value in enumerate(values)}
    if len(claims) == 1 and len(claims[0].name) <= MAX_TAG_LENGTH:
        tags[NODE_CLAIM_TAG] = claims[0].name
    return tags


def group_batches(
    claims: Iterable[ClaimRef], *, node_pool: str, other_tags: int, most: int = MOST_MACHINES
) -> tuple[tuple[ClaimRef, ...], ...]:
    """Cut claims, sorted by UID, into as few groups as their tags have room for.

    No group has more than `most`. A claim whose name is too long to stand beside others has a group
    of its own, which its own tag names.
    """
    batches: list[tuple[ClaimRef, ...]] = []
    open_batch: list[ClaimRef] = []
    for claim in sorted(claims, key=_by_uid):
        if _needs_own_group(claim, node_pool):
            batches.append((claim,))
            continue
        values = _packed([*open_batch, claim], node_pool)
        is_full = values is None or len(values) > _room(other_tags)
        if open_batch and (is_full or len(open_batch) >= most):
            batches.append(tuple(open_batch))
            open_batch = []
        open_batch.append(claim)
    if open_batch:
        batches.append(tuple(open_batch))
    return tuple(batches)


def claims_of(tags: Mapping[str, str]) -> tuple[ClaimRef, ...]:
    """Return the claims that an instance's group was made for, sorted by UID.

    An instance of another controller, which has the claim's own tag alone, tells its name. What
    cannot be read is left out.
    """
    pool, own = tags.get(NODE_POOL_TAG, ""), tags.get(NODE_CLAIM_TAG, "")
    claims = _told_by(tuple(tags[key] for key in _CLAIMS_KEYS if key in tags), pool)
    if len(claims) == 1 and own:
        return (ClaimRef(name=own, uid=claims[0].uid),)
    if not claims and own:
        return (ClaimRef(name=own, uid=""),)
    return claims


@lru_cache(maxsize=_GROUPS_KEPT)
def _told_by(values: tuple[str, ...], node_pool: str) -> tuple[ClaimRef, ...]:
    """Return the claims that tags tell of, sorted by UID."""
    entries = (entry for value in values for entry in value.split(" ") if entry)
    claims = (_claim(entry, node_pool) for entry in entries)
    return tuple(sorted((claim for claim in claims if claim is not None), key=_by_uid))


def deal(
    instances: Iterable[TaggedInstance], known: Mapping[str, ClaimRef] | None = None
) -> dict[str, ClaimRef]:
    """Return whose each instance of one group is, by instance id (`known_owners.deal`).

    `known` is what is written down elsewhere, by instance id.
    """
    members = (
        GroupMember(id=each.id, claims=claims_of(each.tags), own=each.tags.get(NODE_CLAIM_TAG, ""))
        for each in instances
    )
    return dealt_to_claims(members, known)


def owners_of(
    instances: Iterable[TaggedInstance], known: Mapping[str, ClaimRef] | None = None
) -> dict[str, ClaimRef]:
    """Return whose each instance is, by its id; one that is nobody's is not named.

    All instances of the cluster are given: of a group that is known in part later ones would be dealt
    what is another's. `known` is what is written down elsewhere, by instance id (`KnownOwners`).
    """
    groups: dict[tuple[str, ...], list[TaggedInstance]] = {}
    for instance in instances:
        uids = tuple(claim.uid for claim in claims_of(instance.tags) if claim.uid)
        groups.setdefault(uids or (instance.id,), []).append(instance)
    owners: dict[str, ClaimRef] = {}
    for key in sorted(groups):
        owners |= deal(groups[key], known)
    return owners


def _by_uid(claim: ClaimRef) -> tuple[str, str]:
    return claim.uid, claim.name


def _room(other_tags: int) -> int:
    return max(MAX_TAGS - _LATER_TAGS - other_tags, 1)


def _entry(claim: ClaimRef, node_pool: str) -> str:
    """Return name and UID, short; there is no colon and no space in either."""
    prefix = f"{node_pool}-"
    if node_pool and claim.name.startswith(prefix):
        name = f"{_POOL_AND}{claim.name.removeprefix(prefix)}"
    else:
        name = f"{_WHOLE}{claim.name}"
    return f"{name}:{_short_uid(claim.uid)}"


def _claim(entry: str, node_pool: str) -> ClaimRef | None:
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


def _needs_own_group(claim: ClaimRef, node_pool: str) -> bool:
    return len(_entry(claim, node_pool)) > MAX_TAG_LENGTH


def _packed(claims: Sequence[ClaimRef], node_pool: str) -> list[str] | None:
    """Return the values that hold these claims, none of them broken; None if one is too long.

    The only claim of a group may be too long: its own tag has the name then.
    """
    if len(claims) == 1 and _needs_own_group(claims[0], node_pool):
        return [f"{_WHOLE}:{_short_uid(claims[0].uid)}"]
    values: list[str] = []
    for claim in claims:
        entry = _entry(claim, node_pool)
        if len(entry) > MAX_TAG_LENGTH:
            return None
        if values and len(values[-1]) + 1 + len(entry) <= MAX_TAG_LENGTH:
            values[-1] = f"{values[-1]} {entry}"
        else:
            values.append(entry)
    return values
