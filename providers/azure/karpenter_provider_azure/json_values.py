"""Reads values of JSON answers that may be missing or null."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["object_of"]


def object_of(value: object) -> JsonMapping:
    """Return an object; an empty one for anything else."""
    return cast("JsonMapping", value) if isinstance(value, dict) else {}
