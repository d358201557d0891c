"""Reads a provider's settings by their types; names all unusable ones."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from karpenter_core.api.durations import format_duration
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.provider.contract import ProviderContext

__all__ = ["SettingReader", "duration_of", "number_of"]


def number_of(context: ProviderContext, name: str) -> float:
    """Return a setting that is a number, by its flag without leading dashes.

    Raises:
        SettingsError: it is no number; names flag and value.
    """
    value = context.settings[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"--{name}: must be a number, not {value}")
    return value


def duration_of(context: ProviderContext, name: str) -> timedelta:
    """Return a setting that is a duration, by its flag without leading dashes.

    Raises:
        SettingsError: it is no duration; names flag and value.
    """
    value = context.settings[name]
    if not isinstance(value, timedelta):
        raise SettingsError(f"--{name}: must be a duration, not {value}")
    return value


class SettingReader:
    """Reads settings by their flags without leading dashes; a cloud may add forms of its own.

    A value that cannot be used becomes a complaint, which names flag and value; `finish` raises all.
    """

    def __init__(self, context: ProviderContext) -> None:
        self._context: Final = context
        self._complaints: Final[list[str]] = []

    def complain(self, complaint: str) -> None:
        """Add a complaint about settings."""
        self._complaints.append(complaint)

    def finish(self) -> None:
        """End the reading.

        Raises:
            SettingsError: a setting cannot be used; all such settings are named.
        """
        if self._complaints:
            raise SettingsError("; ".join(self._complaints))

    def switch(self, flag: str) -> bool:
        """Return whether a setting is on."""
        return self._context.settings[flag] is True

    def text(self, flag: str, *, choices: Collection[str] = ()) -> str:
        """Return a text without outer blanks; one of `choices`, if there are any."""
        value = str(self._context.settings[flag]).strip()
        if choices and value not in choices:
            choice_text = " or ".join(choice for choice in choices if choice)
            self.complain(f'--{flag}: must be {choice_text}, not "{value}"')
        return value

    def url(self, flag: str, *, schemes: Collection[str] = (), required: bool = False) -> str:
        """Return a URL with a host, of any scheme unless `schemes` are given; empty unless `required`."""
        value = self.text(flag)
        if (value or required) and not _is_url(value, schemes):
            self.complain(f'--{flag}: must be a URL with a host, not "{value}"')
        return value

    def host(self, flag: str) -> str:
        """Return `host` or `host:port`, or an empty text."""
        value = self.text(flag)
        if value and not _is_host(value):
            self.complain(f'--{flag}: must be a host, maybe with a port, not "{value}"')
        return value

    def number(
        self,
        flag: str,
        *,
        at_least: float = -math.inf,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> float:
        """Return a finite number within bounds."""
        try:
            value = number_of(self._context, flag)
        except SettingsError as error:
            self.complain(str(error))
            return 0.0
        if not (value >= at_least and above < value < below):
            bounds = (("at least", at_least), ("above", above), ("below", below))
            text = " and ".join(f"{name} {it:g}" for name, it in bounds if math.isfinite(it))
            self.complain(f"--{flag}: must be {text or 'finite'}, not {value}")
            return 0.0
        return value

    def count(self, flag: str, *, at_least: int = 0) -> int:
        """Return a whole number; the fraction of another one is dropped."""
        return int(self.number(flag, at_least=at_least))

    def duration(self, flag: str, *, at_least: timedelta = timedelta()) -> timedelta:
        """Return a duration within its bound."""
        try:
            value = duration_of(self._context, flag)
        except SettingsError as error:
            self.complain(str(error))
            return at_least
        if value < at_least:
            least, given = format_duration(at_least), format_duration(value)
            self.complain(f"--{flag}: must be a duration of at least {least}, not {given}")
        return value


def _is_url(text: str, schemes: Collection[str]) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.scheme and parts.hostname) and (not schemes or parts.scheme in schemes)
    except ValueError:  # such as brackets without an address
        return False


def _is_host(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname) and parts.netloc == text and parts.port != 0
    except ValueError:  # such as a port that is no number
        return False
