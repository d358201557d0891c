"""Changes prices: to an amount, by an amount, or by a share of the price."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from karpenter_core.api.prices import Price
from karpenter_core.errors import BadInputError

__all__ = ["PriceChange", "PriceChangeKind"]

_PERCENT: Final = 100


class PriceChangeKind(StrEnum):
    """The meaning of the number of a change."""

    SET = "set"
    ADD = "add"
    PERCENT = "percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """A change of a price per hour; the result is never below 0."""

    kind: PriceChangeKind
    value: float
    """An amount per hour in the currency of the price, or percents to add."""

    @classmethod
    def parse(cls, text: str) -> PriceChange:
        """Read `12.5` (the new price), `+0.5` and `-1.2` (amounts), `+10%` and `-15%` (shares).

        Raises:
            BadInputError: the text is none of these.
        """
        is_signed, is_share = text[:1] in {"+", "-"}, text.endswith("%")
        try:
            value = float(text.removesuffix("%"))
        except ValueError:
            value = float("nan")
        if not -float("inf") < value < float("inf") or (is_share and not is_signed):
            raise BadInputError(f'"{text}" is not a price or a change of a price')
        if is_share:
            return cls(kind=PriceChangeKind.PERCENT, value=value)
        return cls(kind=PriceChangeKind.ADD if is_signed else PriceChangeKind.SET, value=value)

    def apply(self, price: Price) -> Price:
        """Return the changed price in the same currency; an unknown price stays unknown unless set."""
        match self.kind:
            case PriceChangeKind.SET:
                amount = self.value
            case PriceChangeKind.ADD:
                amount = price.amount + self.value
            case PriceChangeKind.PERCENT:
                amount = price.amount * (1 + self.value / _PERCENT)
        return Price(0.0 if amount < 0 else amount, price.currency)

    def __str__(self) -> str:
        """Write the change as its user did, nearly."""
        number = f"{self.value:g}" if self.kind is PriceChangeKind.SET else f"{self.value:+g}"
        return f"{number}%" if self.kind is PriceChangeKind.PERCENT else number
