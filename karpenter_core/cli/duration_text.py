"""Writes spans of time as tables and reports show them."""

from __future__ import annotations

from typing import Final

__all__ = ["duration_text"]

_MINUTE: Final = 60
_HOUR: Final = 3600


def duration_text(seconds: int) -> str:
    """Return a span of time with its two largest units."""
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m{seconds % _MINUTE:02d}s"
    return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE:02d}m"
