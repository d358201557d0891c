"""Prunes, defaults and validates objects by the schema of their CRD.

`SchemaValidator` drops fields that the schema does not know, fills in defaults, and refuses objects
that break the schema or a CEL rule, as the API server does. The embedded API server, offline
planning and tests use it with the rendered CRD, so that a bad NodePool is refused everywhere in the
same words.

On an update, unchanged values are not judged again ("ratcheting", KEP-4008), except by rules that
compare with the old value; rules are only evaluated for objects whose structure is valid.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.api import field_errors as errors
from karpenter_core.api.cel import CELError, compile_rule
from karpenter_core.api.field_errors import FieldError, FieldErrorType
from karpenter_core.api.schema_keywords import Json, check_keywords, is_int_or_string, json_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.cel import CompiledRule

__all__ = ["FieldError", "FieldErrorType", "SchemaValidator"]

_ROOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_MISSING: Final = object()
_UNIQUE_LISTS: Final = frozenset({"set", "map"})
# Contents of a part of a schema or of what is below it; a part without any is skipped.
_DEFAULTS: Final = 1
_LISTS: Final = 2  # lists that are sets or maps
_RULES: Final = 4
_TRANSITIONS: Final = 8  # rules that compare with the old value: of unchanged values too
_ANYTHING: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
_MAX_CACHED_RESULTS: Final = 4096
_RULE_RESULTS: Final[dict[tuple[str, str], object]] = {}
"""Results of rules by rule and value, as JSON; emptied when it is full."""
_BLOCKING: Final = frozenset(
    {
        FieldErrorType.NOT_SUPPORTED,
        FieldErrorType.REQUIRED,
        FieldErrorType.TOO_LONG,
        FieldErrorType.TOO_MANY,
        FieldErrorType.TYPE_INVALID,
    },
)
"""After such an error the API server runs no CEL rule."""


class SchemaValidator:
    """One version's `openAPIV3Schema`, ready to default and to judge objects.

    The schema may not be changed any more.
    """

    __slots__ = ("_keyword_flags", "_schema")

    def __init__(self, schema: Json) -> None:
        self._schema: Final = schema
        self._keyword_flags: Final[_Found] = {}
        _collect_keywords(schema, self._keyword_flags)

    def default(self, obj: Json) -> Json:
        """Return the object without unknown fields and with the schema's defaults.

        `apiVersion`, `kind` and `metadata` are left alone. The argument is not changed.
        """
        kept = {name: obj[name] for name in obj if name in _ROOT_FIELDS}
        rest = _prune(self._schema, {name: obj[name] for name in obj if name not in kept})
        return kept | _default_map(
            self._schema, cast("Json", rest), self._keyword_flags, skip=_ROOT_FIELDS
        )

    def validate(self, obj: Json, old: Json | None = None) -> list[FieldError]:
        """Say all that is wrong with an object, in the API server's words.

        `old` is the stored object that `obj` shall replace.
        """
        before = _MISSING if old is None else old
        errors = list(_check(self._schema, obj, before, ""))
        errors += _check_lists(self._schema, obj, before, "", self._keyword_flags)
        if not any(error.type in _BLOCKING for error in errors):
            errors += _check_rules(self._schema, obj, before, "", self._keyword_flags)
        return errors


_Found: TypeAlias = "dict[int, int]"
"""Compiled parts of schemas, by the identity of the part."""


def _collect_keywords(schema: Json, found: _Found) -> int:
    """Note what is in every part of a schema that values are judged by."""
    own = 0
    if schema.get("x-kubernetes-list-type") in _UNIQUE_LISTS:
        own |= _LISTS
    for entry in schema.get("x-kubernetes-validations", ()):
        own |= _RULES
        if "oldSelf" in entry["rule"]:
            own |= _TRANSITIONS
    properties: Json = schema.get("properties", {})
    if any("default" in child for child in properties.values()):
        own |= _DEFAULTS
    for child in (*properties.values(), schema.get("additionalProperties"), schema.get("items")):
        if isinstance(child, dict):
            own |= _collect_keywords(cast("Json", child), found)
    found[id(schema)] = own
    return own


def _has(found: _Found, schema: Json, what: int) -> bool:
    return bool(found.get(id(schema), 0) & what)


def _prune(schema: Json, value: object) -> object:
    """Drop what the schema does not know, and nulls where null means absent."""
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_prune(items, item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    kept: Json = {}
    for name, item in cast("Json", value).items():
        child = _child(schema, name)
        if child is None:
            if preserves:
                kept[name] = item
        elif item is not None or child.get("nullable") or "default" in child:
            kept[name] = _prune(child, item)
    return kept


def _child(schema: Json, name: str) -> Json | None:
    """Return the schema of a field; None when the schema does not know it."""
    properties: Json = schema.get("properties", {})
    if name in properties:
        return properties[name]
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return cast("Json", more)
    return _ANYTHING if more is True else None


def _default_value(schema: Json, value: object, found: _Found) -> object:
    if not _has(found, schema, _DEFAULTS):
        return value
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_default_value(items, item, found) for item in cast("list[object]", value)]
    return _default_map(schema, cast("Json", value), found) if isinstance(value, dict) else value


def _default_map(
    schema: Json, value: Json, found: _Found, *, skip: frozenset[str] = frozenset()
) -> Json:
    filled = dict(value)
    for name, child in cast("Json", schema.get("properties", {})).items():
        is_absent = name not in filled or (filled[name] is None and not child.get("nullable"))
        if name not in skip and is_absent and "default" in child:
            filled[name] = copy.deepcopy(child["default"])
    for name, item in filled.items():
        child = _child(schema, name)
        if child is not None and name not in skip:
            filled[name] = _default_value(child, item, found)
    return filled


def _check(schema: Json, value: object, old: object, path: str) -> Iterator[FieldError]:
    """Judge a value and everything below it by the keywords of the schema."""
    if _is_unchanged(value, old):
        return
    own = list(check_keywords(schema, value, path))
    yield from own
    if any(error.path == path and error.type is FieldErrorType.TYPE_INVALID for error in own):
        return
    yield from _check_branches(schema, value, path)
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in cast("Json", value):
                yield errors.required(_join(path, name))
    for child, item, before, place in _below(schema, cast("object", value), old, path):
        yield from _check(child, item, before, place)


def _check_branches(schema: Json, value: object, path: str) -> Iterator[FieldError]:
    """Judge by `allOf`, `anyOf`, `oneOf` and `not`."""
    for branch in schema.get("allOf", ()):
        yield from _check(branch, value, _MISSING, path)
    if "anyOf" in schema and not is_int_or_string(schema) and not _matches(schema["anyOf"], value):
        yield _no_branch(path, "must validate at least one schema (anyOf)")
    if "oneOf" in schema and _matches(schema["oneOf"], value) != 1:
        yield _no_branch(path, "must validate one and only one schema (oneOf)")
    if "not" in schema and _matches([schema["not"]], value):
        yield _no_branch(path, "must not validate the schema (not)")


def _matches(branches: list[Json], value: object) -> int:
    return sum(not any(_check(branch, value, _MISSING, "")) for branch in branches)


def _no_branch(path: str, detail: str) -> FieldError:
    return FieldError(path, f'Invalid value: "": "{path}" {detail}')


def _check_lists(
    schema: Json, value: object, old: object, path: str, found: _Found
) -> Iterator[FieldError]:
    """Judge that lists which are sets or maps name nothing twice."""
    if not _has(found, schema, _LISTS) or _is_unchanged(value, old):
        return
    kind = schema.get("x-kubernetes-list-type")
    if isinstance(value, list) and kind in _UNIQUE_LISTS:
        seen: set[str] = set()
        for index, item in enumerate(cast("list[object]", value)):
            identity = item if kind == "set" else _identity(schema, item)
            text = json.dumps(identity, sort_keys=True)
            if text in seen:
                yield errors.duplicate(f"{path}[{index}]", identity)
            seen.add(text)
    for child, item, before, place in _below(schema, cast("object", value), old, path):
        yield from _check_lists(child, item, before, place, found)


def _check_rules(
    schema: Json,
    value: object,
    old: object,
    path: str,
    found: _Found,
    *,
    inside_unchanged: bool = False,
) -> Iterator[FieldError]:
    """Judge by the CEL rules of the schema; those of a parent come first."""
    if value is None or not _has(found, schema, _RULES):
        return
    is_unchanged = inside_unchanged or _is_unchanged(value, old)
    if is_unchanged and not _has(found, schema, _TRANSITIONS):
        return
    for entry in schema.get("x-kubernetes-validations", ()):
        yield from _check_rule(
            schema, entry, value, old=old, path=path, only_transition=is_unchanged
        )
    for child, item, before, place in _below(schema, value, old, path):
        yield from _check_rules(child, item, before, place, found, inside_unchanged=is_unchanged)


def _check_rule(
    schema: Json, entry: Json, value: object, *, old: object, path: str, only_transition: bool
) -> Iterator[FieldError]:
    message: str = entry.get("message") or f"failed rule: {entry['rule']}"
    try:
        rule = compile_rule(entry["rule"])
        if (rule.is_transition and old is _MISSING) or (only_transition and not rule.is_transition):
            return
        holds = _evaluate_once(rule, value, old if rule.is_transition else None)
    except CELError as error:
        detail = f"{error} evaluating rule: {message}"
        yield errors.invalid(path, schema.get("type", ""), detail)
        return
    if holds is True:
        return
    expression = entry.get("messageExpression")
    if expression:
        message = _message(expression, value, old) or message
    place = path + entry.get("fieldPath", "")
    shown = value if json_type(value) not in {"array", "object"} else errors.OMITTED
    refusal = errors.invalid(place.removeprefix("."), shown, message)
    if entry.get("reason"):
        refusal = FieldError(refusal.path, refusal.message, FieldErrorType(entry["reason"]))
    yield refusal


def _evaluate_once(rule: CompiledRule, value: object, old: object) -> object:
    """Evaluate a rule once for values that are alike, as those of one pool's claims are.

    Raises:
        CELError: evaluation failed.
    """
    key = (rule.rule, json.dumps((value, old), default=repr))
    if key not in _RULE_RESULTS:
        if len(_RULE_RESULTS) >= _MAX_CACHED_RESULTS:
            _RULE_RESULTS.clear()
        _RULE_RESULTS[key] = rule.evaluate(value, old)
    return _RULE_RESULTS[key]


def _message(expression: str, value: object, old: object) -> str:
    try:
        text = compile_rule(expression).evaluate(value, None if old is _MISSING else old)
    except CELError:
        return ""
    return text if isinstance(text, str) else ""


def _below(
    schema: Json, value: object, old: object, path: str
) -> Iterator[tuple[Json, object, object, str]]:
    """Go over what lies below a value: schema, item, the old item if it is known, and path."""
    if isinstance(value, dict):
        before = cast("Json", old) if isinstance(old, dict) else {}
        for name, item in cast("Json", value).items():
            child = _child(schema, name)
            if child is not None and not (path == "" and name in _ROOT_FIELDS):
                yield child, item, before.get(name, _MISSING), _join(path, name)
    elif isinstance(value, list) and "items" in schema:
        before = _by_identity(schema, old)
        for index, item in enumerate(cast("list[object]", value)):
            key = json.dumps(_identity(schema, item), sort_keys=True) if before else ""
            yield schema["items"], item, before.get(key, _MISSING), f"{path}[{index}]"


def _by_identity(schema: Json, old: object) -> Json:
    """Index the old items of a list that is a map; items of other lists have no old self."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    items = cast("list[object]", old)
    return {json.dumps(_identity(schema, item), sort_keys=True): item for item in items}


def _identity(schema: Json, item: object) -> Json:
    keys: list[str] = schema.get("x-kubernetes-list-map-keys", [])
    fields = cast("Json", item) if isinstance(item, dict) else {}
    defaults: Json = schema.get("items", {}).get("properties", {})
    return {
        key: fields[key] if key in fields else defaults.get(key, {}).get("default") for key in keys
    }


def _is_unchanged(value: object, old: object) -> bool:
    return old is not _MISSING and value == old


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
