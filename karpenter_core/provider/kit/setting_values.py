"""Reads a provider's settings with their types."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext

__all__ = ["duration_of", "number_of"]


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
