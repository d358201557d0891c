"""Reads values of JSON of unknown form; reads another form as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

__all__ = ["as_integer", "as_items", "as_object", "as_objects"]


def as_object(value: object) -> Mapping[str, object]:
    """Return a value of JSON if it is an object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def as_items(value: object) -> list[object]:
    """Return a value of JSON if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_objects(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a list of JSON."""
    return [as_object(each) for each in as_items(value)]


def as_integer(value: object) -> int:
    """Return a value of JSON if it is an integer, else 0."""
    return value if isinstance(value, int) else 0
