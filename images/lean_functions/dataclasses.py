"""Functions in the place of those of Python's `dataclasses`."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, _set_new_attribute  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportPrivateUsage] - as the function that this replaces
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from dataclasses import Field

__all__ = ["_frozen_get_del_attr"]


def _frozen_get_del_attr(cls: type, fields: Sequence[Field[object]], func_builder: object) -> None:
    """Give a frozen class its two methods as closures, where text is compiled for each class.

    A class with slots is a copy, and those methods keep the class alive that it was made of. Setting
    what is no field of such a class is a TypeError here as there.
    """
    from _weakref import ref

    del func_builder
    owner = ref(cls)
    names = tuple([field.name for field in fields])

    def set_field(self: object, name: str, value: object) -> None:
        if type(self) is owner() or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(owner(), self).__setattr__(name, value)  # pyright: ignore[reportArgumentType] - None is a TypeError

    def delete_field(self: object, name: str) -> None:
        if type(self) is owner() or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(owner(), self).__delattr__(name)  # pyright: ignore[reportArgumentType] - None is a TypeError

    for name, method in (("__setattr__", set_field), ("__delattr__", delete_field)):
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
        if _set_new_attribute(cls, name, method):
            raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
