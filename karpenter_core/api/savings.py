"""Savings floors: the least that a consolidation of a NodePool must save.

The annotation `karpenter.sh/savings-floor` of a NodePool sets it: a share of the price of the nodes
(`10%`) or an amount per hour in the reporting currency (`0.05`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import SAVINGS_FLOOR
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool

__all__ = ["SavingsFloor", "savings_floor_error"]


@dataclass(frozen=True, slots=True)
class SavingsFloor:
    """A share of the price (0 to 1) and an amount per hour; both must be reached."""

    share: float = 0.0
    amount_per_hour: float = 0.0

    @classmethod
    def parse(cls, text: str) -> SavingsFloor:
        """Read `10%` or `0.05`.

        Raises:
            BadInputError: it is neither.
        """
        number = text.strip().removesuffix("%")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        is_share = text.strip().endswith("%")
        highest = 100.0 if is_share else float("inf")
        if not 0 <= value <= highest or value == float("inf"):
            raise BadInputError(
                f'annotation {SAVINGS_FLOOR}: "{text}" is neither a percentage from 0% to 100%'
                " nor an amount per hour"
            )
        return cls(share=value / 100) if is_share else cls(amount_per_hour=value)

    @classmethod
    def of(cls, pool: NodePool) -> SavingsFloor:
        """Return a pool's floor; one that cannot be read counts as the highest share.

        Moving pods for a saving that the pool's owner meant to forbid is worse than not moving
        them.
        """
        text = pool.metadata.annotations.get(SAVINGS_FLOOR)
        if text is None:
            return _NO_FLOOR
        try:
            return cls.parse(text)
        except BadInputError:
            return cls(share=1.0)


_NO_FLOOR = SavingsFloor()


def savings_floor_error(pool: NodePool) -> str:
    """Return the error of a pool's floor; empty if it is valid."""
    text = pool.metadata.annotations.get(SAVINGS_FLOOR)
    try:
        SavingsFloor.parse("0" if text is None else text)
    except BadInputError as error:
        return str(error)
    return ""
