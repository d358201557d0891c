"""Writes values down whole: two values have the same text when nothing in them differs.

Unordered collections are sorted; objects of the API are named, as their content is input.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum

import msgspec

from karpenter_core.api.base import KubernetesObject
from karpenter_core.api.records import NodeView, PodView
from karpenter_core.scheduling.instance_types import InstanceType
from karpenter_core.state.snapshot import StateNode

_PLAIN = (str, int, float, bool, bytes, type(None))


def canonical_text(value: object) -> str:
    """Return the text of a value, with all that it is made of."""
    match value:
        case Enum():
            return str(value)
        case float():
            return f"{value:.9g}"
        case _ if isinstance(value, _PLAIN):
            return repr(value)
        case PodView() | NodeView() | KubernetesObject() | InstanceType() | StateNode():
            return f"{type(value).__name__} {value.name}"
        case Mapping():
            pairs = sorted(
                f"{canonical_text(key)}: {canonical_text(each)}" for key, each in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        case AbstractSet():
            return "{" + ", ".join(sorted(map(canonical_text, value))) + "}"
        case Sequence():
            return "[" + ", ".join(map(canonical_text, value)) + "]"
        case _ if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
            return whole_text(value)
        case _:
            text = str(value)
            return type(value).__name__ if " at 0x" in text else text


def whole_text(value: object) -> str:
    """Return the text of a record with all its fields, where it would only be named inside others.

    Raises:
        TypeError: it is no record.
    """
    names = (
        value.__struct_fields__
        if isinstance(value, msgspec.Struct)
        else [each.name for each in dataclasses.fields(value)]  # type: ignore[arg-type] - a record
    )
    shown = (f"{name}={canonical_text(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({', '.join(shown)})"


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
