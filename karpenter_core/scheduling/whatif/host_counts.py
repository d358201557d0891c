"""Counts pods by node for host name groups, as rows and as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Counts

__all__ = ["HostCounts"]


@final
class HostCounts:
    """Counts by group and slot."""

    def __init__(self) -> None:
        self.rows: Final = dict[int, dict[int, int]]()
        """By group: the slots where any are counted. Only `add` and `remove` may write them."""
        self._arrays: Final = dict[int, "Counts"]()

    def add(self, group: int, slot: int, count: int) -> None:
        """Count more pods of a group on a node."""
        row = self.rows.setdefault(group, {})
        row[slot] = row.get(slot, 0) + count
        self._arrays.pop(group, None)

    def remove(self, group: int, slot: int, count: int) -> None:
        """Count fewer pods of a group on a node."""
        row = self.rows[group]
        row[slot] -= count
        if not row[slot]:
            del row[slot]
        self._arrays.pop(group, None)

    def array(self, group: int, size: int) -> Counts:
        """Return the counts of all slots below `size` (slots); not to be written to."""
        counts = self._arrays.get(group)
        if counts is None or len(counts) != size:
            row = self.rows.get(group, {})
            counts = self._arrays[group] = np.zeros(size, dtype=np.int64)
            counts[list(row)] = list(row.values())
        return counts
