"""Validates one value by the keywords of its schema, without its children."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.api import field_errors as errors
from karpenter_core.api.json_objects import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.field_errors import FieldError

__all__ = ["Json", "check_keywords", "is_int_or_string", "json_type"]

Json: TypeAlias = JsonObject

_INTEGER_RANGES: Final = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[tT](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:[zZ]|[+-][0-9]{2}:[0-9]{2})",
)  # RFC 3339 without leap seconds, which the API server refuses
_ACCEPTED_TYPES: Final = {"number": {"number", "integer"}}


def json_type(value: object) -> str:
    """Name the JSON type of a value the way the API server does."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def is_int_or_string(schema: Json) -> bool:
    """Tell whether a value may be an integer or a string."""
    return bool(schema.get("x-kubernetes-int-or-string"))


def check_keywords(schema: Json, value: object, path: str) -> Iterator[FieldError]:
    """Judge the value itself; a wrong type is the only error then."""
    wrong = _type_error(schema, value, path)
    if wrong is not None:
        yield wrong
        return
    if "enum" in schema and value not in schema["enum"]:
        yield errors.not_supported(path, value, schema["enum"])
    match value:
        case bool() | None:
            pass
        case int() | float():
            yield from _check_number(schema, value, path)
        case str():
            yield from _check_string(schema, value, path)
        case list():
            yield from _check_list(schema, cast("list[object]", value), path)
        case dict():
            yield from _check_map(schema, cast("Json", value), path)
        case _:
            pass


def _type_error(schema: Json, value: object, path: str) -> FieldError | None:
    type_name = json_type(value)
    if type_name == "null" and schema.get("nullable"):
        return None
    if is_int_or_string(schema):
        if type_name in {"integer", "string"}:
            return None
        return errors.wrong_type(path, type_name, "integer,string")
    expected: str = schema.get("type", "")
    if not expected or type_name in _ACCEPTED_TYPES.get(expected, {expected}):
        return None
    if expected == "integer" and isinstance(value, float):
        expected_format: str = schema.get("format", expected)
        return None if value.is_integer() else errors.wrong_type(path, "float64", expected_format)
    return errors.wrong_type(path, type_name, expected)


def _check_number(schema: Json, value: float, path: str) -> Iterator[FieldError]:
    lowest, highest = _INTEGER_RANGES.get(schema.get("format", ""), (None, None))
    if lowest is not None and highest is not None and not lowest <= value <= highest:
        detail = f"Checked value must be of type integer with format {schema['format']}"
        yield errors.invalid(path, value, detail)
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if maximum is not None:
        is_open = schema.get("exclusiveMaximum", False)
        if value > maximum or (is_open and value == maximum):
            comparison = "less than" if is_open else "less than or equal to"
            yield errors.invalid(path, value, f"{path} in body should be {comparison} {maximum}")
    if minimum is not None:
        is_open = schema.get("exclusiveMinimum", False)
        if value < minimum or (is_open and value == minimum):
            comparison = "greater than" if is_open else "greater than or equal to"
            yield errors.invalid(path, value, f"{path} in body should be {comparison} {minimum}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield errors.invalid(path, value, f"{path} in body should be a multiple of {step}")


def _check_string(schema: Json, value: str, path: str) -> Iterator[FieldError]:
    """Judge a text; like the API server, by the first of the three that is broken."""
    pattern = schema.get("pattern")
    if len(value) > schema.get("maxLength", len(value)):
        yield errors.too_long(path, schema["maxLength"])
    elif len(value) < schema.get("minLength", 0):
        detail = f"{path} in body should be at least {schema['minLength']} chars long"
        yield errors.invalid(path, value, detail)
    elif pattern is not None and not _compiled(pattern).search(value):
        yield errors.invalid(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield errors.wrong_type(path, value, "date-time")


def _check_list(schema: Json, value: list[object], path: str) -> Iterator[FieldError]:
    if len(value) > schema.get("maxItems", len(value)):
        yield errors.too_many(path, len(value), schema["maxItems"])
    if len(value) < schema.get("minItems", 0):
        detail = f"{path} in body should have at least {schema['minItems']} items"
        yield errors.invalid(path, len(value), detail)


def _check_map(schema: Json, value: Json, path: str) -> Iterator[FieldError]:
    if len(value) > schema.get("maxProperties", len(value)):
        yield errors.too_many(path, len(value), schema["maxProperties"])
    if len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        yield errors.invalid(path, len(value), detail)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern of the API's dialect, in which `$` is the very end and `\s` is ASCII."""
    translated: list[str] = []
    in_class = is_escaped = False
    for character in pattern:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character in "[]":
            in_class = character == "["
        elif character == "$" and not in_class:
            character = r"\Z"  # noqa: PLW2901 - one spelling for another
        translated.append(character)
    return re.compile("".join(translated), re.ASCII)
