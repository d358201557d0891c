"""Holds the table of open nodes: existing nodes, then planned claims.

The only writer of these arrays. Amounts are int64 in fixed units, resource-major: every hot
operation walks one resource over all nodes.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from karpenter_core.scheduling.arrays import Amounts, Columns, Floats, Numbers, grown

__all__ = ["NO_ROW", "OpenNodes"]

NO_ROW: Final = -1
"""The `row` of a claim that is not measured by one row, and of an existing node."""

_FIRST_CLAIMS: Final = 256
"""Columns for claims that are allocated at first."""


@final
class OpenNodes:
    """Nodes that pods can be put on in this pass, with what is left on each."""

    def __init__(
        self,
        free: Amounts,
        signatures: Numbers,
        *,
        weights: Floats | None,
        spare: int = _FIRST_CLAIMS,
    ) -> None:
        """Take existing nodes: `free` is resources x nodes, `weights` are by resource."""
        resources, existing = free.shape
        size = existing + spare
        self.existing: Final = existing
        """The number of columns that are existing nodes."""
        self.count = existing
        self._free = np.zeros((resources, size), dtype=np.int64)
        self._free[:, :existing] = free
        self._used = np.zeros((resources, size), dtype=np.int64)
        self._signature = np.full(size, NO_ROW, dtype=np.int64)
        self._signature[:existing] = signatures
        self._row = np.full(size, NO_ROW, dtype=np.int64)
        self._free_value = np.zeros(size)
        self._weights: Final = weights
        self._pod_values: Final = dict[int, float]()
        """The weighted requests of a pod of each class."""
        self.signatures_in_use: Final = list(dict.fromkeys(signatures.tolist()))
        """Every signature some node has or had, in the order of coming up."""
        self._known_signatures: Final = set(self.signatures_in_use)
        self.log: Final = list[tuple[int, list[int], list[int]]]()
        """The placements, in order: class, columns, pods placed on each."""

    @property
    def free(self) -> Amounts:
        """Resources x nodes: what is left at most."""
        return self._free[:, : self.count]

    @property
    def used(self) -> Amounts:
        """Resources x nodes: what this pass has put there."""
        return self._used[:, : self.count]

    @property
    def signature(self) -> Numbers:
        """nodes: the number of each node's signature."""
        return self._signature[: self.count]

    @property
    def row(self) -> Numbers:
        """nodes: the row of the catalogue each claim is measured by; NO_ROW: any of its rows."""
        return self._row[: self.count]

    @property
    def free_value(self) -> Floats:
        """nodes: what is left on each planned claim, weighed; nothing without weights."""
        return self._free_value[: self.count]

    @property
    def size(self) -> int:
        """Number of allocated columns."""
        return self._signature.shape[0]

    def open(self, count: int, *, signature: int, limit: Amounts, row: int = NO_ROW) -> list[int]:
        """Add empty claims and return their columns; `limit` is by resource."""
        start, end = self.count, self.count + count
        if end > self._signature.shape[0]:
            self._grow(end)
        self.count = end
        self._free[:, start:end] = limit[:, None]
        self._used[:, start:end] = 0
        if self._weights is not None:
            self._free_value[start:end] = self._weights @ limit
        self._signature[start:end] = signature
        self._use(signature)
        self._row[start:end] = row
        return list(range(start, end))

    def place(
        self, pod_class: int, columns: list[int], counts: list[int], request: Amounts
    ) -> None:
        """Put pods of one class on nodes; `request` is by resource."""
        self.log.append((pod_class, columns, counts))
        pod_value = self._weighed(pod_class, request)
        if len(columns) == 1:  # the usual case, at a third of the time
            column, count = columns[0], counts[0]
            amount = request if count == 1 else request * count
            self._free[:, column] -= amount
            self._used[:, column] += amount
            if pod_value is not None:
                self._free_value[column] -= pod_value * count
            return
        given = np.array(counts)
        amounts = request[:, None] * given[None, :]
        self._free[:, columns] -= amounts
        self._used[:, columns] += amounts
        if pod_value is not None:
            self._free_value[columns] -= pod_value * given

    def _weighed(self, pod_class: int, request: Amounts) -> float | None:
        if self._weights is None:
            return None
        pod_value = self._pod_values.get(pod_class)
        if pod_value is None:
            pod_value = self._pod_values[pod_class] = float(self._weights @ request)
        return pod_value

    def set_signature(
        self, columns: Columns | list[int], signature: int, limit: Amounts | None
    ) -> None:
        """Give nodes another signature; `limit` is its new capacity, when that changed."""
        self._signature[columns] = signature
        self._use(signature)
        if limit is not None:
            self._measure(columns, limit)

    def set_row(self, columns: list[int], row: int, limit: Amounts) -> None:
        """Measure claims by another row, whose capacity is `limit`."""
        self._row[columns] = row
        self._measure(columns, limit)

    def _measure(self, columns: Columns | list[int], limit: Amounts) -> None:
        self._free[:, columns] = limit[:, None] - self._used[:, columns]
        if self._weights is not None:
            self._free_value[columns] = self._weights @ self._free[:, columns]

    def close(self, columns: list[int]) -> None:
        """Close claims without pods: nothing fits there any more, nor do they grow."""
        self._row[columns] = NO_ROW
        self._measure(columns, np.full(len(self._free), -1, dtype=np.int64))

    def take(self, line: int, columns: Columns, amount: int) -> None:
        """Take some of one resource without a pod (a volume that pods share)."""
        self._free[line, columns] -= amount

    def _use(self, signature: int) -> None:
        if signature not in self._known_signatures:
            self._known_signatures.add(signature)
            self.signatures_in_use.append(signature)

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * self._signature.shape[0])
        self._free, self._used = grown(self._free, size), grown(self._used, size)
        self._signature = grown(self._signature, size, NO_ROW)
        self._free_value = grown(self._free_value, size)
        self._row = grown(self._row, size, NO_ROW)
