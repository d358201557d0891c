"""Hypothesis strategies of objects that the schema of a CRD may admit.

They come from the rendered CRD alone, so a new field is tried as soon as it is in a model. The schema's
CEL rules still refuse some of what they draw: tests ask `SchemaValidator`, as the API server does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["objects_of", "variants_of"]

_KNOWN: Final = frozenset(
    {
        "additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems",
        "maxLength", "maxProperties", "maximum", "message", "minItems", "minLength", "minProperties",
        "minimum", "nullable", "pattern", "properties", "required", "type", "oneOf", "allOf", "not",
        "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type",
        "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
    }
)  # fmt: skip
_MOST_ITEMS: Final = 4
_TEXTS: Final = st.sampled_from([
    "", "a", "default", "0", "1", "-1", "100%", "0%", "1e9", "9" * 25, "Never", "0s", "1h", "9999999h",
    "1m1ns", "100m", "1Gi", "1e-9", "9e99999", ".5", "+1", "@hourly", "* * * * *", "0 0 30 2 *",
    "59 23 31 12 7", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "karpenter.sh/nodepool",
    "karpenter.sh/capacity-type", "spot", "on-demand", "node.kubernetes.io/instance-type", "kubernetes.io/arch",
    "topology.kubernetes.io/zone", "amd64", "test-zone-a", "example.com/team", "example.com/x", "x" * 63,
    "kubernetes.io/hostname", "karpenter.kwok.sh/instance-cpu", "NoSchedule", "NoExecute", "\u00e9", "\u2028",
    "${jndi:x}", "{{.}}", "%s%n", "../../etc", "True", "null", "~", "a/b/c", "a" * 254,
])  # fmt: skip
_NUMBERS: Final = st.sampled_from([0, 1, -1, 2, 100, 101, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
_ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(_TEXTS.filter(bool), inner, max_size=2)
    ),
    max_leaves=4,
)


def objects_of(schema: JsonMapping) -> SearchStrategy[Any]:
    """Return values of a structural schema.

    Raises:
        ValueError: the schema has a keyword that is not known here.
    """
    if unknown := schema.keys() - _KNOWN:
        raise ValueError(f"unknown keywords of a schema: {', '.join(sorted(unknown))}")
    values = _plain(schema)
    return st.none() | values if schema.get("nullable") else values


def _plain(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return _NUMBERS | _text(schema)
    match schema.get("type"):
        case "string":
            return _text(schema)
        case "integer":
            low, high = schema.get("minimum"), schema.get("maximum")
            within = st.integers(low, high)
            odd = _NUMBERS.filter(
                lambda n: (low is None or n >= low) and (high is None or n <= high)
            )
            return within | odd if low is None and high is None else within
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False, width=32) | _NUMBERS
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(
                objects_of(schema.get("items", {})),
                min_size=schema.get("minItems", 0),
                max_size=max(
                    schema.get("minItems", 0), min(schema.get("maxItems", 9), _MOST_ITEMS)
                ),
            )
        case "object":
            return _object(schema)
    return _ANYTHING


def _text(schema: Mapping[str, Any]) -> SearchStrategy[str]:
    longest = schema.get("maxLength", 300)
    texts = _TEXTS.filter(lambda text: schema.get("minLength", 0) <= len(text) <= longest)
    if pattern := schema.get("pattern"):
        # `from_regex` ends where the pattern does; Go's $ is the end of the text.
        drawn = st.from_regex(pattern, fullmatch=pattern.startswith("^") and pattern.endswith("$"))
        texts |= drawn.filter(lambda text: len(text) <= longest)
    elif schema.get("format") == "date-time":
        return st.sampled_from(
            ["2024-02-29T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
        )
    return texts | st.text(min_size=schema.get("minLength", 0), max_size=min(longest, 8))


def _object(schema: Mapping[str, Any]) -> SearchStrategy[dict[str, Any]]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if not properties:
        below = schema.get("additionalProperties")
        values = objects_of(below) if isinstance(below, dict) else _ANYTHING
        return st.dictionaries(_TEXTS.filter(bool), values, max_size=_MOST_ITEMS)
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: objects_of(part) for name, part in properties.items() if name in required},
        optional={
            name: objects_of(part) for name, part in properties.items() if name not in required
        },
    )


@cache
def _places(schema_id: int) -> dict[tuple[str, ...], SearchStrategy[Any]]:
    return _collected(_SCHEMAS[schema_id], ())


_SCHEMAS: Final[dict[int, Mapping[str, Any]]] = {}


def _collected(
    schema: Mapping[str, Any], path: tuple[str, ...]
) -> dict[tuple[str, ...], SearchStrategy[Any]]:
    found = {path: objects_of(schema)} if path else {}
    for name, part in (schema.get("properties") or {}).items():
        found |= _collected(part, (*path, name))
    return found


@st.composite
def variants_of(
    draw: st.DrawFn, schema: Mapping[str, Any], base: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the field `spec` of a good object with up to three of its parts replaced by any other."""
    _SCHEMAS[id(schema)] = schema
    places = _places(id(schema))
    found: dict[str, Any] = _copied(base)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(places)))
        at = found
        for name in path[:-1]:
            inside = at.get(name)
            at[name] = at = inside if isinstance(inside, dict) else {}
        at[path[-1]] = draw(places[path])
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value
