"""Compares a listing of a kind with the objects that an informer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.wire.codecs import uid_of, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.kube.wire.codecs import InvalidObject, ListPage, WatchEvent
    from karpenter_core.state.events import StateObject

__all__ = ["add_initial_event", "is_fully_held", "is_restored"]


def is_fully_held(
    page: ListPage, *, held: Mapping[str, StateObject], invalid: Mapping[str, InvalidObject]
) -> bool:
    """Tell whether the informer holds every object of a page in the same version."""
    return all(
        uid not in invalid and uid in held and version_of(held[uid]) == version_of(listed_object)
        for listed_object in page.objects
        for uid in (uid_of(listed_object),)
    ) and all(
        listed_object.uid in invalid
        and invalid[listed_object.uid].resource_version == listed_object.resource_version
        for listed_object in page.invalid
    )


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
