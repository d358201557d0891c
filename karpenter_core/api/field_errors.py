"""Validation errors of one field each, worded as the API server words them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "FieldError",
    "FieldErrorType",
    "describe_errors",
    "duplicate",
    "invalid",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "wrong_type",
]


class FieldErrorType(StrEnum):
    """Reasons of causes in a Kubernetes Status."""

    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    TYPE_INVALID = "FieldValueTypeInvalid"


@dataclass(frozen=True, slots=True)
class FieldError:
    """The error of the value at `path` (`spec.template.spec.taints[0].key`)."""

    path: str
    message: str
    type: FieldErrorType = FieldErrorType.INVALID

    def __str__(self) -> str:
        """Return path and message, as in the text of a Status."""
        return f"{self.path}: {self.message}"


OMITTED: Final = object()
"""Stands for a value that is too large to be repeated in a message."""


def invalid(path: str, value: object, detail: str) -> FieldError:
    """Return the error of a value that breaks a rule."""
    shown = "" if value is OMITTED else f"{_quote(value)}: "
    return FieldError(path, f"Invalid value: {shown}{detail}")


def wrong_type(path: str, shown: str, expected: str) -> FieldError:
    """Return the error of a value of a wrong JSON type or format."""
    message = f'Invalid value: "{shown}": {path} in body must be of type {expected}: "{shown}"'
    return FieldError(path, message, FieldErrorType.TYPE_INVALID)


def required(path: str) -> FieldError:
    """Return the error of a missing value."""
    return FieldError(path, "Required value", FieldErrorType.REQUIRED)


def duplicate(path: str, value: object) -> FieldError:
    """Return the error of a value that stands twice in a set."""
    return FieldError(path, f"Duplicate value: {_quote(value)}", FieldErrorType.DUPLICATE)


def not_supported(path: str, value: object, supported: Sequence[object]) -> FieldError:
    """Return the error of a value outside its enumeration."""
    listed = ", ".join(_quote(item) for item in supported)
    message = f"Unsupported value: {_quote(value)}: supported values: {listed}"
    return FieldError(path, message, FieldErrorType.NOT_SUPPORTED)


def too_long(path: str, limit: int) -> FieldError:
    """Return the error of a text that is too long."""
    message = f"Too long: may not be more than {limit} bytes"
    return FieldError(path, message, FieldErrorType.TOO_LONG)


def too_many(path: str, count: int, limit: int) -> FieldError:
    """Return the error of a list or map with too many entries."""
    message = f"Too many: {count}: must have at most {limit} items"
    return FieldError(path, message, FieldErrorType.TOO_MANY)


def describe_errors(errors: Iterable[FieldError]) -> str:
    """Join errors as the API server does after `<Kind>.<group> "<name>" is invalid: `."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _quote(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
