"""Hashes NodeClass fields whose change drifts nodes, alike in every process.

The Go implementations of Karpenter hash structs in a way that cannot be repeated elsewhere. So each
provider has a hash version of its own; hashes of different versions are never compared, and taking
over a cluster drifts no node.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.contract import NodeClassHash

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["canonical_json", "hash_fields", "significant_value"]

_DIGITS: Final = 16
_EMPTY: Final[tuple[object, ...]] = (None, "", {}, [])


def hash_fields(fields: Mapping[str, object], *, version: str) -> NodeClassHash:
    """Return the hash of JSON values by name.

    `version` has to change whenever the same NodeClass would get another hash.
    """
    digest = hashlib.sha256(canonical_json(fields).encode())
    return NodeClassHash(value=digest.hexdigest()[:_DIGITS], version=version)


def significant_value(value: object, *, zero_counts: bool = True) -> object:
    """Return a JSON value without empty fields, its lists in an order of their own.

    Unless `zero_counts`, fields that are False or 0 are left out too, and a list is a set: an item
    counts once.
    """
    if isinstance(value, dict):
        below = {
            name: significant_value(item, zero_counts=zero_counts)
            for name, item in cast("dict[str, object]", value).items()
        }
        return {
            name: item
            for name, item in below.items()
            if (item not in _EMPTY if zero_counts else item)
        }
    if isinstance(value, list):
        items = [
            canonical_json(significant_value(item, zero_counts=zero_counts))
            for item in cast("list[object]", value)
        ]
        return sorted(items if zero_counts else set(items))
    return value


def canonical_json(value: object) -> str:
    """Return JSON without a choice of spelling: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
