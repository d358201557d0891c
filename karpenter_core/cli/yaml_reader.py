"""Parses YAML like Kubernetes, several times as fast as the library's loader.

The library parses in C but makes an object of every node before it makes the value: most of the
time of reading a large file. Here values are made of its events directly.

Dates stay text, keys become text, merge keys are merged. A key that is given twice in one object
is an error, for one of the two values would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import yaml
from yaml.error import MarkedYAMLError

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["UnsupportedYamlError", "load_all"]

_Collection: TypeAlias = "dict[str, object] | list[object] | None"

_DEEPEST: Final = 200
_MOST_REPEATED: Final = 10_000_000
"""Maximum number of values that aliases may expand to in a document."""
_STRING: Final = "tag:yaml.org,2002:str"
_SHOWN: Final = 60
"""Length to which values are cut in messages."""
_TAGS: Final[dict[type[object], set[str | None]]] = {
    kind: {None, "!", *(f"tag:yaml.org,2002:{name}" for name in names)}
    for kind, names in (
        (dict, ("map",)),
        (list, ("seq",)),
        (str, ("str", "int", "float", "bool", "null")),
    )
}
_MERGE: Final = "<<"
_NOTHING: Final = object()
_LOADER: Final = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader


class UnsupportedYamlError(MarkedYAMLError):
    """The document is YAML, but cannot be a Kubernetes object."""


def load_all(text: str) -> Iterator[object]:
    """Yield the documents of a text.

    Raises:
        UnfitError: a value cannot be part of a Kubernetes object.
        yaml.YAMLError: the text is not YAML.
    """
    builder = _DocumentBuilder()
    for event in yaml.parse(text, Loader=_LOADER):
        document = builder.take(event)
        if document is not _NOTHING:
            yield document


@final
class _DocumentBuilder:
    """Builds values from events, with a stack of open collections."""

    def __init__(self) -> None:
        self._scalars: Final = _ScalarConstructor()
        self._anchors = dict[str, tuple[object, int]]()
        """Values by anchor, and the number of values in each."""
        self._open = list[tuple[_Collection, yaml.CollectionStartEvent, str | None, int]]()
        """Each open collection, its start, the key that waits for a value, and the count at its
        start.
        """
        self._count = 0
        self._repeated = 0
        self._collection: _Collection = None
        self._key: str | None = None

    def take(self, event: yaml.Event) -> object:
        """Process one event; return a document when it is complete."""
        if isinstance(event, yaml.ScalarEvent):
            value, start, size = self._scalars.value(event), event, 1
            if self._key is None and isinstance(self._collection, dict):
                self._key = self._new_key(event, value, self._collection)
                return _NOTHING
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
            return _NOTHING
        elif isinstance(event, yaml.CollectionEndEvent):
            value, start, before = self._end()
            size = self._count - before + 1
        elif isinstance(event, yaml.AliasEvent):
            return self._add(event, self._value_of_alias(event))
        else:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                self._repeated = 0
            return _NOTHING
        if start.anchor is not None:
            self._anchors[start.anchor] = value, size
        self._count += 1
        return self._add(start, value)

    def _value_of_alias(self, event: yaml.AliasEvent) -> object:
        if event.anchor not in self._anchors:
            raise _error(event, f'alias "{event.anchor}" names no anchor before it')
        value, size = self._anchors[event.anchor]
        self._count += size
        self._repeated += size
        if self._repeated > _MOST_REPEATED:
            raise _error(event, "aliases stand for too much")
        return value

    def _start(
        self, event: yaml.CollectionStartEvent, empty: dict[str, object] | list[object]
    ) -> None:
        _check_tag(event, dict if isinstance(empty, dict) else list)
        if len(self._open) == _DEEPEST:
            raise _error(event, "is nested too deeply")
        self._open.append((self._collection, event, self._key, self._count))
        self._collection, self._key = empty, None

    def _end(self) -> tuple[object, yaml.CollectionStartEvent, int]:
        value = self._collection
        if isinstance(value, dict) and _MERGE in value:
            value = _merged(value)
        self._collection, event, self._key, before = self._open.pop()
        return value, event, before

    def _add(self, event: yaml.Event, value: object) -> object:
        """Add a value to the open collection; without one it is a document."""
        here = self._collection
        if here is None:
            return value
        if isinstance(here, list):
            here.append(value)
        elif self._key is None:
            raise _error(event, "a key must be text")
        else:
            if self._key == _MERGE:
                _check_merge(event, value)
            here[self._key] = value
            self._key = None
        return _NOTHING

    def _new_key(self, event: yaml.ScalarEvent, value: object, here: dict[str, object]) -> str:
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1
        if type(value) is str:
            key = value
        elif type(value) is bool:
            key = "true" if value else "false"
        else:
            key = str(event.value)
        if key in here:
            raise _error(event, f'field "{key}": is duplicated in one object')
        return key


@final
class _ScalarConstructor:
    """Builds values from scalars; equal plain scalars are resolved once."""

    def __init__(self) -> None:
        self._read_values: Final = dict[str, object]()
        self._loader: Final = _plain_loader()("")

    def value(self, event: yaml.ScalarEvent) -> object:
        if event.tag is None or event.tag == "!":
            if not event.implicit[0]:
                return event.value
            value_read = self._read_values.get(event.value, _NOTHING)
            if value_read is _NOTHING:
                tag = self._loader.resolve(yaml.ScalarNode, event.value, (True, False))
                value_read = self._read_values[event.value] = self._construct(event, tag)
            return value_read
        _check_tag(event, str)
        return self._construct(event, event.tag)

    def _construct(self, event: yaml.ScalarEvent, tag: str) -> object:
        if tag == _STRING:
            return event.value
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError) as error:
            text = event.value if len(event.value) <= _SHOWN else f"{event.value[:_SHOWN]}..."
            raise _error(event, f'"{text}" is no value of tag "{tag}"') from error


def _plain_loader() -> type[yaml.SafeLoader]:
    """Return a loader that reads dates and merge keys as strings."""
    left_alone = {
        "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", "tag:yaml.org,2002:merge",
    }  # fmt: skip
    resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag not in left_alone]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    class PlainLoader(yaml.SafeLoader):
        yaml_implicit_resolvers = resolvers

    return PlainLoader


def _check_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, kind: type[object]) -> None:
    if event.tag not in _TAGS[kind]:
        raise _error(event, f'tag "{event.tag}" is not known')


def _check_merge(event: yaml.Event, value: object) -> None:
    parts = cast("list[object]", value) if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise _error(event, "a merge key takes an object or a list of objects")


def _merged(mapping: dict[str, object]) -> dict[str, object]:
    """Merge objects into an object; its own fields have precedence, then the first merged ones."""
    value: object = mapping[_MERGE]
    parts = cast("list[dict[str, object]]", value if isinstance(value, list) else [value])
    merged: dict[str, object] = {}
    for part in reversed(parts):
        merged |= part
    return merged | {key: inner for key, inner in mapping.items() if key != _MERGE}


def _error(event: yaml.Event, problem: str) -> UnsupportedYamlError:
    return UnsupportedYamlError(problem=problem, problem_mark=event.start_mark)
