"""Holds an informer's objects of one kind, and computes their changes.

Nothing here asks the API server. Events and listings go in; differences by UID and resourceVersion,
each once, come out. An object that cannot be read keeps its last good state until it is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.errors import GoneError
from karpenter_core.kube.listing import has_passed_over, is_fully_held, is_restored
from karpenter_core.kube.wire.kind_codec import uid_of, version_of
from karpenter_core.state.events import ObjectObserved, ObjectRemoved

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.kube.wire.kind_codec import InvalidObject, ListPage, WatchEvent
    from karpenter_core.state.events import StateObject

__all__ = ["Change", "HeldObjects"]

Change: TypeAlias = "ObjectObserved | ObjectRemoved"

_GONE: Final = 410


@final
class HeldObjects:
    """The objects of one kind, by UID."""

    def __init__(self, on_invalid: Callable[[InvalidObject], None]) -> None:
        """`on_invalid` is called once for each version of an object that cannot be read."""
        self._on_invalid: Final = on_invalid
        self._objects: dict[str, StateObject] = {}
        self._invalid: dict[str, InvalidObject] = {}
        self._written: dict[str, StateObject] = {}
        """Objects that the API server has shown outside of the watch, which has not shown them yet."""
        self._reached_version = 0

    def __len__(self) -> int:
        """Count the objects that can be read now, or could be before."""
        return len(self._objects)

    @property
    def invalid_count(self) -> int:
        """The number of objects that cannot be read."""
        return len(self._invalid)

    @property
    def count(self) -> int:
        """The number of objects that there are, whether they can be read or not."""
        return len(self._objects.keys() | self._invalid.keys())

    @property
    def reached_version(self) -> int:
        """The version up to which all changes were seen; 0 before the first listing."""
        return self._reached_version

    def is_fully_held(self, page: ListPage) -> bool:
        """Return whether every object of a page is held in the same version."""
        return is_fully_held(page, held=self._objects, invalid=self._invalid)

    def has_passed_over(self, page: ListPage) -> bool:
        """Return whether a page shows a change that no watch from here will show."""
        return has_passed_over(
            page, reached=self._reached_version, held=self._objects, invalid=self._invalid
        )

    def note_written(self, written: StateObject, version: str) -> Change | None:
        """Take note of the answer to a write; `version` is that of the stream, empty if it must list.

        Returns the removal of what the stream has passed already: it came and went.
        """
        uid = uid_of(written)
        if uid in self._objects or uid in self._invalid:
            return None
        if version and version_of(written) <= int(version):
            return ObjectRemoved(written)
        self._written[uid] = written
        return None

    def note_listed(self, listed_object: StateObject) -> Change | None:
        """Take note of an object that a list has shown before the watch; return what is new of it."""
        uid = uid_of(listed_object)
        stored = self._objects.get(uid) or self._written.get(uid)
        if stored is not None and version_of(stored) >= version_of(listed_object):
            return None
        if uid not in self._objects:
            # Like what we wrote: a later listing may not show it.
            self._written[uid] = listed_object
        return ObjectObserved(listed_object)

    def is_repeated(self, event: WatchEvent) -> bool:
        """Return whether this very change was applied already: the versions of one kind only rise.

        Raises:
            GoneError: the change is older than the last one, so some may be missing or undone.
        """
        version = int(event.resource_version or self._reached_version)
        if version < self._reached_version:
            raise GoneError("the watch shows changes out of order; listing again", status=_GONE)
        return version == self._reached_version and event.type != "BOOKMARK"

    def apply(self, event: WatchEvent) -> Change | None:
        """Apply an event that is no error; return the change that it is, if it is one."""
        if event.resource_version:
            self._reached_version = int(event.resource_version)
        if event.invalid is not None:
            return self._apply_invalid(event.invalid, deleted=event.type == "DELETED")
        if event.type == "BOOKMARK":
            return None
        uid = uid_of(event.object)
        self._invalid.pop(uid, None)
        self._written.pop(uid, None)
        if event.type == "DELETED":
            self._objects.pop(uid, None)
            return ObjectRemoved(event.object)
        stored = self._objects.get(uid)
        self._objects[uid] = event.object
        if stored is None or version_of(stored) != version_of(event.object):
            return ObjectObserved(event.object)
        return None

    def _apply_invalid(self, invalid_object: InvalidObject, *, deleted: bool) -> Change | None:
        """Keep the last good state of an object that cannot be read, but not beyond its end."""
        written = self._written.pop(invalid_object.uid, None)
        if not deleted:
            self._report(invalid_object)
            self._invalid[invalid_object.uid] = invalid_object
            if written is not None:
                self._objects.setdefault(invalid_object.uid, written)
            return None
        self._invalid.pop(invalid_object.uid, None)
        stored = self._objects.pop(invalid_object.uid, written)
        return ObjectRemoved(stored) if stored is not None else None

    def replace(
        self, objects: dict[str, StateObject], invalid: dict[str, InvalidObject], version: str
    ) -> tuple[list[Change], bool]:
        """Replace all by a complete listing.

        Returns the differences, and whether the API server has returned to an older state.
        """
        before = self._objects
        restored = is_restored(
            objects,
            version=version,
            reached=self._reached_version,
            held=before,
            invalid=self._invalid,
        )
        known = {**self._written, **before}
        last_valid = {uid: known[uid] for uid in invalid if uid in known}
        self._objects = objects | last_valid
        self._reached_version = int(version or 0)
        for invalid_object in invalid.values():
            self._report(invalid_object)
        self._invalid = invalid
        changes: list[Change] = [
            ObjectRemoved(gone) for uid, gone in before.items() if uid not in self._objects
        ]
        changes += [ObjectRemoved(gone) for gone in self._take_vanished(version, restored=restored)]
        changes += [
            ObjectObserved(listed_object, authoritative=restored)
            for uid, listed_object in objects.items()
            if restored or uid not in before or version_of(before[uid]) != version_of(listed_object)
        ]
        return changes, restored

    def _take_vanished(self, version: str, *, restored: bool) -> list[StateObject]:
        """Return objects that we wrote before this listing and that it does not show."""
        shown = self._objects.keys() | self._invalid.keys()
        later = {
            uid: written_object
            for uid, written_object in self._written.items()
            if uid not in shown and version_of(written_object) > int(version or 0) and not restored
        }
        gone = [
            written_object
            for uid, written_object in self._written.items()
            if uid not in shown and uid not in later
        ]
        self._written = later
        return gone

    def _report(self, invalid_object: InvalidObject) -> None:
        reported = self._invalid.get(invalid_object.uid)
        if reported is None or reported.resource_version != invalid_object.resource_version:
            self._on_invalid(invalid_object)
