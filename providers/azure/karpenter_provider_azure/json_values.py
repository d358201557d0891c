"""Reads values of JSON answers that may be missing or null."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["listed_items", "object_of", "objects_of", "properties_of", "tags_of", "texts_of"]


def object_of(value: object) -> JsonMapping:
    """Return an object; an empty one for anything else."""
    return cast("JsonMapping", value) if isinstance(value, dict) else {}


def properties_of(resource: JsonMapping) -> JsonMapping:
    """Return the properties of a resource; none if it has none."""
    return object_of(resource.get("properties"))


def objects_of(value: object) -> list[JsonMapping]:
    """Return the objects in a list; none for anything else."""
    return [object_of(each) for each in _items(value)]


def texts_of(value: object) -> tuple[str, ...]:
    """Return the items of a list as texts; none for anything else."""
    return tuple(str(each) for each in _items(value))


def tags_of(value: object) -> dict[str, str]:
    """Return tags; none for anything else than an object."""
    return {str(key): str(tag) for key, tag in object_of(value).items()}


def listed_items(pages: Iterable[JsonObject], field: str, *, action: str) -> list[JsonObject]:
    """Return the items in a field of all pages of a listing (`token_pages`).

    Raises:
        CloudProviderError: a page has no items, or the pages go in a circle: a part of a listing is
            never returned.
    """
    found: list[JsonObject] = []
    try:
        for page in pages:
            items: object = page.get(field)
            if not isinstance(items, list):
                raise CloudProviderError(f"{action}: a page of the listing has no list `{field}`")
            for item in cast("list[object]", items):
                if not isinstance(item, dict):
                    raise CloudProviderError(
                        f"{action}: an item of the listing is no object: {item!r}"
                    )
            found += cast("list[JsonObject]", items)
    except RuntimeError as error:
        raise CloudProviderError(str(error)) from error
    return found


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
