"""Assigns the instances of one launch call to their claims by tags.

The result of a call that launches instances for several claims does not say which instance belongs
to which claim. All claims of the call are written into the tags of all its instances, and a fixed
order assigns the instances to the claims. Since tags are stored in the cloud, every process gets
the same result. Clouds limit the length and number of tags, which limits the number of claims in
one call.
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
"""Number of parsed tag sets to keep. All instances of a call have the same tags, and every listing
returns them again; clusters with no more calls parse each set once.
"""


class TooManyClaimsError(ValueError):
    """The claims of one call do not fit into its tags; use `ClaimTags.batches` to split them."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTags:
    """The format of a cloud's claim tags."""

    key: str
    """Key of the first tag with claims; further tags have a number as suffix: `key-1`."""
    own_key: str
    """Key of the tag with the name of an instance's own claim."""
    pool_key: str
    """Key of the tag with the name of the NodePool."""
    call_key: str
    """Key of the tag with the id of the call; if it is empty, calls are identified by their claims.
    """
    max_characters: int
    """Maximum length of a tag value."""
    max_tags: int
    """Maximum number of tags of an instance."""
    max_claim_tags: int
    """Maximum number of tags for claims."""
    later_tags: int
    """Number of tags that are added when the node has registered."""
    write: Callable[[ClaimRef, str], str]
    """Returns the entry of a claim in a NodePool, without spaces. Must accept an empty name."""
    read: Callable[[str, str], ClaimRef | None]
    """Returns the claim of an entry, or None for an entry that `write` did not write."""

    def tags_for(
        self, claims: Iterable[ClaimRef], *, other_tags: int, node_pool: str = ""
    ) -> dict[str, str]:
        """Return the tags of the instances that one call launches for these claims.

        `other_tags` is the number of other tags. A call for one claim has the tag of its own claim,
        if the name fits into a value.

        Raises:
            TooManyClaimsError: the claims do not fit into the tags.
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
        """Split claims, sorted by UID, into as few calls as their tags permit.

        A call has at most `max_claims`. A claim whose name is too long to share tags has its own call.
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

        For an instance that only has the tag of its own claim, return that claim's name. Invalid
        entries are ignored.
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
        """Return the claim of each instance, by instance id; instances without a claim are left out.

        `instances` are tags by instance id. All instances of a call have to be present: if some
        were missing, the others would be assigned to the wrong claims. A terminated instance counts
        as long as the cloud lists it. `known` is as for `assign_owners`.
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
        """Return the claim of each instance of one call, by instance id.

        `instances` are tags by instance id.

        Assignments known from other sources (`known`, by instance id, present or not) have
        precedence, and a claim has no other instance then. The tag of an instance's own claim comes
        next. The remaining instances, sorted by id, are assigned to the remaining claims, sorted by
        UID; surplus instances have no claim. The result is the same in every process.
        """
        known = known or {}
        return self._assigned_owners(instances, known, _uids(known))

    def _assigned_owners(
        self,
        instances: Mapping[str, Mapping[str, str]],
        known: Mapping[str, ClaimRef],
        settled: frozenset[str],
    ) -> dict[str, ClaimRef]:
        """Assign instances to claims; `settled` are the UIDs of known claims."""
        assigned: dict[str, ClaimRef] = {}
        waiting: list[str] = []
        claims: dict[str, ClaimRef] = {}
        for name in sorted(instances):
            tagged_claims = self.claims_of(instances[name])
            claims |= {claim.uid: claim for claim in tagged_claims if claim.uid}
            own = instances[name].get(self.own_key, "")
            if name in known:
                assigned[name] = known[name]
            elif own:
                named = next((claim for claim in tagged_claims if claim.name == own), None)
                if named is None or named.uid not in settled:
                    assigned[name] = named or ClaimRef(name=own, uid="")
            else:
                waiting.append(name)
        assigned_uids = {claim.uid for claim in assigned.values()}
        unassigned_claims = [
            claims[uid] for uid in sorted(claims) if uid not in assigned_uids and uid not in settled
        ]
        assigned.update(zip(waiting, unassigned_claims, strict=False))
        return {name: assigned[name] for name in sorted(assigned)}

    def call_of(self, name: str, tags: Mapping[str, str]) -> tuple[str, ...]:
        """Return the key of an instance's call; without tags each instance is its own call."""
        if self.call_key:
            return (tags.get(self.call_key) or name,)
        return tuple(claim.uid for claim in self.claims_of(tags) if claim.uid) or (name,)

    def is_key(self, key: str) -> bool:
        """Return whether this is the key of a tag with claims."""
        number = key.removeprefix(f"{self.key}-")
        return key == self.key or (number != key and number.isdecimal())

    def _tags_left(self, other_tags: int) -> int:
        return max(min(self.max_claim_tags, self.max_tags - self.later_tags - other_tags), 1)

    def _stands_alone(self, claim: ClaimRef, node_pool: str) -> bool:
        return len(self.write(claim, node_pool)) > self.max_characters

    def _packed(self, claims: Sequence[ClaimRef], node_pool: str) -> list[str] | None:
        """Return the values for these claims, each entry in one value; None if an entry is too long.

        If the only claim of a call is too long, its UID is written without the name; the tag of the
        instance's own claim has the name, if it fits there.
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
    """Return the claims in the tags, sorted by UID."""
    entries = (entry for value in values for entry in value.split(" ") if entry)
    claims = (read(entry, node_pool) for entry in entries)
    return tuple(sorted((claim for claim in claims if claim is not None), key=_by_uid))


def _uids(owners: Mapping[str, ClaimRef]) -> frozenset[str]:
    return frozenset(claim.uid for claim in owners.values() if claim.uid)


def _by_uid(claim: ClaimRef) -> tuple[str, str]:
    return claim.uid, claim.name
