"""Write what `tomllib` reads.

Python's library reads TOML and writes none. Only the plain forms are written: tables, and inline
tables within arrays; what was read and is written again reads the same.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["to_toml"]

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES: Final = {
    "\\": "\\\\",
    '"': '\\"',
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_TO_ESCAPE: Final = re.compile(r'[\\"\x00-\x1f\x7f]')


def to_toml(document: Mapping[str, object]) -> str:
    """Return a document: of each table its values first, then the tables within, in their order.

    Raises:
        TypeError: a value is of a type that TOML has not.
    """
    return "\n".join(_table(document, ()))


def _table(table: Mapping[str, object], path: tuple[str, ...]) -> Iterable[str]:
    """Yield the blocks of a table, each ending in a line break."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    tables = {
        key: cast("dict[str, object]", value)
        for key, value in table.items()
        if isinstance(value, dict)
    }
    header = [f"[{'.'.join(_key(part) for part in path)}]"] if path else []
    lines = [*header, *(f"{_key(key)} = {_value(value)}" for key, value in values.items())]
    if values or (path and not tables):
        yield "\n".join(lines) + "\n"
    for key, inner in tables.items():
        yield from _table(inner, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return _string(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            items = cast("list[object]", value)
            return f"[{', '.join(_value(item) for item in items)}]"
        case dict():
            entries = cast("dict[str, object]", value)
            pairs = (f"{_key(key)} = {_value(entry)}" for key, entry in entries.items())
            return f"{{ {', '.join(pairs)} }}" if entries else "{}"
        case _:
            message = f"TOML has no type for {value!r}"
            raise TypeError(message)


def _string(text: str) -> str:
    return '"' + _TO_ESCAPE.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _ESCAPES.get(character, f"\\u{ord(character):04x}")
