"""Nodes keep room for the pods that their contents were planned for."""

from __future__ import annotations

import numpy as np

from karpenter_core.scheduling.placement.node_contents import NodeContents

SMALL, LARGE = 0, 1


def contents():
    """Make contents of two sizes of pods, one CPU and three."""
    return NodeContents(np.array([SMALL, LARGE]), np.array([[1, 3]]))


def test_a_node_with_planned_contents_has_capacity_for_other_pods():
    meant = contents()
    meant.plan([0, 1], np.array([1, 1]))
    free = np.array([[4, 5, 1]])
    columns = np.arange(3)

    assert meant.spare(columns, free, SMALL).tolist() == [1, 2]
    meant.use(LARGE, [0], [1])
    assert meant.of_class(LARGE).tolist()[:2] == [0, 1]
    assert meant.spare(columns, free, SMALL).tolist() == [0, 1, 2]


def test_pods_on_a_node_that_is_meant_for_nothing_change_no_other_node():
    """It was opened after the contents were planned."""
    meant = contents()
    meant.plan([0], np.array([2, 1]))
    before = meant.of_class(SMALL).tolist()
    meant.use(SMALL, [7], [3])
    assert meant.of_class(SMALL).tolist() == before


def test_no_more_pods_are_taken_off_than_a_node_is_meant_for():
    meant = contents()
    meant.plan([0], np.array([2, 1]))
    meant.use(SMALL, [0], [5])
    assert meant.of_class(SMALL)[0] == 0
    assert meant.spare(np.array([0]), np.array([[4]]), SMALL).tolist() == [0]
    assert meant.spare(np.array([0]), np.array([[3]]), SMALL).tolist() == []
