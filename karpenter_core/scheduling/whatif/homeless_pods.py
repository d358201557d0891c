"""Finds pods that no existing node takes, whatever nodes are removed.

New nodes must hold them. In a cluster whose nodes are full, removing most nodes is refused for such
pods alone. What they ask for is kept for each node, so that the question costs a look-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.whatif.first_fit import FirstFitPlacement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from karpenter_core.scheduling.arrays import Amounts
    from karpenter_core.scheduling.whatif.base_state import BaseState
    from karpenter_core.scheduling.whatif.overlay import ClusterOverlay
    from karpenter_core.scheduling.whatif.price_bounds import PriceBounds

__all__ = ["HomelessPods", "SinglePrices"]

SinglePrices = tuple[float, float]
"""The lowest price of one node for the pods of a node that no other takes, and for all of its pods."""


@final
class HomelessPods:
    """The pods of classes that no node has room for, by slot.

    A class keeps being one while questions remove nodes and put pods on others: the only room that
    comes free is that of removed nodes.
    """

    def __init__(self, base: BaseState, bounds: PriceBounds) -> None:
        self._base: Final = base
        self._bounds: Final = bounds
        self._classes: frozenset[int] = frozenset()
        self._amounts: Final = dict[int, "Amounts | None"]()
        """Requests of these pods, by slot; None without any."""
        self._prices: Final = dict[int, SinglePrices]()
        self._names: Final = set[str]()
        """Names of the nodes with such pods, but for those of `_unread` slots."""
        self._unread: Final = set[int]()

    def renew(self, overlay: ClusterOverlay, changed: Iterable[int]) -> None:
        """Find the classes for a settled state, in which the nodes of some slots have changed."""
        placement = FirstFitPlacement(self._base, overlay)
        classes = frozenset(plan.number for plan in self._base.plans if placement.has_no_room(plan))
        if classes != self._classes:
            self._classes = classes
            self._amounts.clear()
            self._prices.clear()
            self._unread.update(self._base.base_nodes)
        for slot in changed:
            self._amounts.pop(slot, None)
            self._prices.pop(slot, None)
            self._unread.add(slot)

    def has_any(self, slot: int) -> bool:
        """Whether any pod that leaves a node is one."""
        return self._amounts_of(slot) is not None

    def names(self) -> Collection[str]:
        """Return the names of the nodes that have any."""
        for slot in self._unread:
            name = self._base.base_nodes[slot].node.name
            if self.has_any(slot):
                self._names.add(name)
            else:
                self._names.discard(name)
        self._unread.clear()
        return self._names

    def single_prices(self, slot: int) -> SinglePrices | None:
        """Return the prices of a node; None without such pods."""
        amounts = self._amounts_of(slot)
        if amounts is None:
            return None
        prices = self._prices.get(slot)
        if prices is None:
            pods = self._base.base_nodes[slot].leaving_pods
            whole = self._sum(pods, [number for number, _ in pods])
            prices = self._prices[slot] = (
                self._bounds.lowest_single_price(amounts),
                self._bounds.lowest_single_price(whole),
            )
        return prices

    def fit_no_node(self, slots: Sequence[int]) -> bool:
        """Whether those of some nodes together are too many for one new node."""
        found = [amounts for slot in slots if (amounts := self._amounts_of(slot)) is not None]
        return bool(found) and np.isinf(self._bounds.lowest_single_price(np.sum(found, axis=0)))

    def are_all(self, slots: Iterable[int]) -> bool:
        """Whether all pods of some nodes are such, and none is bound to others by topology.

        What becomes of them then depends on these nodes and on NodePools alone.
        """
        plans = self._base.plans
        return all(
            number in self._classes
            and not (plans[number].counted or plans[number].owned)
            and not (plans[number].host or plans[number].zonal)
            for slot in slots
            for number, _ in self._base.base_nodes[slot].leaving_pods
        )

    def _amounts_of(self, slot: int) -> Amounts | None:
        if slot not in self._amounts:
            pods = self._base.base_nodes[slot].leaving_pods
            numbers = [number for number, _ in pods if number in self._classes]
            self._amounts[slot] = self._sum(pods, numbers) if numbers else None
        return self._amounts[slot]

    def _sum(self, pods: Iterable[tuple[int, Sequence[object]]], numbers: Sequence[int]) -> Amounts:
        counts = [len(members) for number, members in pods if number in numbers]
        return self._base.compiled.requests[:, numbers] @ np.array(counts, dtype=np.int64)
