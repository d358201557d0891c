"""Reads fields of plain JSON objects; absent and null read as empty."""

from __future__ import annotations

from typing import TypeAlias

from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["Json", "entries", "labels_of", "section"]

Json: TypeAlias = JsonObject


def section(obj: JsonMapping, key: str) -> Json:
    """Return an object-valued field."""
    return obj.get(key) or {}


def entries(obj: JsonMapping, key: str) -> list[Json]:
    """Return a list-valued field."""
    return obj.get(key) or []


def labels_of(obj: JsonMapping) -> dict[str, str]:
    """Return an object's labels."""
    return obj["metadata"].get("labels") or {}
