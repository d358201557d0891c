"""Reads texts, objects and lists in decoded answers of Alibaba Cloud.

The SDK declares no types for answers, and passes on whatever JSON came. What is no text is refused: taken
for an id, it would look like a difference between an instance and its NodeClass. A list that is missing is
refused, too: taken for an empty one, everything that it lists would be gone.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from karpenter_core.api.json_objects import JsonMapping
from karpenter_core.errors import CloudProviderError

__all__ = ["ApiAnswer", "object_of", "objects_at", "text_of", "texts_of"]

ApiAnswer: TypeAlias = JsonMapping
"""The decoded body of an answer, or an object in it."""


def text_of(item: ApiAnswer, name: str) -> str:
    """Return a text; empty where there is none.

    Raises:
        CloudProviderError: it is no text.
    """
    value = _member(item, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable(name, value, "a text")
    return value


def texts_of(item: ApiAnswer, name: str) -> tuple[str, ...]:
    """Return a list of texts; empty where there is none.

    Raises:
        CloudProviderError: it is no list of texts.
    """
    value = _member(item, name)
    if value is None:
        return ()
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    texts = tuple(entry for entry in entries if isinstance(entry, str))
    if not isinstance(value, list) or len(texts) < len(entries):
        raise _unreadable(name, entries, "a list of texts")
    return texts


def object_of(item: ApiAnswer, name: str) -> ApiAnswer:
    """Return an object; an empty one where there is none.

    Raises:
        CloudProviderError: it is no object.
    """
    value = _member(item, name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _unreadable(name, value, "an object")
    return cast("ApiAnswer", value)


def objects_at(answer: ApiAnswer, path: str, *, action: str) -> list[ApiAnswer]:
    """Return the list at a path of an answer, such as `VSwitches.VSwitch`.

    Raises:
        CloudProviderError: there is no list, or it has other items than objects.
    """
    value: object = answer
    for name in path.split("."):
        value = cast("ApiAnswer", value).get(name) if isinstance(value, dict) else None
    if not isinstance(value, list):
        raise CloudProviderError(f"{action}: the answer has no list {path}")
    for item in cast("list[object]", value):
        if not isinstance(item, dict):
            raise CloudProviderError(
                f"{action}: an item of {path} is no object: {str(item)[:100]!r}"
            )
    return cast("list[ApiAnswer]", value)


def _member(item: object, name: str) -> object:
    if not isinstance(item, dict):
        raise _unreadable(name, item, "in an object")
    return cast("dict[str, object]", item).get(name)


def _unreadable(name: str, value: object, expected: str) -> CloudProviderError:
    return CloudProviderError(f"{name} in the answer is not {expected}: {str(value)[:100]!r}")
