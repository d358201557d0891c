"""Narrows the lists of fitting nodes to those with capacity left.

A long series of pushes fills most nodes and removes many. Every search for a place would meet them
again, in the list of every class; so they are dropped from the lists after a push.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.scheduling.arrays import Amounts
    from karpenter_core.scheduling.whatif.fitting_nodes import (
        ClassPlacementPlan,
        FittingNodes,
        FittingNodesKey,
    )

__all__ = ["OpenFittingNodes"]

_FEW: Final = 32
"""So short a list need not be shorter."""

_MANY_STEPS: Final = 64
"""After so many steps a list is made anew: it has a node or two more with each that are full."""

_GONE: Final = -1
"""The free amount on a node that is gone."""


@dataclass(slots=True)
class _FittingList:
    slots: array[int]
    step: int


@final
class OpenFittingNodes:
    """The lists of fitting nodes after each push; at first the whole lists.

    A list may still have nodes that were filled since: they are tried in vain.
    """

    def __init__(self, fitting_nodes: FittingNodes, plans: Sequence[ClassPlacementPlan]) -> None:
        self._fitting_nodes: Final = fitting_nodes
        self._plans: Final = plans
        self._free: Amounts | None = None
        self._step = 0
        self._lists: Final = dict["FittingNodesKey", _FittingList]()

    def reset(self) -> None:
        """Discard the lists: nodes may have free resources again."""
        self._free = None
        self._lists.clear()

    def advance(self, rooms: Mapping[int, Sequence[int] | None]) -> None:
        """Record the free resources of slots after a push (None: the node is removed)."""
        if self._free is None:
            self._free = self._fitting_nodes.free.copy()
        for slot, room in rooms.items():
            self._free[:, slot] = _GONE if room is None else room
        self._step += 1

    def fitting_slots(self, key: FittingNodesKey) -> array[int]:
        """Return the slots that may take one more pod of a class (in a domain), in their order."""
        if self._free is None:
            return self._fitting_nodes.fitting_slots(key)
        slot_list = self._lists.get(key)
        if slot_list is None:
            slot_list = self._lists[key] = _FittingList(
                self._shorter(key, self._fitting_nodes.fitting_slots(key)), self._step
            )
        elif self._step - slot_list.step >= _MANY_STEPS:
            slot_list.slots, slot_list.step = self._shorter(key, slot_list.slots), self._step
        return slot_list.slots

    def _shorter(self, key: FittingNodesKey, slots: array[int]) -> array[int]:
        if len(slots) < _FEW or self._free is None:
            return slots
        listed = np.frombuffer(slots, dtype=np.int32)
        for line, amount in self._plans[key[0]].asked:
            listed = listed[self._free[line].take(listed) >= amount]
        return array("i", listed.tobytes())
