"""Computes which tags of an instance to set and which to remove.

A cloud limits the tags of an instance, and the claims of a launch call may take most of them. Where other
tags need the space, those give way to the instance's own claim, once all claims of the call name their
instances.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.claim_tags import ClaimTags
    from karpenter_core.provider.kit.recent_launches import ClaimRef

__all__ = ["DesiredTags", "TagChange", "tag_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTags:
    """The tags that an instance should have."""

    added: Mapping[str, str]
    """Added where the key is missing; the first are the most important."""
    set: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set, whatever is there: the tags of the NodeClass."""
    obsolete: frozenset[tuple[str, str]] = frozenset()
    """Keys and values that the NodeClass once had, and has no more."""
    claim: ClaimRef | None = None
    """The claim of the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChange:
    """Tags to set on an instance, and tags to remove from it."""

    put: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    claim: tuple[tuple[str, str], ...] = ()
    """Tags with the instance's own claim alone, in place of those of its launch; set before all else."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """Keys for which the instance has no room."""

    def __bool__(self) -> bool:
        """Return whether there is something to change."""
        return bool(self.put or self.removed)

    def applied(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return tags as they are afterwards."""
        changed = {**tags, **dict(self.claim), **dict(self.put)}
        return {k: v for k, v in changed.items() if k not in self.removed}


def tag_change(
    tags: Mapping[str, str],
    desired: DesiredTags,
    *,
    max_tags: int,
    claim_tags: ClaimTags | None = None,
    is_settled: Callable[[ClaimRef], bool] | None = None,
) -> TagChange:
    """Return the change to the desired tags, as far as an instance has room for them.

    `claim_tags` is the format of the claims in the tags. `is_settled` returns whether the instance of
    a claim is known without its tags; if all are, and there is no room, their tags give way.
    """
    change = _tag_change(tags, desired, max_tags)
    if not change.left_out or desired.claim is None or claim_tags is None or is_settled is None:
        return change
    if not all(is_settled(claim) for claim in claim_tags.claims_of(tags)):
        return change
    node_pool = tags.get(claim_tags.pool_key, "")
    own = claim_tags.tags_for([desired.claim], other_tags=0, node_pool=node_pool)
    given_up = tuple(key for key in tags if claim_tags.is_key(key) and key not in own)
    if not given_up:
        return change
    kept = {key: value for key, value in tags.items() if key not in given_up}
    freed = _tag_change({**kept, **own}, desired, max_tags)
    return replace(
        freed,
        removed=tuple(sorted({*freed.removed, *given_up})),
        claim=tuple(sorted((k, v) for k, v in own.items() if tags.get(k) != v)),
    )


def _tag_change(tags: Mapping[str, str], desired: DesiredTags, max_tags: int) -> TagChange:
    target_tags = {**desired.added, **desired.set}
    removed = {
        key for key, value in desired.obsolete if tags.get(key) == value and key not in target_tags
    }
    put: dict[str, str] = {}
    left_out: list[str] = []
    for key, value in target_tags.items():
        is_there = key in tags
        if is_there and (tags[key] == value or key not in desired.set):
            continue
        if not is_there and len((tags.keys() | put.keys()) - removed) >= max_tags:
            left_out.append(key)
            continue
        put[key] = value
    return TagChange(
        put=tuple(sorted(put.items())),
        removed=tuple(sorted(removed)),
        left_out=tuple(sorted(left_out)),
    )
