"""Which nodes have room still, after what was pushed: the lists of takers without all others.

A long growth fills most nodes and takes many away. Whoever looks for a place would meet them again
and again, in the list of every class; of what has been pushed, they are sorted out all at once.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.scheduling.arrays import Amounts
    from karpenter_core.scheduling.whatif.takers import ClassPlan, Takers, TakersKey

__all__ = ["OpenTakers"]

_FEW: Final = 32
"""So short a list need not be shorter."""

_MANY_STEPS: Final = 64
"""After so many steps a list is made anew: it has a node or two more with each that are full."""

_GONE: Final = -1
"""What is free on a node that is gone."""


@dataclass(slots=True)
class _List:
    slots: array[int]
    step: int


@final
class OpenTakers:
    """The lists of takers after what will stay, step by step; at first the whole lists.

    A list may have nodes that were filled since, as the whole list does: they are tried in vain.
    """

    def __init__(self, takers: Takers, plans: Sequence[ClassPlan]) -> None:
        self._takers: Final = takers
        self._plans: Final = plans
        self._free: Amounts | None = None
        self._step = 0
        self._lists: Final = dict["TakersKey", _List]()

    def forget(self) -> None:
        """Begin anew: nodes may have room again."""
        self._free = None
        self._lists.clear()

    def advance(self, rooms: Mapping[int, Sequence[int] | None]) -> None:
        """Take a step, after which slots have so much free (None: they are gone)."""
        if self._free is None:
            self._free = self._takers.free.copy()
        for slot, room in rooms.items():
            self._free[:, slot] = _GONE if room is None else room
        self._step += 1

    def of(self, key: TakersKey) -> array[int]:
        """Return the slots that may take one more pod of a class (in a domain), in their order."""
        if self._free is None:
            return self._takers.of(key)
        known = self._lists.get(key)
        if known is None:
            known = self._lists[key] = _List(self._shorter(key, self._takers.of(key)), self._step)
        elif self._step - known.step >= _MANY_STEPS:
            known.slots, known.step = self._shorter(key, known.slots), self._step
        return known.slots

    def _shorter(self, key: TakersKey, slots: array[int]) -> array[int]:
        if len(slots) < _FEW or self._free is None:
            return slots
        listed = np.frombuffer(slots, dtype=np.int32)
        for line, amount in self._plans[key[0]].asked:
            listed = listed[self._free[line].take(listed) >= amount]
        return array("i", listed.tobytes())
