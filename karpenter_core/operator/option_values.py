"""Parses and checks the text of one option.

An option of Karpenter's keeps Karpenter's rule: an unreadable variable falls back to the default;
here with a warning. Any other option refuses the start: a limit that silently becomes "no limit",
or a pause that silently becomes "no pause", is noticed when it is too late.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from karpenter_core.api.durations import format_duration, parse_duration
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FALSE_TEXTS",
    "TRUE_TEXTS",
    "OptionText",
    "ProcessOption",
    "Value",
    "read_option",
    "value_text",
]

Value: TypeAlias = str | float | bool | timedelta

TRUE_TEXTS: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # Go's strconv.ParseBool
FALSE_TEXTS: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1  # Go's int64; also keeps later arithmetic with floats finite


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOption:
    """One option; the type of `default` decides how text is read."""

    flag: str
    env: str
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | timedelta | None = None
    maximum: float | None = None
    falls_back: bool = False
    """Karpenter has this option: an unreadable variable falls back to the default, with a warning."""
    without_effect: str = ""
    """The reason why the option is accepted although without effect; empty for other options."""

    @property
    def field(self) -> str:
        """Name of the field of `Settings`."""
        return self.flag.replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default the way a user would write it."""
        return value_text(self.default)

    @property
    def allowed(self) -> str:
        """The allowed values of this option, as the end of "must be ..."."""
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices if choice)
        match self.default:
            case bool():
                return "true or false"
            case int():
                return f"a whole number{self._range}"
            case float():
                return f"a number{self._range}"
            case timedelta():
                lowest = self._range
                return f"a duration such as 90s or 1h30m{',' if lowest else ''}{lowest}"
            case str():
                return "a text"

    @property
    def _range(self) -> str:
        if self.minimum is None:
            return ""
        if self.maximum is not None:
            return f" from {value_text(self.minimum)} to {value_text(self.maximum)}"
        return f" of {value_text(self.minimum)} or more"


class OptionText(NamedTuple):
    """The text of an option, and the flag or variable that it was given by."""

    text: str
    source: str
    by_flag: bool


def read_option(
    option: ProcessOption, option_text: OptionText, warn: Callable[[str], None], *, default: str
) -> Value | None:
    """Return the value of a text; None stands for the default, which warnings name `default`.

    Raises:
        SettingsError: the text is no value of the option, and the option has no fallback.
    """
    if option.without_effect:
        warn(f"{option_text.source}: has no effect: {option.without_effect}")
    try:
        value = _read(option.default, option_text)
        _check_range(option, value)
    except ValueError as error:
        message = f'{option_text.source}: must be {option.allowed}, not "{option_text.text}"'
        if option_text.by_flag or option.choices or not option.falls_back:
            raise SettingsError(message) from error
        warn(f"{message}; the default{f' {default}' if default else ''} is used")
        return None
    return value


def value_text(value: Value) -> str:
    """Write a value the way a user would."""
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _read(default: Value, option_text: OptionText) -> Value:
    text = option_text.text
    match default:
        case bool():
            return _read_truth(text, only_go_flags=option_text.by_flag)
        case int():
            return _read_whole_number(text.strip())
        case float():
            return _read_number(text.strip())
        case timedelta():
            return parse_duration(text.strip())
        case str():
            return text


def _read_truth(text: str, *, only_go_flags: bool) -> bool:
    """Read a truth value; flags take `true` and `false` alone, as Karpenter's do."""
    if text in ({"true"} if only_go_flags else TRUE_TEXTS):
        return True
    if text in ({"false"} if only_go_flags else FALSE_TEXTS):
        return False
    raise ValueError(text)


def _read_whole_number(text: str) -> int:
    if not _WHOLE_NUMBER.fullmatch(text) or abs(int(text)) > _LARGEST:
        raise ValueError(text)
    return int(text)


def _read_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _check_range(option: ProcessOption, value: Value) -> None:
    if option.choices and value not in option.choices:
        raise ValueError(value)
    if option.minimum is not None and value < option.minimum:  # pyright: ignore[reportOperatorIssue] - one type, by declaration
        raise ValueError(value)
    if option.maximum is not None and value > option.maximum:  # pyright: ignore[reportOperatorIssue] - as above
        raise ValueError(value)
