"""Computes merge patches (RFC 7386) from the states before and after.

We patch our own fields only, and never send an object back that was read: a field that we do not
know must survive us. A merge patch replaces lists whole, so a patch with a list also carries
the resourceVersion that it was computed from, and a stale one is refused instead of undoing
somebody else's entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    from karpenter_core.api.base import KubernetesObject

__all__ = [
    "Json",
    "ObjectPart",
    "VersionedPatch",
    "apply_merge_patch",
    "holds_list",
    "merge_patch",
    "patch_for",
]

Json: TypeAlias = "Mapping[str, object]"
ObjectPart: TypeAlias = Literal["metadata", "spec", "status"]

# What the API server owns in metadata; the rest is ours to change.
_OWN_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedPatch:
    """A merge patch and, if it replaces a list, the resourceVersion it was computed from."""

    body: Mapping[str, object]
    resource_version: str | None = None


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


def holds_list(patch: object) -> bool:
    """Whether the patch replaces a list somewhere, and so needs an optimistic lock."""
    changes = _as_object(patch)
    if changes is None:
        return isinstance(patch, list | tuple)
    return any(holds_list(value) for value in changes.values())


def patch_for(
    before: KubernetesObject,
    after: KubernetesObject,
    *,
    parts: tuple[ObjectPart, ...] = ("metadata",),
) -> VersionedPatch | None:
    """Return the patch from one version of an object of ours to the next, or None if equal.

    `metadata` and `spec` travel together; `status` is a write of its own (its subresource).
    The lock stands on `before`, whatever `after` says its version is.
    """
    body = merge_patch(_parts_of(before, parts), _parts_of(after, parts))
    if not body:
        return None
    locked = holds_list(body)
    return VersionedPatch(
        body=body, resource_version=before.metadata.resource_version if locked else None
    )


def _parts_of(resource: KubernetesObject, parts: tuple[ObjectPart, ...]) -> dict[str, object]:
    dump = resource.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(parts))
    if "metadata" in dump:
        metadata: dict[str, object] = dump["metadata"]
        dump["metadata"] = {key: metadata[key] for key in _OWN_METADATA if key in metadata}
    return dump


def _as_object(value: object) -> Json | None:
    return cast("Json", value) if isinstance(value, Mapping) else None


def _same(old: object, new: object) -> bool:
    """Compare as JSON does, where `true` is not 1."""
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")
