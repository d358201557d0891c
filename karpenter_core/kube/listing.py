"""Compares a listing of a kind with the objects that an informer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.wire.kind_codec import uid_of, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from karpenter_core.kube.wire.kind_codec import InvalidObject, ListPage, WatchEvent
    from karpenter_core.state.events import StateObject

__all__ = ["add_initial_event", "has_passed_over", "is_fully_held", "is_restored"]


def is_fully_held(
    page: ListPage, *, held: Mapping[str, StateObject], invalid: Mapping[str, InvalidObject]
) -> bool:
    """Tell whether the informer holds every object of a page in the same version."""
    return next(_versions_not_held(page, held, invalid), None) is None


def has_passed_over(
    page: ListPage,
    *,
    reached: int,
    held: Mapping[str, StateObject],
    invalid: Mapping[str, InvalidObject],
) -> bool:
    """Tell whether a page differs from what is held, in objects up to the version that a watch has reached.

    Such a change was lost on the way, or what is held never was: no watch from `reached` will show it.
    """
    return any(version <= reached for version in _versions_not_held(page, held, invalid))


def _versions_not_held(
    page: ListPage, held: Mapping[str, StateObject], invalid: Mapping[str, InvalidObject]
) -> Iterator[int]:
    """Yield the versions of the objects of a page that are not held in just that version."""
    for listed in page.objects:
        uid, version = uid_of(listed), version_of(listed)
        if uid in invalid or uid not in held or version_of(held[uid]) != version:
            yield version
    for unreadable in page.invalid:
        known = invalid.get(unreadable.uid)
        if known is None or known.resource_version != unreadable.resource_version:
            yield int(unreadable.resource_version or 0)


def is_restored(
    objects: Mapping[str, StateObject],
    *,
    version: str,
    reached: int,
    held: Mapping[str, StateObject],
    invalid: Mapping[str, InvalidObject],
) -> bool:
    """Tell whether a complete listing contradicts the changes seen up to the version `reached`.

    A server that was restored from a backup may number on from where the backup ended, or from
    far beyond. The first is seen by the listing's version. The second only by its objects: they
    are older than what is held, or should have been held all along.
    """
    if not reached:
        return False
    if int(version or 0) < reached:
        return True
    for uid, listed_object in objects.items():
        if uid in held:
            if version_of(listed_object) < version_of(held[uid]):
                return True
        elif uid not in invalid and version_of(listed_object) <= reached:
            return True
    return False


def add_initial_event(
    event: WatchEvent, objects: dict[str, StateObject], invalid: dict[str, InvalidObject]
) -> None:
    """Take one initial event into a listing in the making."""
    if event.invalid is not None:
        uid = event.invalid.uid
        objects.pop(uid, None)
        if event.type != "DELETED":
            invalid[uid] = event.invalid
    elif event.object is not None:
        uid = uid_of(event.object)
        invalid.pop(uid, None)
        if event.type == "DELETED":
            objects.pop(uid, None)
        else:
            objects[uid] = event.object
