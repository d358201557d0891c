"""Price: an amount per hour in a currency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_CURRENCY", "Price", "amount_text"]

DEFAULT_CURRENCY: Final = "USD"


@dataclass(frozen=True, slots=True, order=False)
class Price:
    """A price per hour; prices of two currencies are never compared silently."""

    amount: float
    currency: str = DEFAULT_CURRENCY

    def __str__(self) -> str:
        """Write the price the way tables show it."""
        return f"{self.amount:.4f} {self.currency}/h"


def amount_text(amount: float, currency: str, *, digits: int) -> str:
    """Write an amount of money; Karpenter's Events have `$0.80`, which only dollars can be."""
    return (
        f"${amount:.{digits}f}"
        if currency == DEFAULT_CURRENCY
        else f"{amount:.{digits}f} {currency}"
    )
