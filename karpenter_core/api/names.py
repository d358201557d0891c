"""Kubernetes' rules for names and values of labels, taints and annotations.

For fields of our kinds the API server checks only patterns; this module checks lengths and prefixes.
"""

from __future__ import annotations

import re
from typing import Final

from karpenter_core.errors import BadInputError

__all__ = ["label_value_error", "parse_labels", "qualified_name_error"]

# Kubernetes' limits
_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253

_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    "must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
)


def qualified_name_error(name: str) -> str:
    """Return the error of a qualified name (`team`, `example.com/team`); empty if it is valid."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        return "has more than one '/'"
    if slash:
        if len(prefix) > _LONGEST_PREFIX:
            return f"prefix must be no more than {_LONGEST_PREFIX} characters"
        if not _PREFIX.fullmatch(prefix):
            return "prefix must be a lower-case DNS subdomain such as example.com"
    if len(rest) > _LONGEST_NAME:
        return f"name must be no more than {_LONGEST_NAME} characters"
    return "" if _NAME.fullmatch(rest) else f"name {_NAME_RULE}"


def label_value_error(value: str) -> str:
    """Return the error of a label value; empty if it is valid."""
    if len(value) > _LONGEST_NAME:
        return f"must be no more than {_LONGEST_NAME} characters"
    return "" if not value or _NAME.fullmatch(value) else _NAME_RULE


def parse_label_query(text: str) -> dict[str, str | None]:
    """Read `key,key=value,...`; a key without value stands for any value.

    Raises:
        BadInputError: a part is no label.
    """
    parts = [part for part in (piece.strip() for piece in text.split(",")) if part]
    query: dict[str, str | None] = {}
    for part in parts:
        query |= parse_labels(part) if "=" in part else dict.fromkeys(parse_labels(f"{part}="))
    return query


def parse_labels(text: str) -> dict[str, str]:
    """Read `key=value,...`.

    Raises:
        BadInputError: a part is no label.
    """
    labels: dict[str, str] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            continue
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator:
            raise BadInputError(f'"{part}" is not key=value')
        if problem := qualified_name_error(key):
            raise BadInputError(f'key "{key}": {problem}')
        if problem := label_value_error(value):
            raise BadInputError(f'value "{value}" of "{key}": {problem}')
        labels[key] = value
    return labels
