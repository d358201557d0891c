"""Finds values in an answer that have another type than the model says.

botocore converts what it reads from XML. From JSON it takes texts, numbers and booleans as they are, so that
a damaged answer would be kept, and would fail wherever it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.model import ListShape, MapShape, Shape, StructureShape

__all__ = ["mistyped_values"]

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
}


def mistyped_values(shape: Shape, value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of values, such as `Parameter.Value`, that have another type than their shape.

    Only what is there is checked. Timestamps and bytes are converted by botocore.
    """
    if not _is_of(shape.type_name, value):
        yield path
        return
    for name, part, item in _parts(shape, value):
        yield from mistyped_values(part, item, ".".join(each for each in (path, name) if each))


def _parts(shape: Shape, value: object) -> Iterator[tuple[str, Shape, object]]:
    """Yield what a value of the shape's type holds, with names of members and their shapes."""
    if shape.type_name == "structure":
        members = cast("Mapping[str, object]", value)
        for name, member in cast("StructureShape", shape).members.items():
            if name in members:
                yield name, member, members[name]
    elif shape.type_name == "list":
        for item in cast("list[object]", value):
            yield "", cast("ListShape", shape).member, item
    elif shape.type_name == "map":
        for item in cast("Mapping[str, object]", value).values():
            yield "", cast("MapShape", shape).value, item


def _is_of(kind: str, value: object) -> bool:
    types = _TYPES.get(kind)
    if types is None:
        return True
    if isinstance(value, bool):  # which is an integer to Python
        return types is bool
    return isinstance(value, types)
