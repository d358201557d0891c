"""Series of dashboards and alerts that exist only after something special has happened."""

from __future__ import annotations

from typing import Final

__all__ = ["LATE_SERIES"]

LATE_SERIES: Final[dict[str, str]] = {}
"""By metric: the event after which it has series that a panel or an alert selects."""
