"""Reads fields of plain JSON objects; absent and null read as empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Json", "entries", "labels_of", "section"]

Json: TypeAlias = dict[str, Any]


def section(obj: Mapping[str, Any], key: str) -> Json:
    """Return an object-valued field."""
    return obj.get(key) or {}


def entries(obj: Mapping[str, Any], key: str) -> list[Json]:
    """Return a list-valued field."""
    return obj.get(key) or []


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's labels."""
    return obj["metadata"].get("labels") or {}
