"""Decodes one kind's objects, lists and watches from JSON to state objects.

An object that cannot be read is never an exception of the list or the stream it came in: it is handed
on as an `InvalidObject`, and all others are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, final

import msgspec
from pydantic import ValidationError

from karpenter_core.api.base import KubernetesObject
from karpenter_core.errors import ApiError, BadInputError, GoneError
from karpenter_core.kube.garbage_collector import gc_paused

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.state.events import StateObject

__all__ = [
    "Codec",
    "EventType",
    "InvalidObject",
    "ListPage",
    "TypedDecoders",
    "WatchEvent",
    "is_version",
    "uid_of",
    "version_of",
]

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_GONE: Final = 410
_UNREADABLE: Final = (msgspec.MsgspecError, ValidationError, ValueError, RecursionError)
_VERSION_DIGITS: Final = 20
"""Digits of the greatest 64-bit version. A longer one would take as long to read as a line has room for."""
# Beginnings of lines that carry an object; every other line is parsed in two steps.
_OBJECT_LINES: Final = (b'{"type":"ADDED"', b'{"type":"MODIFIED"', b'{"type":"DELETED"')

RawT = TypeVar("RawT")


class InvalidObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that cannot be read: which one, and why."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    message: str

    def __str__(self) -> str:
        """Name the object and the reason."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f'{self.kind} "{key}": {self.message}'


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list."""

    objects: tuple[Any, ...]
    resource_version: str
    continue_token: str = ""
    invalid: tuple[InvalidObject, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch. Exactly one of `object`, `invalid` and `error` is set, or none."""

    type: EventType
    object: Any = None
    resource_version: str = ""
    invalid: InvalidObject | None = None
    error: ApiError | None = None
    initial_events_end: bool = False


class _ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _ListOf(msgspec.Struct, Generic[RawT]):
    metadata: _ListMeta
    items: list[RawT] | None = None


class _EventOf(msgspec.Struct, Generic[RawT]):
    type: EventType
    object: RawT


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_head: Final = msgspec.json.Decoder(_Head)
_status: Final = msgspec.json.Decoder(_Status)
_raw_list: Final = msgspec.json.Decoder(_ListOf[msgspec.Raw])
_raw_event: Final = msgspec.json.Decoder(_EventOf[msgspec.Raw])


class TypedDecoders(Generic[RawT]):
    """Typed decoders of a whole list and a whole event, for the kinds that come in thousands."""

    __slots__ = ("_event", "_list", "_one", "_view")

    def __init__(self, raw_type: type[RawT], view: Callable[[RawT], StateObject]) -> None:
        self._one: Final = msgspec.json.Decoder(raw_type)
        self._list: Final[msgspec.json.Decoder[_ListOf[RawT]]] = msgspec.json.Decoder(
            _ListOf[raw_type]
        )
        self._event: Final[msgspec.json.Decoder[_EventOf[RawT]]] = msgspec.json.Decoder(
            _EventOf[raw_type]
        )
        self._view: Final = view

    def read(self, body: bytes | msgspec.Raw) -> StateObject:
        """Read one object."""
        return self._view(self._one.decode(body))

    def read_list(self, body: bytes) -> ListPage:
        """Read a page of a list without invalid objects."""
        page = self._list.decode(body)
        if not page.metadata.resource_version or not is_version(page.metadata.resource_version):
            raise ValueError("the version of the list")  # the slow way says it in full
        return ListPage(
            objects=tuple(map(self._view, page.items or ())),
            resource_version=page.metadata.resource_version,
            continue_token=page.metadata.continue_token,
        )

    def read_event(self, line: bytes) -> WatchEvent:
        """Read an event with a valid object."""
        event = self._event.decode(line)
        view = self._view(event.object)
        return WatchEvent(type=event.type, object=view, resource_version=str(version_of(view)))


