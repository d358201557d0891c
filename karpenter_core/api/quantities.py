"""Kubernetes quantities: exact, and kept as the user spelled them.

Inside the program an amount is an int in a fixed unit per resource: milli-cores for `cpu`, millionths
of the currency for a price per hour, base units (bytes, counts) for everything else, all rounded up,
so that sums are exact and never float.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, PRICE_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    from karpenter_core.api.records import Resources

__all__ = [
    "LARGEST_AMOUNT",
    "UNITS_PER_ONE",
    "Quantity",
    "format_amount",
    "format_resources",
    "parse_amount",
    "parse_quantity",
    "parse_resources",
]

_PATTERN: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?",
)
_SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal("1e3"),
    "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"),
    "E": Decimal("1e18"), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
    "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_LARGEST: Final = Decimal(2**63 - 1)
LARGEST_AMOUNT: Final = 2**60
"""Upper bound of amounts: more than any instance has, and small enough that sums of several amounts
fit into the 64 bits of the solver's columns."""
UNITS_PER_ONE: Final[Mapping[str, int]] = {CPU: 1000, PRICE_PER_HOUR: 1_000_000}
"""The units of an amount in one core or one of the currency; of other resources it is 1."""
_EXPONENT_DIGITS: Final = 5
_LARGEST_EXPONENT: Final = 99_999
# Wide enough for every digit that can matter; what a longer text adds beyond is rounded up.
_EXACT: Final = Context(prec=200, rounding=ROUND_CEILING, traps=[])
_BINARY: Final = (
    ("Ei", 2**60),
    ("Pi", 2**50),
    ("Ti", 2**40),
    ("Gi", 2**30),
    ("Mi", 2**20),
    ("Ki", 2**10),
)


def parse_quantity(text: str | float) -> Decimal:
    """Read a quantity exactly, limited to Kubernetes' range (2^63-1).

    Raises:
        ValueError: the text is not one.
    """
    return _parse(str(text))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Decimal:
    match = _PATTERN.fullmatch(text)
    if match is None:
        message = f'invalid quantity "{text}"'
        raise ValueError(message)
    number, suffix, exponent = match.groups()
    value = Decimal(number)
    if suffix:
        value = _EXACT.multiply(value, _SUFFIXES[suffix])
    elif exponent:
        value = _EXACT.scaleb(value, _bounded(exponent))
    return max(-_LARGEST, min(value, _LARGEST))


def _bounded(exponent: str) -> int:
    """Read an exponent, limited to five digits: a longer one would take too long to expand."""
    if len(exponent) > _EXPONENT_DIGITS:
        return -_LARGEST_EXPONENT if exponent.startswith("-") else _LARGEST_EXPONENT
    return int(exponent)


def parse_amount(resource: str, text: str | float) -> int:
    """Read a quantity of a resource into its fixed unit, rounding up; `LARGEST_AMOUNT` at most.

    Raises:
        ValueError: the text is not a quantity.
    """
    return _parse_amount(resource, str(text))


@lru_cache(maxsize=4096)
def _parse_amount(resource: str, text: str) -> int:
    value = _parse(text)
    if resource in UNITS_PER_ONE:
        value = _EXACT.multiply(value, Decimal(UNITS_PER_ONE[resource]))
    amount = int(value.to_integral_value(rounding=ROUND_CEILING))
    return max(-LARGEST_AMOUNT, min(amount, LARGEST_AMOUNT))


def format_amount(resource: str, amount: int) -> str:
    """Write an amount in Kubernetes' canonical form (`1500m`, `2Gi`)."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource == PRICE_PER_HOUR:
        return f"{Decimal(amount).scaleb(-6).normalize():f}"
    if resource == "memory" or "storage" in resource or resource.startswith("hugepages-"):
        for suffix, unit in _BINARY:
            if amount and amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)


def parse_resources(amounts: Mapping[str, object]) -> dict[str, int]:
    """Read a Kubernetes ResourceList (text, numbers or `Quantity`)."""
    return {name: parse_amount(name, str(value)) for name, value in amounts.items()}


def format_resources(resources: Resources) -> dict[str, Quantity]:
    """Write amounts as a Kubernetes ResourceList."""
    return {name: Quantity(format_amount(name, amount)) for name, amount in resources.items()}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity, kept as the text or number that the user wrote."""

    raw: str | int | float

    @property
    def value(self) -> Decimal:
        """The exact value of the text."""
        return parse_quantity(self.raw)

    def __str__(self) -> str:
        """Return the user's text."""
        return str(self.raw)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.raw),
        )

    @classmethod
    def _validate(cls, value: object) -> Quantity:
        if isinstance(value, cls):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"a quantity must be a string or a number, not {value!r}"
            raise ValueError(message)  # noqa: TRY004 - pydantic turns ValueError into its own
        return _quantity_of(value) if isinstance(value, str) else _checked(value)


def _checked(raw: str | float) -> Quantity:
    parse_quantity(raw)
    return Quantity(raw)


@lru_cache(maxsize=4096)  # the same few texts in thousands of NodeClaims
def _quantity_of(text: str) -> Quantity:
    return _checked(text)
