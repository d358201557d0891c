"""Bounds, patterns and enums that the API server enforces on a field.

Models parse leniently: an object that the API server has accepted must never break this process,
even if it was written under an older schema. So the models check no bounds, patterns or enums: these
are `Facets` beside the field, rendered into the CRD and enforced from there (`api.schema`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

__all__ = [
    "DURATION",
    "DURATION_OR_NEVER",
    "LABEL_VALUE",
    "QUALIFIED_NAME",
    "UNSET",
    "Facets",
    "NestedFacets",
    "RenderedAs",
]

# Patterns of the API reference
DURATION: Final = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER: Final = r"^(([0-9]+(s|m|h))+|Never)$"
QUALIFIED_NAME: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"

UNSET: Final = object()
"""Marks a facet that is not given, where None is a possible value."""

_EXTENSION_NAMES: Final = {
    "list_type": "x-kubernetes-list-type",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "map_type": "x-kubernetes-map-type",
    "preserve_unknown_fields": "x-kubernetes-preserve-unknown-fields",
    "embedded_resource": "x-kubernetes-embedded-resource",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """Constraints on one value, for `Annotated[...]`; named as in OpenAPI.

    A field with a default in its model is optional in the API unless `required` says otherwise,
    and the API server fills in the same default unless `default` gives another.
    """

    pattern: str | None = None
    enum: tuple[str, ...] | None = None
    format: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    nullable: bool | None = None
    list_type: Literal["atomic", "set", "map"] | None = None
    list_map_keys: tuple[str, ...] | None = None
    map_type: Literal["atomic", "granular"] | None = None
    preserve_unknown_fields: bool | None = None
    embedded_resource: bool | None = None
    required: bool | None = None
    default: object = UNSET

    def to_schema(self) -> dict[str, object]:
        """Return the keywords of the schema; `required` and `default` belong to the parent."""
        schema: dict[str, object] = {}
        for field in fields(self):
            value: object = getattr(self, field.name)
            if field.name in {"required", "default"} or value is None:
                continue
            keyword = _EXTENSION_NAMES.get(field.name) or _camel(field.name)
            schema[keyword] = [*value] if isinstance(value, tuple) else value
        return schema


class NestedFacets:
    """Facets and rules for a path below a field, for a kind that is stricter than another.

    `NestedFacets("items.key", CEL(...))` on a list adds a rule to the property `key` of its items.
    """

    __slots__ = ("metadata", "path")

    def __init__(self, path: str, *metadata: object) -> None:
        self.path: Final = tuple(path.split("."))
        self.metadata: Final = metadata


class RenderedAs:
    """Renders a field as another type, where the CRD promises less than the model reads.

    A status that repeats one of our strict models would repeat its rules as well, and the API
    server has a budget for rules: `Annotated[tuple[Strict, ...], RenderedAs(tuple[Plain, ...])]`.
    """

    __slots__ = ("annotation",)

    def __init__(self, annotation: object) -> None:
        self.annotation: Final = annotation


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
