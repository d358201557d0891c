"""Defines Kubernetes' CEL functions of quantities and semantic versions.

The CEL library knows no types but its own, so a quantity is the map `{"quantity": text}` and a
version the map `{"semver": text}`, each in canonical form: equal values are equal maps. Source:
Kubernetes' CEL libraries (quantity, semver).
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.api.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FUNCTIONS", "quantity_value", "version_value"]

Value: TypeAlias = "dict[str, str]"

_QUANTITY: Final = "quantity"
_SEMVER: Final = "semver"
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_LARGEST_INTEGER: Final = 2**63 - 1


def quantity_value(amount: Decimal) -> Value:
    """Return a quantity as CEL expressions see it."""
    return {_QUANTITY: format(amount.normalize(), "f")}


def version_value(text: str) -> Value:
    """Return a semantic version as CEL expressions see it.

    Raises:
        ValueError: the text is not a semantic version.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f'invalid semantic version "{text}"')
    return {_SEMVER: text.partition("+")[0]}


def _amount(value: object) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    text = _field(value, _QUANTITY)
    if text is None:
        raise TypeError(f"expected a quantity, not {value!r}")
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"expected a quantity, not {value!r}") from error


def _field(value: object, name: str) -> str | None:
    if not isinstance(value, dict):
        return None
    text = cast("dict[object, object]", value).get(name)
    return text if isinstance(text, str) else None


def _precedence(
    value: object,
) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
    """Return the sort key of a version (semver.org, 11): a pre-release comes before its release."""
    text = _field(value, _SEMVER)
    if text is None:
        raise TypeError(f"expected a semantic version, not {value!r}")
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f'invalid semantic version "{text}"')
    major, minor, patch, before = match.groups()
    identifiers = tuple(
        (not part.isdigit(), int(part) if part.isdigit() else 0, part)
        for part in (before.split(".") if before else ())
    )
    return (int(major), int(minor), int(patch)), before is None, identifiers


def _compare(first: object, second: object) -> int:
    """Compare two quantities, or two versions."""
    if _field(first, _SEMVER) is not None:
        left, right = _precedence(first), _precedence(second)
        return (left > right) - (left < right)
    amount, other = _amount(first), _amount(second)
    return (amount > other) - (amount < other)


def _quantity(text: object) -> Value:
    if not isinstance(text, str):
        raise TypeError(f"quantity() takes a string, not {text!r}")
    return quantity_value(parse_quantity(text))


def _is_quantity(text: object) -> bool:
    try:
        _quantity(text)
    except ValueError:
        return False
    return True


def _normalized(text: str) -> str:
    """Complete a version as Kubernetes does: no `v`, no leading zeros, three numbers."""
    without_v = text.removeprefix("v")
    end = next((n for n, each in enumerate(without_v) if each in "-+"), len(without_v))
    core, mark, rest = without_v[:end], without_v[end : end + 1], without_v[end + 1 :]
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in core.split(".")]
    parts += ["0"] * (3 - len(parts))
    return f"{'.'.join(parts)}{mark}{rest}"


def _semver(text: object, normalize: object = False) -> Value:  # noqa: FBT002 - CEL has no keywords
    if not isinstance(text, str) or not isinstance(normalize, bool):
        raise TypeError(f"semver() takes a string, not {text!r}")
    return version_value(_normalized(text) if normalize else text)


def _is_semver(text: object, normalize: object = False) -> bool:  # noqa: FBT002 - as above
    try:
        _semver(text, normalize)
    except ValueError:
        return False
    return True


def _is_integer(value: object) -> bool:
    amount = _amount(value)
    return amount == amount.to_integral_value() and abs(amount) <= _LARGEST_INTEGER


def _as_integer(value: object) -> int:
    if not _is_integer(value):
        raise ValueError(f"{value!r} is not an integer")
    return int(_amount(value))


def _sign(value: object) -> int:
    amount = _amount(value)
    return (amount > 0) - (amount < 0)


def _is_greater(first: object, second: object) -> bool:
    return _compare(first, second) > 0


def _is_less(first: object, second: object) -> bool:
    return _compare(first, second) < 0


def _as_float(value: object) -> float:
    return float(_amount(value))


def _sum(first: object, second: object) -> Value:
    return quantity_value(_amount(first) + _amount(second))


def _difference(first: object, second: object) -> Value:
    return quantity_value(_amount(first) - _amount(second))


def _major(value: object) -> int:
    return _precedence(value)[0][0]


def _minor(value: object) -> int:
    return _precedence(value)[0][1]


def _patch(value: object) -> int:
    return _precedence(value)[0][2]


FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "semver": _semver,
    "isSemver": _is_semver,
    "compareTo": _compare,
    "isGreaterThan": _is_greater,
    "isLessThan": _is_less,
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": _as_float,
    "sign": _sign,
    "add": _sum,
    "sub": _difference,
    "major": _major,
    "minor": _minor,
    "patch": _patch,
}
"""The functions and methods (a method is a function of its object), by name."""