@final
class Codec:
    """Reads one kind."""

    __slots__ = ("_fast", "_read", "kind")

    def __init__(
        self,
        kind: ResourceKind,
        read: Callable[[bytes | msgspec.Raw], StateObject],
        fast: TypedDecoders[Any] | None = None,
    ) -> None:
        self.kind: Final = kind
        self._read: Final = read
        self._fast: Final = fast

    def decode(self, body: bytes | msgspec.Raw) -> StateObject:
        """Read one object.

        Raises:
            BadInputError: naming object, field and value.
        """
        try:
            return self._read(body)
        except _UNREADABLE as error:
            raise BadInputError(str(self._invalid(body, error))) from error

    def decode_list(self, body: bytes) -> ListPage:
        """Read a page of a list.

        Raises:
            BadInputError: the page as a whole is no list.
        """
        with gc_paused():
            if self._fast is not None:
                try:
                    return self._fast.read_list(body)
                except _UNREADABLE:
                    pass  # some object in it: read them one by one
            return self._read_each(body)

    def decode_event(self, line: bytes) -> WatchEvent:
        """Read one line of a watch.

        Raises:
            BadInputError: the line is no watch event.
        """
        if self._fast is not None and line.startswith(_OBJECT_LINES):
            try:
                return self._fast.read_event(line)
            except _UNREADABLE:
                pass  # the object or the line: the slow way tells
        try:
            event = _raw_event.decode(line)
        except _UNREADABLE as error:
            message = f"watch of {self.kind.plural}: no watch event in {line[:200]!r}: {error}"
            raise BadInputError(message) from error
        if event.type == "ERROR":
            return WatchEvent(type="ERROR", error=_watch_error(event.object, self.kind))
        if event.type == "BOOKMARK":
            return _bookmark(event.object, self.kind)
        try:
            view = self._read(event.object)
        except _UNREADABLE as error:
            invalid = self._invalid(event.object, error)
            return WatchEvent(
                type=event.type, invalid=invalid, resource_version=invalid.resource_version
            )
        return WatchEvent(type=event.type, object=view, resource_version=str(version_of(view)))

    def _read_each(self, body: bytes) -> ListPage:
        try:
            page = _raw_list.decode(body)
        except _UNREADABLE as error:
            message = f"list of {self.kind.plural}: no list in {body[:200]!r}: {error}"
            raise BadInputError(message) from error
        if not page.metadata.resource_version:  # an empty cluster's list has one too
            raise BadInputError(
                f"list of {self.kind.plural}: no list in {body[:200]!r}: no version"
            )
        _check_version(page.metadata.resource_version, f"list of {self.kind.plural}")
        objects: list[StateObject] = []
        invalid: list[InvalidObject] = []
        for item in page.items or ():
            try:
                objects.append(self._read(item))
            except _UNREADABLE as error:
                invalid.append(self._invalid(item, error))
        return ListPage(
            objects=tuple(objects),
            resource_version=page.metadata.resource_version,
            continue_token=page.metadata.continue_token,
            invalid=tuple(invalid),
        )

    def _invalid(self, body: bytes | msgspec.Raw, error: Exception) -> InvalidObject:
        try:
            meta = _head.decode(body).metadata
        except _UNREADABLE:
            meta = _Meta()
        return InvalidObject(
            kind=self.kind.kind,
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version if is_version(meta.resource_version) else "",
            message=_explain(error),
        )


def uid_of(found: StateObject) -> str:
    """Return an object's UID."""
    return found.uid


def version_of(found: StateObject) -> int:
    """Return an object's resourceVersion; a later one is greater (KEP-5504)."""
    if isinstance(found, KubernetesObject):
        return int(found.metadata.resource_version or 0)
    return found.resource_version


def _bookmark(body: msgspec.Raw, kind: ResourceKind) -> WatchEvent:
    try:
        meta = _head.decode(body).metadata
    except _UNREADABLE as error:
        raise BadInputError(f"watch of {kind.plural}: no bookmark: {error}") from error
    if not meta.resource_version:
        raise BadInputError(f"watch of {kind.plural}: no bookmark: no version")
    _check_version(meta.resource_version, f"watch of {kind.plural}: bookmark")
    return WatchEvent(
        type="BOOKMARK",
        resource_version=meta.resource_version,
        initial_events_end=(meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true",
    )


def _watch_error(body: msgspec.Raw, kind: ResourceKind) -> ApiError:
    try:
        status = _status.decode(body)
    except _UNREADABLE as error:
        raise BadInputError(f"watch of {kind.plural}: no status: {error}") from error
    error = GoneError if status.code == _GONE or status.reason == "Expired" else ApiError
    message = f"watch {kind.plural}: {status.message or status.reason}"
    return error(message, status=status.code, reason=status.reason)


def is_version(text: str) -> bool:
    """Tell whether a text is a resourceVersion, or empty."""
    return not text or (text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS)


def _check_version(text: str, where: str) -> None:
    if not is_version(text):
        raise BadInputError(f'{where}: metadata.resourceVersion "{_shorten(text)}" is no number')


def _explain(error: Exception) -> str:
    """Return which field is wrong, the error, and its value."""
    if not isinstance(error, ValidationError):
        return str(error)
    findings: list[str] = []
    for detail in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in detail["loc"])
        text = detail["msg"].removeprefix("Value error, ")
        missing = detail["type"] in {"missing", "json_invalid"}
        value = "" if missing else f" (got {_shorten(repr(detail['input']))})"
        findings.append(f"{field}: {text}{value}" if field else f"{text}{value}")
    return "; ".join(findings)


def _shorten(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
