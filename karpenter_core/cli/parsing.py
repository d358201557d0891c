"""Parses the text of a file into its documents: YAML or JSON, one or many.

Text is parsed as in Kubernetes: dates stay strings, and a duplicate key in an object is an error,
because one of the two values would be lost.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.errors import BadInputError
from karpenter_core.kube.garbage_collector import gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_documents", "template_hint"]

_TEMPLATE: Final = re.compile(r"\{\{.*\}\}|\$\{\w+\}")

_UNREAD: Final = object()
_COMPACT: Final = -1
_END_OF_KEY: Final = b'":'
_ESCAPED_QUOTE: Final = b'\\":'
_ESCAPED_BACKSLASH: Final = b'\\\\":'


def read_documents(name: str, text: str) -> list[object]:
    """Return the documents of a file; JSON is recognised whatever the name of the file.

    Raises:
        BadInputError: the text is neither YAML nor JSON; names the file, and the line if known.
    """
    is_json = name.lower().removesuffix(".gz").endswith(".json")
    if is_json or text.lstrip().startswith(("{", "[")):
        try:
            with gc_paused():
                document = _json_document(text)
                return list(_json_documents(text)) if document is _UNREAD else [document]
        except _DuplicateKeyError as error:
            raise BadInputError(f"{name}: {error}") from error
        except json.JSONDecodeError as error:
            if is_json:
                message = (
                    f"{name}: line {error.lineno}: is not JSON: {error.msg} (column {error.colno})"
                )
                raise BadInputError(message) from error
        except RecursionError as error:
            raise BadInputError(f"{name}: is nested too deeply") from error
        except ValueError as error:  # more digits than Python converts
            problem = str(error).partition(";")[0]
            raise BadInputError(f"{name}: is not JSON that can be read: {problem}") from error
    return _yaml_documents(name, text)


class _DuplicateKeyError(Exception):
    """A key is duplicated in one object."""


def _json_document(text: str) -> object:
    """Parse a text that is one JSON document without duplicate keys; else return `_UNREAD`.

    Several times as fast as a parser that sees the keys of each object. The parser used here keeps the
    last of duplicate keys, so the keys of the text are counted and compared with those of the value.
    """
    written = text.encode("utf-8", "surrogatepass")
    try:
        document: object = msgspec.json.decode(written)
        compact = msgspec.json.format(written, indent=_COMPACT)
    except (msgspec.MsgspecError, RecursionError):
        return _UNREAD
    if (
        _ESCAPED_BACKSLASH in compact
    ):  # a key may end with a backslash: its end would not be counted
        return _UNREAD
    kept = _count_keys(msgspec.json.encode(document))
    return document if _count_keys(compact) == kept else _UNREAD


def _count_keys(compact: bytes) -> int:
    """Count the keys in compact JSON; an escaped quote before a colon stands inside a string."""
    return compact.count(_END_OF_KEY) - compact.count(_ESCAPED_QUOTE)


def _json_documents(text: str) -> Iterator[object]:
    """Parse consecutive JSON documents, as `jq` writes them."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    position = 0
    while True:
        document, end = decoder.raw_decode(text, _next_token(text, position))
        yield document
        position = _next_token(text, end)
        if position == len(text):
            return


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateKeyError(f'field "{twice}": is duplicated in one object')
    return mapping


def _next_token(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _yaml_documents(name: str, text: str) -> list[object]:
    import yaml

    from karpenter_core.cli.yaml_reader import UnsupportedYamlError, load_all

    try:
        return list(load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" line {mark.line + 1}:"
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        if not isinstance(error, UnsupportedYamlError):
            problem = f"is not YAML: {problem}"
        hint = template_hint(text)
        raise BadInputError(f"{name}:{line} {problem}{hint}") from error


def template_hint(text: str) -> str:
    """Return what to do with a text that seems to be a template; empty for others."""
    if _TEMPLATE.search(text) is None:
        return ""
    return "; it seems to be a template: render it first (helm template, envsubst)"
