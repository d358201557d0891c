"""Tracks volumes that pods share: a node attaches each of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Columns, Counts
    from karpenter_core.scheduling.compiled.problem import CompiledProblem, PlacementTask
    from karpenter_core.scheduling.placement.open_nodes import OpenNodes

__all__ = ["SharedVolumes"]


@final
class SharedVolumes:
    """The shared volumes on each existing node, in one plan.

    New nodes attach any number.
    """

    def __init__(self, compiled: CompiledProblem, nodes: OpenNodes) -> None:
        self._resources: Final = compiled.resources
        self._nodes: Final = nodes
        self._present: dict[str, Counts] = {}
        """By volume claim, existing nodes: 1 on every node that has it."""
        shared = {claim for c in compiled.classes for _, claim in c.shared_volumes}
        for column, node in enumerate(compiled.nodes) if shared else ():
            for claims in node.volumes.values():
                for claim in claims & shared:
                    self._row(claim)[column] = 1

    def _row(self, claim: str) -> Counts:
        row = self._present.get(claim)
        if row is None:
            row = np.zeros(self._nodes.existing, dtype=np.int64)
            self._present[claim] = row
        return row

    def attachable(self, task: PlacementTask, columns: Columns) -> Columns:
        """Keep the nodes that have, or can still attach, the volumes that pods share."""
        good = np.ones(len(columns), dtype=np.bool_)
        there = columns < self._nodes.existing
        needed: dict[int, Counts] = {}
        for resource, claim in task.pod_class.shared_volumes:
            line = self._resources.index(resource)
            absent = np.ones(len(columns), dtype=np.int64)
            absent[there] -= self._row(claim)[columns[there]]
            needed[line] = needed.get(line, 0) + absent
        for line, count in needed.items():
            spare = self._nodes.free[line, columns] - task.request[line] >= count
            good &= spare | (task.request[line] + count == 0)  # attached, however many are
        return columns[good]

    def attach(self, task: PlacementTask, columns: list[int]) -> None:
        """Note that pods come to nodes, with the volumes that they share."""
        existing = self._nodes.existing
        there = np.array([column for column in columns if column < existing], dtype=np.intp)
        for resource, claim in task.pod_class.shared_volumes:
            present = self._row(claim)
            self._nodes.take(self._resources.index(resource), there[present[there] == 0], 1)
            present[there] = 1
