"""Holds planned contents of open nodes: the pods each is opened for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Amounts, Columns, Counts

__all__ = ["NodeContents"]


@final
class NodeContents:
    """Counts of the pods that each open node is still meant for."""

    def __init__(self, size_of: Columns, requests: Amounts) -> None:
        self._size_of: Final = size_of
        self._request: Final = np.zeros((len(requests), int(size_of.max()) + 1), dtype=np.int64)
        self._request[:, size_of] = requests
        self._counts = np.zeros((self._request.shape[1], 0), dtype=np.int64)
        self._reserved = np.zeros((len(requests), 0), dtype=np.int64)

    def plan(self, columns: list[int], content: Counts) -> None:
        """Mean nodes for a content."""
        missing = columns[-1] + 1 - self._counts.shape[1]
        if missing > 0:
            wider = ((0, 0), (0, max(missing, self._counts.shape[1])))
            self._counts = np.pad(self._counts, wider)
            self._reserved = np.pad(self._reserved, wider)
        self._counts[:, columns] = content[:, None]
        self._reserved[:, columns] = (self._request @ content)[:, None]

    def of_class(self, index: int) -> Counts:
        """Return how many pods of a class each node is meant for: nodes, or the first of them."""
        line: Counts = self._counts[self._size_of[index]]
        return line

    def use(self, index: int, columns: list[int], counts: list[int]) -> None:
        """Take pods that were placed off what nodes are meant for."""
        size = self._size_of[index]
        line, request = self._counts[size], self._request[:, size]
        for column, count in zip(columns, counts, strict=True):
            if column < len(line) and line[column]:
                meant = min(line.item(column), count)
                line[column] -= meant
                self._reserved[:, column] -= request * meant

    def spare(self, columns: Columns, free: Amounts, index: int) -> Columns:
        """Return the nodes that have room for a pod beside what they are meant for."""
        inside = columns[: np.searchsorted(columns, self._reserved.shape[1])]
        outside = columns[len(inside) :]
        room = free[:, inside] - self._reserved[:, inside]
        fits = (room >= self._request[:, [self._size_of[index]]]).all(axis=0)
        return np.concatenate((inside[fits], outside))
