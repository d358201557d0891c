"""Price: an amount per hour in a currency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_CURRENCY", "Price"]

DEFAULT_CURRENCY: Final = "USD"


@dataclass(frozen=True, slots=True, order=False)
class Price:
    """A price per hour; prices of two currencies are never compared silently."""

    amount: float
    currency: str = DEFAULT_CURRENCY

    def __str__(self) -> str:
        """Write the price the way tables show it."""
        return f"{self.amount:.4f} {self.currency}/h"
