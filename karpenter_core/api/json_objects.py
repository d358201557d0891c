"""Names the types of decoded JSON: manifests, schemas and answers of APIs.

A schema, a codec or another API describes their members; no Python type does. These two aliases are
where such objects are dynamically typed: code that only passes an object on takes
`Mapping[str, object]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["JsonMapping", "JsonObject"]

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object that may be changed."""
JsonMapping: TypeAlias = Mapping[str, Any]
"""A decoded JSON object that is only read."""
