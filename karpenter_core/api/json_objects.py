"""Names the types of decoded JSON: manifests, schemas and answers of APIs.

A schema, a codec or another API describes their members; no Python type does. These aliases are
where such objects are dynamically typed: code that only passes an object on takes
`Mapping[str, object]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["JsonMapping", "JsonObject", "JsonValue"]

JsonValue: TypeAlias = Any
"""A value in decoded JSON, which its reader knows the type of."""
JsonObject: TypeAlias = dict[str, JsonValue]
"""A decoded JSON object that may be changed."""
JsonMapping: TypeAlias = Mapping[str, JsonValue]
"""A decoded JSON object that is only read."""
