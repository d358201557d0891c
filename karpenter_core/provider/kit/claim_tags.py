"""Assigns the instances of one launch call to their claims by tags.

A call that launches instances for several claims cannot say which is whose: all claims are written on
all of its instances, and an order that anybody can repeat deals one to the other. Whatever dies, the
tags are the memory. Clouds differ in how long a tag may be and how many there may be, which bounds how
many claims one call is for, and in how short a claim is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.recent_launches import ClaimRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["ClaimTags", "TooManyClaimsError"]

_CALLS_KEPT: Final = 8192
"""All instances of a call have the same tags, and each listing brings them again: they are read once in
clusters that were launched by no more calls than that."""


class TooManyClaimsError(ValueError):
    """The claims of one call do not fit into its tags; `ClaimTags.batches` makes calls that fit."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTags:
    """How a cloud's tags tell of claims."""

    key: str
    """Of the first tag with claims; further ones have a number behind: `key-1`."""
    own_key: str
    """Of the tag with the name of an instance's own claim."""
    pool_key: str
    """Of the tag with the NodePool's name."""
    call_key: str
    """Of the tag with the id of the call; empty where the cloud puts none, and calls are told apart by
    their claims."""
    max_characters: int
    """How long a value may be."""
    max_tags: int
    """How many tags an instance may have."""
    max_claim_tags: int
    """How many of them may be for claims."""
    later_tags: int
    """How many come when the node has registered, and need room."""
    write: Callable[[ClaimRef, str], str]
    """Returns the entry of a claim in a NodePool; there is no space in it. Must take an empty name."""
    read: Callable[[str, str], ClaimRef | None]
    """Returns the claim of an entry, or None for what `write` has not written."""

    def tags_for(
        self, claims: Iterable[ClaimRef], *, other_tags: int, node_pool: str = ""
    ) -> dict[str, str]:
        """Return the tags that tell whose the instances of a call for these claims are.

        `other_tags` is how many they have besides. A call for one claim names it outright, if a value
        is long enough for its name.

        Raises:
            ClaimsTooManyError: they do not fit.
        """
        claims = sorted(claims, key=_by_uid)
        values = self._packed(claims, node_pool)
        if values is None or len(values) > self._tags_left(other_tags):
            message = f"{len(claims)} claims do not fit into the tags of one call"
            raise TooManyClaimsError(message)
        keys = _keys(self.key, self.max_claim_tags)
        tags = dict(zip(keys, values, strict=False))
        if len(claims) == 1 and len(claims[0].name) <= self.max_characters:
            tags[self.own_key] = claims[0].name
        return tags

    def batches(
        self,
        claims: Iterable[ClaimRef],
        *,
        other_tags: int,
        node_pool: str = "",
        max_claims: int | None = None,
    ) -> tuple[tuple[ClaimRef, ...], ...]:
        """Cut claims, sorted by UID, into as few calls as their tags have room for.

        No call is for more than `max_claims`. A claim whose name is too long to stand beside others
        has a call of its own.
        """
        batches: list[tuple[ClaimRef, ...]] = []
        open_batch: list[ClaimRef] = []
        for claim in sorted(claims, key=_by_uid):
            if self._stands_alone(claim, node_pool):
                batches.append((claim,))
                continue
            values = self._packed([*open_batch, claim], node_pool)
            is_full = values is None or len(values) > self._tags_left(other_tags)
            if open_batch and (is_full or len(open_batch) == max_claims):
                batches.append(tuple(open_batch))
                open_batch = []
            open_batch.append(claim)
        if open_batch:
            batches.append(tuple(open_batch))
        return tuple(batches)

    def claims_of(self, tags: Mapping[str, str]) -> tuple[ClaimRef, ...]:
        """Return the claims that an instance's call was for, sorted by UID.

        An instance of another controller, which has its own claim's tag alone, tells that one's name.
        What cannot be read is left out.
        """
        keys = _keys(self.key, self.max_claim_tags)
        values = tuple(tags[key] for key in keys if key in tags)
        claims = _read(self.read, values, tags.get(self.pool_key, ""))
        own = tags.get(self.own_key, "")
        if len(claims) == 1 and own:
            return (ClaimRef(name=own, uid=claims[0].uid),)
        if not claims and own:
            return (ClaimRef(name=own, uid=""),)
        return claims

    def owners_of(
        self, instances: Mapping[str, Mapping[str, str]], known: Mapping[str, ClaimRef]
    ) -> dict[str, ClaimRef]:
        """Return whose each instance is, by instance id; one that is nobody's is not named.

        `instances` are tags by instance id, of calls that are here whole: of one that is known in part
        later ones would be dealt what is another's. Terminated ones belong to them for as long as the
        cloud tells of them. `known` is as for `assign_owners`.
        """
        calls: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
        for name, tags in instances.items():
            calls.setdefault(self.call_of(name, tags), {})[name] = tags
        settled = _uids(known)
        owners: dict[str, ClaimRef] = {}
        for call in sorted(calls):
            owners |= self._assigned_owners(calls[call], known, settled)
        return owners

    def assign_owners(
        self,
        instances: Mapping[str, Mapping[str, str]],
        known: Mapping[str, ClaimRef] | None = None,
    ) -> dict[str, ClaimRef]:
        """Return whose each instance of one call is, by instance id.

        `instances` are tags by instance id.

        What is known beyond the tags (`known`, by instance id, here or not) counts first: a claim has
        no other instance than that. Then comes what an instance's own tag says. The others, sorted by
        id, are dealt to the claims that are left, sorted by UID; an instance beyond the last claim is
        nobody's. For the same instances everybody deals alike.
        """
        known = known or {}
        return self._assigned_owners(instances, known, _uids(known))

    def _assigned_owners(
        self,
        instances: Mapping[str, Mapping[str, str]],
        known: Mapping[str, ClaimRef],
        settled: frozenset[str],
    ) -> dict[str, ClaimRef]:
        """Deal; `settled` are the UIDs of what is known, which is much and the same for every call."""
        dealt: dict[str, ClaimRef] = {}
        waiting: list[str] = []
        claims: dict[str, ClaimRef] = {}
        for name in sorted(instances):
            tagged_claims = self.claims_of(instances[name])
            claims |= {claim.uid: claim for claim in tagged_claims if claim.uid}
            own = instances[name].get(self.own_key, "")
            if name in known:
                dealt[name] = known[name]
            elif own:
                named = next((claim for claim in tagged_claims if claim.name == own), None)
                if named is None or named.uid not in settled:
                    dealt[name] = named or ClaimRef(name=own, uid="")
            else:
                waiting.append(name)
        assigned_uids = {claim.uid for claim in dealt.values()}
        unassigned_claims = [
            claims[uid] for uid in sorted(claims) if uid not in assigned_uids and uid not in settled
        ]
        dealt.update(zip(waiting, unassigned_claims, strict=False))
        return {name: dealt[name] for name in sorted(dealt)}

    def call_of(self, name: str, tags: Mapping[str, str]) -> tuple[str, ...]:
        """Return what identifies the call that launched an instance: its own id, if nothing else."""
        if self.call_key:
            return (tags.get(self.call_key) or name,)
        return tuple(claim.uid for claim in self.claims_of(tags) if claim.uid) or (name,)

    def is_key(self, key: str) -> bool:
        """Whether this is the key of a tag with claims."""
        number = key.removeprefix(f"{self.key}-")
        return key == self.key or (number != key and number.isdecimal())

    def _tags_left(self, other_tags: int) -> int:
        return max(min(self.max_claim_tags, self.max_tags - self.later_tags - other_tags), 1)

    def _stands_alone(self, claim: ClaimRef, node_pool: str) -> bool:
        return len(self.write(claim, node_pool)) > self.max_characters

    def _packed(self, claims: Sequence[ClaimRef], node_pool: str) -> list[str] | None:
        """Return the values that hold these claims, none of them broken; None if one is too long.

        Of the only claim of a call that is too long its UID is written; the tag of an instance's own
        claim has the name, if it is not too long for that as well.
        """
        if len(claims) == 1 and self._stands_alone(claims[0], node_pool):
            return [self.write(ClaimRef(name="", uid=claims[0].uid), node_pool)]
        values: list[str] = []
        for claim in claims:
            entry = self.write(claim, node_pool)
            if len(entry) > self.max_characters:
                return None
            if values and len(values[-1]) + 1 + len(entry) <= self.max_characters:
                values[-1] = f"{values[-1]} {entry}"
            else:
                values.append(entry)
        return values


@cache
def _keys(first: str, count: int) -> tuple[str, ...]:
    return (first, *(f"{first}-{index}" for index in range(1, count)))


@lru_cache(maxsize=_CALLS_KEPT)
def _read(
    read: Callable[[str, str], ClaimRef | None], values: tuple[str, ...], node_pool: str
) -> tuple[ClaimRef, ...]:
    """Return the claims that tags tell of, sorted by UID."""
    entries = (entry for value in values for entry in value.split(" ") if entry)
    claims = (read(entry, node_pool) for entry in entries)
    return tuple(sorted((claim for claim in claims if claim is not None), key=_by_uid))


def _uids(owners: Mapping[str, ClaimRef]) -> frozenset[str]:
    return frozenset(claim.uid for claim in owners.values() if claim.uid)


def _by_uid(claim: ClaimRef) -> tuple[str, str]:
    return claim.uid, claim.name
