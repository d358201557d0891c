"""Stores objects with their versions and a short history of changes.

One counter numbers every write of every kind, as etcd does. Each kind remembers its last changes
in a ring: a watch is a position in that ring, so a slow reader costs no memory and
notices that it fell behind. Objects are shared, never changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.kube.resources import ResourceKind
from karpenter_core.sim.fields import Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "ADDED",
    "DELETED",
    "MODIFIED",
    "Json",
    "Key",
    "ObjectChange",
    "ObjectStore",
    "StoredObject",
]

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class StoredObject:
    """One version of one object; its bytes are encoded at the first use."""

    __slots__ = ("_rest", "key", "kind", "obj", "version")

    def __init__(self, kind: ResourceKind, obj: Json, version: int) -> None:
        metadata = obj["metadata"]
        self.kind: Final = kind
        self.obj: Final = obj
        self.version: Final = version
        self.key: Final[Key] = (metadata.get("namespace", ""), metadata["name"])
        self._rest: bytes = b""

    @property
    def uid(self) -> str:
        """The object's UID."""
        return self.obj["metadata"]["uid"]

    def encode(self, *, typed: bool = True) -> bytes:
        """Return the object as JSON; items of built-in lists omit kind and apiVersion."""
        if not self._rest:
            bare = {k: v for k, v in self.obj.items() if k not in {"kind", "apiVersion"}}
            self._rest = msgspec.json.encode(bare)[1:]
        if not typed:
            return b"{" + self._rest
        head = f'{{"kind":"{self.kind.kind}","apiVersion":"{self.kind.api_version}",'
        return head.encode() + self._rest


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One write: the object after it (or its last version, when deleted) and before it."""

    type: str
    stored: StoredObject
    previous: StoredObject | None

    @property
    def version(self) -> int:
        """The resourceVersion of the write."""
        return self.stored.version


@dataclass(slots=True)
class _Collection:
    """All objects of one kind, and the ring of their latest changes."""

    size: int
    namespaces: dict[str, dict[str, StoredObject]] = field(
        default_factory=dict[str, dict[str, StoredObject]]
    )
    ring: list[ObjectChange] = field(default_factory=list[ObjectChange])
    first: int = 0
    """The number of changes that were dropped: the sequence number of `ring[0]`."""
    floor: int = 0
    """History is complete only after this resourceVersion."""
    listeners: dict[int, Callable[[ObjectChange], None]] = field(
        default_factory=dict[int, "Callable[[ObjectChange], None]"]
    )

    def remember(self, change: ObjectChange) -> None:
        self.ring.append(change)
        if len(self.ring) >= 2 * self.size:
            self.forget(len(self.ring) - self.size)

    def forget(self, count: int) -> None:
        if count:
            self.floor = self.ring[count - 1].version
            self.first += count
            del self.ring[:count]


class ObjectStore:
    """Every object of every kind."""

    def __init__(self, *, history_size: int) -> None:
        self.version = 1
        self._history_size: Final = history_size
        self._kinds: Final = dict[ResourceKind, _Collection]()
        self._dependents: Final = dict[str, dict[tuple[ResourceKind, Key], None]]()
        self._by_uid: Final = dict[str, StoredObject]()
        self._tickets = 0

    # Reading

    def find(self, kind: ResourceKind, namespace: str, name: str) -> StoredObject | None:
        """Return the newest version of an object."""
        return self._collection(kind).namespaces.get(namespace, {}).get(name)

    def all(self, kind: ResourceKind, namespace: str | None = None) -> list[StoredObject]:
        """Return the objects of a kind, of one namespace or of all, sorted by their keys."""
        namespaces = self._collection(kind).namespaces
        if namespace is not None:
            objects: Iterable[StoredObject] = namespaces.get(namespace, {}).values()
        else:
            objects = (stored for each in namespaces.values() for stored in each.values())
        return sorted(objects, key=_key_of)

    def with_uid(self, uid: str) -> StoredObject | None:
        """Return the object that has this UID."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> list[StoredObject]:
        """Return the objects that name this UID as an owner."""
        stored_objects = (self.find(kind, *key) for kind, key in self._dependents.get(uid, ()))
        return [stored for stored in stored_objects if stored is not None]

    # Writing

    def put(self, kind: ResourceKind, obj: Json) -> StoredObject:
        """Write an object as a new version; the store owns the dict from then on."""
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        stored = StoredObject(kind, obj, self.version)
        collection = self._collection(kind)
        objects = collection.namespaces.setdefault(stored.key[0], {})
        previous = objects.get(stored.key[1])
        objects[stored.key[1]] = stored
        self._index(previous, stored)
        self._announce(collection, ObjectChange(MODIFIED if previous else ADDED, stored, previous))
        return stored

    def remove(self, stored: StoredObject) -> StoredObject:
        """Remove an object; its last version carries the resourceVersion of the removal."""
        self.version += 1
        metadata = {**stored.obj["metadata"], "resourceVersion": str(self.version)}
        last = StoredObject(stored.kind, {**stored.obj, "metadata": metadata}, self.version)
        collection = self._collection(stored.kind)
        objects = collection.namespaces[stored.key[0]]
        previous = objects.pop(stored.key[1])
        if not objects:
            del collection.namespaces[stored.key[0]]
        self._index(previous, None)
        self._announce(collection, ObjectChange(DELETED, last, previous))
        return last

    # Following

    def listen(
        self, kind: ResourceKind, listener: Callable[[ObjectChange], None]
    ) -> Callable[[], None]:
        """Call a listener for every change of a kind; return a function that stops it."""
        self._tickets += 1
        ticket, listeners = self._tickets, self._collection(kind).listeners
        listeners[ticket] = listener
        return lambda: listeners.pop(ticket, None) and None

    def position(self, kind: ResourceKind, version: int) -> int | None:
        """Return the position in the history of the first change after a version; None if dropped."""
        collection = self._collection(kind)
        if version < collection.floor:
            return None
        ring = collection.ring
        low, high = 0, len(ring)
        while low < high:
            middle = (low + high) // 2
            if ring[middle].version <= version:
                low = middle + 1
            else:
                high = middle
        return collection.first + low

    def changes(self, kind: ResourceKind, position: int) -> list[ObjectChange] | None:
        """Return the changes from a position on; None when they were dropped."""
        collection = self._collection(kind)
        if position < collection.first:
            return None
        return collection.ring[position - collection.first :]

    def compact(self) -> None:
        """Drop all history up to now, as etcd's compaction does: older watches get 410."""
        for collection in self._kinds.values():
            collection.forget(len(collection.ring))
            collection.floor = self.version

    def _collection(self, kind: ResourceKind) -> _Collection:
        collection = self._kinds.get(kind)
        if collection is None:
            collection = self._kinds[kind] = _Collection(self._history_size)
        return collection

    def _announce(self, collection: _Collection, change: ObjectChange) -> None:
        collection.remember(change)
        for listener in tuple(collection.listeners.values()):
            listener(change)

    def _index(self, before: StoredObject | None, after: StoredObject | None) -> None:
        old, new = _owners(before), _owners(after)
        reference = after or before
        if reference is None:
            return
        place = (reference.kind, reference.key)
        for uid in old - new:
            self._dependents[uid].pop(place, None)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in new - old:
            self._dependents.setdefault(uid, {})[place] = None
        if after is None:
            self._by_uid.pop(reference.uid, None)
        else:
            self._by_uid[after.uid] = after


def _owners(stored: StoredObject | None) -> set[str]:
    if stored is None:
        return set()
    return {owner["uid"] for owner in stored.obj["metadata"].get("ownerReferences") or ()}


def _key_of(stored: StoredObject) -> Key:
    return stored.key
