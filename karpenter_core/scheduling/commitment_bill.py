"""Computes savings of removing nodes that commitments pay for in part.

What a commitment covers is paid whether it is used or not. It covers the nodes that save most per unit;
without one of them it covers the next. So nodes save what all nodes cost beyond the commitments less
what the others cost, which may be less than the part of their own price that is not covered.
"""

from __future__ import annotations

from collections import Counter
from math import fsum
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.scheduling.commitments import SoldNode, committed_units, is_covered, saving_rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.scheduling.problem import CommitmentBalance

__all__ = ["CommitmentBill"]

_Kind: TypeAlias = tuple[str, str, str, str, float]
"""Instance type, zone, capacity type, currency and list price: such nodes are interchangeable."""


@final
class CommitmentBill:
    """The cost beyond commitments of all nodes together; prices in the reporting currency."""

    def __init__(
        self,
        balances: Sequence[CommitmentBalance],
        nodes: Iterable[SoldNode],
        rates: Mapping[str, float],
    ) -> None:
        """`rates` are units of the reporting currency for one of each; without a rate a price is 0."""
        self._rates: Final = rates
        self._counts: Final = Counter[_Kind]()
        sold: dict[_Kind, SoldNode] = {}
        for each in nodes:
            kind = _kind(each)
            sold.setdefault(kind, each)
            self._counts[kind] += 1
        self._orders: Final = [
            (
                balance.commitment.amount,
                [
                    (kind, committed_units(balance, each))
                    for kind, each in sorted(
                        sold.items(), key=lambda item: saving_rank(balance, item[1])
                    )
                    if is_covered(balance, each) and committed_units(balance, each) > 0
                ],
            )
            for balance in balances
        ]
        self._covered_price: Final = self._covered(Counter())
        self._saved: Final = dict[tuple[tuple[_Kind, int], ...], float]()

    def saved_without(self, nodes: Iterable[SoldNode]) -> float:
        """Return the price per hour that is saved without some of the nodes."""
        removed = Counter(_kind(each) for each in nodes)
        key = tuple(sorted(removed.items()))
        if key not in self._saved:
            listed = fsum(self._price(kind) * count for kind, count in removed.items())
            lost = self._covered_price - self._covered(removed)
            self._saved[key] = max(listed - lost, 0.0)
        return self._saved[key]

    def _covered(self, removed: Counter[_Kind]) -> float:
        """Return the list price of what commitments cover without some nodes."""
        left = self._counts - removed
        covered = 0.0
        for amount, order in self._orders:
            rest = amount
            for kind, units in order:
                if rest <= 0:
                    break
                taken = min(left[kind] * units, rest)
                covered += self._price(kind) * taken / units
                rest -= taken
                left[kind] -= -(-taken // units)  # one that is covered in part is no other's
        return covered

    def _price(self, kind: _Kind) -> float:
        *_, currency, price = kind
        return price * self._rates.get(currency, 0.0)


def _kind(sold: SoldNode) -> _Kind:
    instance_type, offering = sold
    price = offering.price
    return (
        instance_type.name, offering.zone, offering.capacity_type, price.currency, price.amount,
    )  # fmt: skip
