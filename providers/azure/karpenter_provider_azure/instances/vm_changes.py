"""Computes changes of running virtual machines: tags, and identities that are missing. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from karpenter_core.provider.kit.instances.tag_changes import TagChange, tag_change
from karpenter_provider_azure.instance_tags import MAX_TAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.kit.instances.tag_changes import DesiredTags
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = [
    "DesiredVm",
    "VmChange",
    "VmState",
    "changed_state",
    "plan_change",
    "state_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VmState:
    """State of a virtual machine that can be changed."""

    tags: Mapping[str, str]
    identities: frozenset[str]
    """Ids in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredVm:
    """The tags and identities that a virtual machine should have."""

    tags: DesiredTags
    identities: tuple[str, ...] = ()
    """Ids of identities that it needs; others stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmChange:
    """A change of one virtual machine."""

    tags: TagChange = field(default_factory=TagChange)
    identities: tuple[str, ...] = ()
    """Ids of identities to add."""

    def __bool__(self) -> bool:
        """Return whether there is something to change."""
        return bool(self.tags or self.identities)


def state_of(vm: DescribedVm) -> VmState:
    """Return the state of a described virtual machine."""
    return VmState(tags=vm.tags, identities=vm.identities)


def plan_change(state: VmState, desired: DesiredVm) -> VmChange:
    """Return the change from a state to a desired one.

    Keys of tags are compared as Azure does: ignoring case. Identities are never removed.
    """
    missing = tuple(each for each in desired.identities if each.lower() not in state.identities)
    return VmChange(
        tags=tag_change(state.tags, _spelled_as(state.tags, desired.tags), max_tags=MAX_TAGS),
        identities=missing,
    )


def changed_state(state: VmState, change: VmChange) -> VmState:
    """Return a state after a change."""
    added = frozenset(each.lower() for each in change.identities)
    return VmState(tags=change.tags.applied(state.tags), identities=state.identities | added)


def _spelled_as(tags: Mapping[str, str], desired: DesiredTags) -> DesiredTags:
    """Return desired tags with the keys that a resource has, where they differ in case alone."""
    keys = {key.lower(): key for key in tags}

    def spelled(key: str) -> str:
        return keys.get(key.lower(), key)

    return replace(
        desired,
        added={spelled(key): value for key, value in desired.added.items()},
        set={spelled(key): value for key, value in desired.set.items()},
        obsolete=frozenset((spelled(key), value) for key, value in desired.obsolete),
    )
