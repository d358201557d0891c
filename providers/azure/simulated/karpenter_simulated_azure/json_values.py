"""Reads members of JSON bodies that may be missing or null."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject

__all__ = ["object_in", "texts_of"]


def object_in(value: object, *names: str) -> JsonObject:
    """Return the object at a path of members; empty if there is none."""
    found = value
    for name in names:
        found = cast("JsonObject", found).get(name) if isinstance(found, dict) else None
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def texts_of(value: object) -> dict[str, str]:
    """Return an object of texts, such as tags; empty for anything else."""
    return {key: str(each) for key, each in object_in(value).items()}
