"""The fields of the kubelet's configuration, and strict reading by them.

The API server stores `spec.kubelet` as it is, so that a new field of the kubelet needs no new CRD.
A kubelet, however, refuses to start with a field that it does not know, or one of another type. The
fields of KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`) are data (`fields.json`, written by
`tools/make_kubelet_fields.py`).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.api.durations import parse_nanoseconds
from karpenter_core.api.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["READABLE_TYPES", "Shape", "known_fields", "unreadable_fields"]

Shape: TypeAlias = "str | JsonObject"
"""The name of a type, or `{"fields": {name: shape}}`, `{"list": shape}`, `{"map": shape}`."""

_INTEGERS: Final = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
}


@cache
def known_fields() -> Mapping[str, Shape]:
    """Return the shape of each field."""
    text = files(__package__ or "").joinpath("fields.json").read_text(encoding="utf-8")
    return json.loads(text)["fields"]


def unreadable_fields(kubelet: Mapping[str, object], *, place: str) -> Iterator[str]:
    """Say which fields a kubelet would not read: unknown ones and those of another type.

    `place` is the path of the map, in front of every complaint. Nulls are absent fields.
    """
    yield from _fields(dict(kubelet), dict(known_fields()), place)


def _fields(value: dict[str, object], known_fields: dict[str, Shape], place: str) -> Iterator[str]:
    for name in sorted(value):
        if name in known_fields:
            yield from _value(value[name], known_fields[name], f"{place}.{name}")
        else:
            yield f"{place}.{name}: no such field"


def _value(value: object, shape: Shape, place: str) -> Iterator[str]:
    if value is None:
        return
    match shape:
        case str():
            if not _READERS[shape](value):
                yield f"{place}: must be {_WANTED[shape]}, not {_value_text(value)}"
        case {"list": item}:
            if not isinstance(value, list | tuple):
                yield f"{place}: must be a list, not {_value_text(value)}"
                return
            for index, each in enumerate(cast("list[object]", value)):
                yield from _value(each, item, f"{place}[{index}]")
        case _:
            if not isinstance(value, dict):
                yield f"{place}: must be a map, not {_value_text(value)}"
                return
            entries = cast("dict[str, object]", value)
            if "fields" in shape:
                yield from _fields(entries, shape["fields"], place)
                return
            for key in sorted(entries):
                yield from _value(entries[key], shape["map"], f"{place}[{key}]")


def _value_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(kind: str) -> Callable[[object], bool]:
    lowest, highest = _INTEGERS[kind]

    def reads(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return float(value).is_integer() and lowest <= value <= highest

    return reads


def _is_duration(value: object) -> bool:
    return isinstance(value, str) and _parses(parse_nanoseconds, value)


def _is_quantity(value: object) -> bool:
    return _parses(parse_quantity, str(value))  # no other type than text and number is written so


def _is_time(value: object) -> bool:
    from datetime import datetime

    return isinstance(value, str) and _parses(datetime.fromisoformat, value)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_READERS: Final[dict[str, Callable[[object], bool]]] = {
    "string": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "int32": _is_integer("int32"),
    "int64": _is_integer("int64"),
    "uint32": _is_integer("uint32"),
    "float64": _is_number,
    "Duration": _is_duration,
    "Quantity": _is_quantity,
    "QuantityValue": _is_quantity,
    "Time": _is_time,
    # Nanoseconds, as it once was, or a duration
    "TimeOrMetaDuration": lambda value: _is_integer("int64")(value) or _is_duration(value),
}
"""By the name of a type in Go: whether it takes a JSON value."""

READABLE_TYPES: Final = frozenset(_READERS)
"""The types that the data may name."""

_WANTED: Final = {
    "string": "a text",
    "bool": "true or false",
    "int32": "a whole number",
    "int64": "a whole number",
    "uint32": "a whole number of zero or more",
    "float64": "a number",
    "Duration": "a duration such as 30s",
    "Quantity": "a quantity such as 1Gi",
    "QuantityValue": "a quantity such as 1Gi",
    "Time": "an instant",
    "TimeOrMetaDuration": "a duration such as 30s",
}
