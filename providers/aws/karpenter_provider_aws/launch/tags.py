"""Tags: what everything we make carries, and whose an instance of a fleet is.

Nothing about instances is kept in the process, so tags at creation are the memory. A fleet is made
for several claims at once, and which of its instances is whose cannot be said in the request: all
claims are written on all instances, and an order that anybody can repeat deals one to the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.known_owners import GroupMember
from karpenter_core.provider.known_owners import deal as dealt_to_claims
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
    from collections.abc import Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import TagTypeDef

__all__ = [
    "FLEET_ID_TAG",
    "ClaimRef",
    "ClaimsTooManyError",
    "FleetInstance",
    "claims_of",
    "deal",
    "fleet_batches",
    "fleet_tags",
    "from_tag_list",
    "owned_tags",
    "restricted_tags",
    "to_tag_list",
]

FLEET_ID_TAG: Final = "aws:ec2:fleet-id"
"""Put on instances by EC2."""

_CLAIMS_TAG: Final = f"{GROUP}/nodeclaims"
_CLAIMS_KEY: Final = re.compile(rf"{re.escape(_CLAIMS_TAG)}(?:-\d+)?")
_MAX_VALUE_CHARACTERS: Final = 256
_MAX_CLAIMS_TAGS: Final = 10
_MAX_TAGS: Final = 50
"""Of one resource."""
_LATER_TAGS: Final = 2
"""Name and the claim's own tag, which come when the node has registered."""
_CLUSTER_TAG: Final = re.compile(r"kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*")


class ClaimsTooManyError(ValueError):
    """The claims of one fleet do not fit into its tags; `fleet_batches` makes fleets that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetInstance:
    """An instance and its tags. Terminated ones count too: they were somebody's."""

    id: str
    tags: Mapping[str, str]


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
    theirs = {key: user_tags[key] for key in user_tags if not _CLAIMS_KEY.fullmatch(key)}
    tags = {**theirs, **ours}
    return {key: tags[key] for key in sorted(tags)}


def to_tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Return tags as EC2 takes them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def from_tag_list(tags: Iterable[TagTypeDef]) -> dict[str, str]:
    """Return tags as EC2 gives them, by key."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in tags}


def fleet_tags(claims: Iterable[ClaimRef], *, other_tags: int) -> dict[str, str]:
    """Return what the instances of a fleet carry to tell whose they are.

    `other_tags` is how many tags they have besides. A fleet for one claim names it outright.

    Raises:
        ClaimsTooManyError: they do not fit.
    """
    claims = sorted(claims, key=_by_uid)
    values = _packed(claims)
    if values is None or len(values) > _room(other_tags):
        message = f"{len(claims)} claims do not fit into the tags of a fleet"
        raise ClaimsTooManyError(message)
    tags = {_claims_key(index): value for index, value in enumerate(values)}
    if len(claims) == 1:
        tags[NODE_CLAIM_TAG] = claims[0].name
    return tags


def fleet_batches(
    claims: Iterable[ClaimRef], *, other_tags: int
) -> tuple[tuple[ClaimRef, ...], ...]:
    """Cut claims, sorted by UID, into as few fleets as their tags have room for.

    A claim whose name is too long to stand beside others has a fleet of its own, which its own
    tag names.
    """
    batches: list[tuple[ClaimRef, ...]] = []
    open_batch: list[ClaimRef] = []
    for claim in sorted(claims, key=_by_uid):
        if _needs_own_fleet(claim):
            batches.append((claim,))
            continue
        values = _packed([*open_batch, claim])
        if open_batch and (values is None or len(values) > _room(other_tags)):
            batches.append(tuple(open_batch))
            open_batch = []
        open_batch.append(claim)
    if open_batch:
        batches.append(tuple(open_batch))
    return tuple(batches)


def claims_of(tags: Mapping[str, str]) -> tuple[ClaimRef, ...]:
    """Return the claims that an instance's fleet was made for, sorted by UID.

    An instance of another controller, which has the claim's own tag alone, tells its name.
    """
    entries = (
        entry
        for index in range(_MAX_CLAIMS_TAGS)
        for entry in tags.get(_claims_key(index), "").split()
    )
    claims = sorted((_claim(entry) for entry in entries), key=_by_uid)
    own = tags.get(NODE_CLAIM_TAG, "")
    if len(claims) == 1 and own:
        return (ClaimRef(name=own, uid=claims[0].uid),)
    if not claims and own:
        return (ClaimRef(name=own, uid=""),)
    return tuple(claims)


def deal(
    instances: Iterable[FleetInstance], known: Mapping[str, ClaimRef] | None = None
) -> dict[str, ClaimRef]:
    """Return whose each instance of one fleet is, by instance id (`known_owners.deal`).

    Terminated ones must be among them for as long as EC2 tells of them, or the later ones would move
    up. `known` is what is written down elsewhere, by instance id.
    """
    members = (
        GroupMember(id=each.id, claims=claims_of(each.tags), own=each.tags.get(NODE_CLAIM_TAG, ""))
        for each in instances
    )
    return dealt_to_claims(members, known)


def _by_uid(claim: ClaimRef) -> tuple[str, str]:
    return claim.uid, claim.name


def _room(other_tags: int) -> int:
    return max(min(_MAX_CLAIMS_TAGS, _MAX_TAGS - _LATER_TAGS - other_tags), 1)


def _claims_key(index: int) -> str:
    return _CLAIMS_TAG if index == 0 else f"{_CLAIMS_TAG}-{index}"


def _entry(claim: ClaimRef) -> str:
    """Return `name:uid`; neither has a colon or a space in it."""
    return f"{claim.name}:{claim.uid}"


def _claim(entry: str) -> ClaimRef:
    name, _, uid = entry.rpartition(":")
    return ClaimRef(name=name, uid=uid)


def _needs_own_fleet(claim: ClaimRef) -> bool:
    return len(_entry(claim)) > _MAX_VALUE_CHARACTERS


def _packed(claims: Sequence[ClaimRef]) -> list[str] | None:
    """Return the values that hold these claims, none of them broken; None if one is too long.

    The only claim of a fleet may be too long: its own tag has the name then.
    """
    if len(claims) == 1 and _needs_own_fleet(claims[0]):
        return [f":{claims[0].uid}"]
    values: list[str] = []
    for claim in claims:
        entry = _entry(claim)
        if len(entry) > _MAX_VALUE_CHARACTERS:
            return None
        if values and len(values[-1]) + 1 + len(entry) <= _MAX_VALUE_CHARACTERS:
            values[-1] = f"{values[-1]} {entry}"
        else:
            values.append(entry)
    return values
