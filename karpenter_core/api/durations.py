"""Durations in Go's syntax (`1h30m`, `720h`); the user's spelling is kept.

GitOps tools compare text: what a user wrote as `90m` must not come back as `1h30m`, so a duration
in a model is its text plus what the text means. The meaning is an exact number of nanoseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from typing import Self

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "NEVER",
    "Duration",
    "NillableDuration",
    "format_duration",
    "parse_duration",
    "parse_nanoseconds",
]

NEVER: Final = "Never"

_MICROSECOND: Final = 1000
_MILLISECOND: Final = 1000 * _MICROSECOND
_SECOND: Final = 1000 * _MILLISECOND
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_UNITS: Final = {
    "ns": 1, "us": _MICROSECOND, "µs": _MICROSECOND, "μs": _MICROSECOND,
    "ms": _MILLISECOND, "s": _SECOND, "m": _MINUTE, "h": _HOUR,
}  # fmt: skip
_TOKEN: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LONGEST: Final = 2**63 - 1
"""Nanoseconds that Go can hold: 292 years. Anything longer counts as that."""
_MOST_DIGITS: Final = 20


def parse_duration(text: str) -> timedelta:
    """Read a Go duration, to the microsecond.

    Raises:
        ValueError: the text is not one.
    """
    nanoseconds = parse_nanoseconds(text)
    microseconds = abs(nanoseconds) // _MICROSECOND
    return timedelta(microseconds=-microseconds if nanoseconds < 0 else microseconds)


@lru_cache(maxsize=4096)
def parse_nanoseconds(text: str) -> int:
    """Read a Go duration exactly.

    Raises:
        ValueError: the text is not one.
    """
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0
    total, end = 0, 0
    while match := _TOKEN.match(body, end):
        whole, fraction, unit = match.groups()
        if not whole and not fraction:
            break
        total += _amount(whole, fraction or "", _UNITS[unit])
        end = match.end()
    if not body or end != len(body):
        message = f'invalid duration "{text}"'
        raise ValueError(message)
    total = min(total, _LONGEST)
    return -total if text.startswith("-") else total


def _amount(whole: str, fraction: str, unit: int) -> int:
    whole, fraction = whole.lstrip("0"), fraction[:_MOST_DIGITS]
    if len(whole) > _MOST_DIGITS:
        return _LONGEST
    part = int(fraction) * unit // 10 ** len(fraction) if fraction else 0
    return int(whole or "0") * unit + part


def format_duration(value: timedelta) -> str:
    """Write a duration in Go's canonical form (`1h30m0s`, `1.5s`, `20ms`)."""
    nanoseconds = value // timedelta(microseconds=1) * _MICROSECOND
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for unit, name in ((_MICROSECOND, "µs"), (_MILLISECOND, "ms")):
        if rest < unit * 1000:
            return f"{sign}{_decimal(rest, unit)}{name}"
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    text = f"{_decimal(rest, _SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


@dataclass(frozen=True, slots=True)
class _DurationText:
    """The text of a duration, validated; a value of a model field."""

    text: str

    words: ClassVar[frozenset[str]] = frozenset()
    """Texts that are no durations in Go's syntax and are valid nevertheless."""

    def __str__(self) -> str:
        """Return the user's text."""
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def _validate(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        text = _text(value)
        if text not in cls.words:
            parse_nanoseconds(text)
        return cls(text)


@dataclass(frozen=True, slots=True)
class Duration(_DurationText):
    """A duration, kept as the text that the user wrote."""

    @property
    def timedelta(self) -> timedelta:
        """The value of the text, to the microsecond."""
        return parse_duration(self.text)

    @property
    def nanoseconds(self) -> int:
        """The exact value of the text."""
        return parse_nanoseconds(self.text)


@dataclass(frozen=True, slots=True)
class NillableDuration(_DurationText):
    """A duration or `Never`, kept as the text that the user wrote."""

    words: ClassVar[frozenset[str]] = frozenset({NEVER})

    @property
    def timedelta(self) -> timedelta | None:
        """The value of the text, to the microsecond; None for `Never`."""
        return None if self.text == NEVER else parse_duration(self.text)

    @property
    def nanoseconds(self) -> int | None:
        """The exact value of the text; None for `Never`."""
        return None if self.text == NEVER else parse_nanoseconds(self.text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        message = f"a duration must be a string, not {value!r}"
        raise ValueError(message)  # noqa: TRY004 - pydantic turns ValueError into its own
    return value
