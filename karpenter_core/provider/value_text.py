"""Describes values and exceptions of plug-ins in one bounded line.

A wrong answer may be a listing of 100,000 instances, and an exception may hold a page of HTML. Both end up
in conditions, Events and logs, and to print them whole would hold up the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final, cast

__all__ = ["error_text", "raw_value", "value_text"]

_MOST_CHARACTERS: Final = 300
_MOST_ITEMS: Final = 3
"""Number of items from which a collection is counted instead of printed."""
_MOST_PRINTED: Final = 10_000
"""Length of a text from which it is cut off before it is quoted."""


def value_text(value: object) -> str:
    """Return a value as Python writes it, without what is too long."""
    kind = type(value).__name__
    if isinstance(value, str | bytes):
        return _cut(repr(value[:_MOST_PRINTED]))
    is_collection = isinstance(value, list | tuple | set | frozenset | Mapping)
    if is_collection and (count := len(cast("Sized", value))) > _MOST_ITEMS:
        return f"a {kind} of {count} items"
    return _cut(_representation(cast("object", value)))


def raw_value(value: object) -> object:
    """Return a value without its declared type, for checks of its real type."""
    return value


def error_text(error: BaseException) -> str:
    """Return an exception as Python writes it, without what is too long."""
    return _cut(_representation(error))


def _representation(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    text = " ".join(text[:_MOST_PRINTED].split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
