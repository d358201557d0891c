"""Computes merge patches (RFC 7386) from the states before and after.

We patch our own fields only, and never send an object back that was read: a field that we do not
know must survive us. A merge patch replaces lists whole: who sends a list also sends the
resourceVersion that it was computed from (`lifecycle.changes`), and a stale one is refused instead of
undoing another writer's entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec

__all__ = [
    "Json",
    "apply_merge_patch",
    "merge_patch",
]

Json: TypeAlias = "Mapping[str, object]"


def merge_patch(before: Json, after: Json) -> dict[str, object]:
    """Return the smallest patch that turns `before` into `after`; None in it deletes.

    `after` must hold no None in objects: a merge patch cannot say "set this to null".
    """
    patch: dict[str, object] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
            continue
        old_object, new_object = _as_object(before[key]), _as_object(value)
        if old_object is not None and new_object is not None:
            if inner := merge_patch(old_object, new_object):
                patch[key] = inner
        elif not _same(before[key], value):
            patch[key] = value
    return patch


def apply_merge_patch(target: object, patch: object) -> object:
    """Apply a merge patch to `target`, as RFC 7386 section 2 defines it."""
    changes = _as_object(patch)
    if changes is None:
        return patch
    result = dict(_as_object(target) or {})
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def _as_object(value: object) -> Json | None:
    return cast("Json", value) if isinstance(value, Mapping) else None


def _same(old: object, new: object) -> bool:
    """Compare as JSON does, where `true` is not 1."""
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")
