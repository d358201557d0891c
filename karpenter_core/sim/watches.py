"""Streams the changes of a kind since a resourceVersion as lines of JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.sim import status
from karpenter_core.sim.store import ADDED, DELETED, MODIFIED
from karpenter_core.sim.versions import line_in_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from karpenter_core.sim.kinds import ServedKind
    from karpenter_core.sim.store import ObjectChange, ObjectStore, StoredObject

__all__ = ["Watch"]

_BOOKMARK_SECONDS: Final = 60.0  # upstream's frequency


class Watch:
    """One client's stream. Costs a position in the history, however slowly it is read."""

    def __init__(
        self,
        store: ObjectStore,
        served: ServedKind,
        *,
        namespace: str | None,
        selects: Callable[[Mapping[str, object]], bool] | None,
        since: int | None,
        bookmarks: bool,
        initial_events: bool,
        timeout_seconds: float,
        other_version: ServedKind | None = None,
    ) -> None:
        """Start at `since`, or with the state of now when it is None."""
        self._other_version: Final = other_version
        self._store: Final = store
        self._kind: Final = served.kind
        self._namespace: Final = namespace
        self._selects: Final = selects
        self._bookmarks: Final = bookmarks
        self._timeout_seconds: Final = timeout_seconds
        self._wake: Final = asyncio.Event()
        self._broken: BaseException | None = None
        self._first: list[bytes] = []
        position = store.position(self._kind, store.version if since is None else since)
        if position is None:
            floor = store.version
            gone = status.expired(f"too old resource version: {since} ({floor})")
            self._first.append(_line("ERROR", msgspec.json.encode(gone.to_json())))
        self._position = position
        if since is None:
            self._first += self._current_state()
            if initial_events and bookmarks:
                self._first.append(self._bookmark(end_of_initial_events=True))

    def stop(self, error: BaseException) -> None:
        """Break the stream, as a lost connection does."""
        self._broken = error
        self._wake.set()

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield lines as they come, several at a time when there are several.

        Raises:
            BaseException: whatever `stop` was given.
        """
        if self._first:
            yield self._in_version(self._first)
        if self._position is None:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_seconds
        bookmark_due = loop.time() + _BOOKMARK_SECONDS
        unlisten = self._store.listen(self._kind, lambda _change: self._wake.set())
        try:
            while True:
                self._raise_if_broken()
                self._wake.clear()
                changes = self._store.changes(self._kind, self._position)
                if changes is None:
                    return  # too slow: history went on without this reader
                self._position += len(changes)
                if lines := list(self._render(changes)):
                    yield self._in_version(lines)
                    continue
                try:
                    async with asyncio.timeout_at(min(end, bookmark_due)):
                        await self._wake.wait()
                except TimeoutError:
                    if self._wake.is_set():
                        continue  # a bookmark has the version of all changes before it
                    if self._bookmarks:
                        yield self._in_version([self._bookmark()])
                    if loop.time() >= end:
                        return
                    bookmark_due = loop.time() + _BOOKMARK_SECONDS
        finally:
            unlisten()

    def _in_version(self, lines: list[bytes]) -> list[bytes]:
        if self._other_version is None:
            return lines
        return [line_in_version(line, self._other_version) for line in lines]

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _current_state(self) -> Iterable[bytes]:
        for stored in self._store.all(self._kind, self._namespace):
            if self._selects is None or self._selects(stored.obj):
                yield _line(ADDED, stored.encode())

    def _render(self, changes: list[ObjectChange]) -> Iterable[bytes]:
        for change in changes:
            if self._namespace is not None and change.stored.key[0] != self._namespace:
                continue
            event = self._event_type(change)
            if event:
                yield _line(event, change.stored.encode())

    def _event_type(self, change: ObjectChange) -> str:
        """Return the event for this watch: an object may enter or leave its selection."""
        if self._selects is None:
            return change.type
        was = self._is_selected(change.previous)
        is_now = change.type != DELETED and self._is_selected(change.stored)
        if is_now:
            return MODIFIED if was else ADDED
        return DELETED if was else ""

    def _is_selected(self, stored: StoredObject | None) -> bool:
        return stored is not None and self._selects is not None and self._selects(stored.obj)

    def _bookmark(self, *, end_of_initial_events: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self._store.version)}
        if end_of_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            "metadata": metadata | {"creationTimestamp": None},
        }
        return _line("BOOKMARK", msgspec.json.encode(body))


def _line(event: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), obj)
