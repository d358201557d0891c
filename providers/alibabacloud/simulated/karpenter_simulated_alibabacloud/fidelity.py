"""Checks answers against the SDK's models: names and types.

The SDK's models drop unknown names in silence, so a name that the simulated cloud made up would
make a provider work here and nowhere else.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["departures"]

_PACKAGES: Final = {
    "ecs": "alibabacloud_ecs20140526.models",
    "vpc": "alibabacloud_vpc20160428.models",
    "cs": "alibabacloud_cs20151215.models",
}
_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def departures(service: str, action: str, answer: object) -> list[str]:
    """Return where an answer is not as the SDK has it, as paths; of a list, each item is an answer."""
    if isinstance(answer, str):
        return []
    model = getattr(import_module(_PACKAGES[service]), f"{action}ResponseBody")
    items = cast("list[object]", answer) if isinstance(answer, list) else [answer]
    found: list[str] = []
    for item in items:
        read = model().from_map(item)
        found.extend(_lost(item, read.to_map(), ""))
        found.extend(_mistyped(read, ""))
    return found


def _lost(sent: object, kept: object, path: str) -> Iterator[str]:
    """Return what of an answer does not come out of the model again."""
    if isinstance(sent, dict):
        names = cast("dict[str, object]", sent)
        known = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
        for name, value in names.items():
            if name in known:
                yield from _lost(value, known[name], f"{path}.{name}")
            else:
                yield f"{path}.{name} is unknown"
    elif isinstance(sent, list):
        items = cast("list[object]", sent)
        others = cast("list[object]", kept) if isinstance(kept, list) else []
        if len(items) != len(others):
            yield f"{path} has {len(others)} items instead of {len(items)}"
        for number, (item, other) in enumerate(zip(items, others, strict=False)):
            yield from _lost(item, other, f"{path}[{number}]")
    elif sent != kept:
        yield f"{path} becomes {kept!r} instead of {sent!r}"


@cache
def _declared(model: type) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a model with the types that it declares, as written."""
    parameters = inspect.signature(model).parameters.values()
    return tuple((each.name, str(each.annotation)) for each in parameters if each.name != "self")


def _mistyped(model: object, path: str) -> Iterator[str]:
    """Return the values of a model that are not of the types that it declares."""
    for name, declared in _declared(type(model)):
        value = getattr(model, name, None)
        if value is None:
            continue
        here = f"{path}.{name}"
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        kind = declared.removeprefix("List[").removesuffix("]") if items is value else declared
        for item in items:
            if expected := _SCALARS.get(kind):
                if not isinstance(item, expected) or (
                    isinstance(item, bool) and bool not in expected
                ):
                    yield f"{here} is {item!r}, which is no {kind}"
            elif kind.startswith("main_models."):
                yield from _mistyped(item, here)
