"""Durations as Go writes them (`1h30m`, `720h`), keeping the user's spelling.

GitOps tools compare text: what a user wrote as `90m` must not come back as `1h30m`, so a duration
in a model is its text plus what the text means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["NEVER", "Duration", "NillableDuration", "format_duration", "parse_duration"]

NEVER: Final = "Never"

_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
_TOKEN: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> timedelta:
    """Read a Go duration.

    Raises:
        ValueError: the text is not one.
    """
    body = text.removeprefix("-").removeprefix("+")
    if body == "0":
        return timedelta()
    seconds, end = 0.0, 0
    while match := _TOKEN.match(body, end):
        seconds += float(match[1]) * _UNITS[match[2]]
        end = match.end()
    if not body or end != len(body):
        message = f'invalid duration "{text}"'
        raise ValueError(message)
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)


def format_duration(value: timedelta) -> str:
    """Write a duration in Go's canonical form (`1h30m0s`)."""
    seconds = value.total_seconds()
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    whole, fraction = divmod(round(seconds * 1000), 1000)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    tail = f"{secs}.{fraction:03d}".rstrip("0") if fraction else str(secs)
    if hours:
        return f"{sign}{hours}h{minutes}m{tail}s"
    if minutes:
        return f"{sign}{minutes}m{tail}s"
    return f"{sign}{tail}s"


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration and the text it was given as."""

    text: str

    @property
    def timedelta(self) -> timedelta:
        """What the text means."""
        return parse_duration(self.text)

    def __str__(self) -> str:
        """Return the user's text."""
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def _validate(cls, value: object) -> Duration:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            message = f"a duration must be a string, not {value!r}"
            raise ValueError(message)  # noqa: TRY004 - pydantic turns ValueError into its own
        parse_duration(value)
        return cls(value)


@dataclass(frozen=True, slots=True)
class NillableDuration:
    """A duration or `Never`, and the text it was given as."""

    text: str

    @property
    def timedelta(self) -> timedelta | None:
        """What the text means; None for `Never`."""
        return None if self.text == NEVER else parse_duration(self.text)

    def __str__(self) -> str:
        """Return the user's text."""
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def _validate(cls, value: object) -> NillableDuration:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            message = f"a duration must be a string, not {value!r}"
            raise ValueError(message)  # noqa: TRY004 - pydantic turns ValueError into its own
        if value != NEVER:
            parse_duration(value)
        return cls(value)
