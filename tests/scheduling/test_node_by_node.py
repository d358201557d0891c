"""Filling one node after another with pods of many sizes."""

from __future__ import annotations

import numpy as np
import pytest

from karpenter_core.scheduling.packing.heuristic_fills import HeuristicFills
from karpenter_core.scheduling.packing.node_by_node import fill_nodes_steps
from karpenter_core.scheduling.steps import run_steps


def filled(sizes, shapes, count):
    """Return shape, content and number of nodes; shapes are (cpu, memory, price)."""
    request = np.array(sizes, dtype=np.float64).T
    columns = np.array(shapes, dtype=np.float64).T
    pods = np.array(count, dtype=np.float64)
    fills = HeuristicFills(request, columns[:2], request @ pods)
    nodes = run_steps(fill_nodes_steps(request, columns[:2], columns[2], pods, fills))
    return None if nodes is None else [(s, c.tolist(), n) for s, c, n in nodes]


def test_nodes_of_equal_content_are_bought_together():
    assert filled([(2, 2), (1, 1)], [(3, 3, 1.0)], [40, 40]) == [(0, [1, 1], 40)]


def test_a_node_is_bought_in_the_cheapest_shape_for_its_content():
    """The large shape is tried first, as it costs less for its room; the last pod needs little of that."""
    assert filled([(1, 1)], [(4, 4, 3.9), (1, 1, 1.0)], [9]) == [(0, [4], 2), (1, [1], 1)]


@pytest.mark.parametrize("others", [0, 3])
def test_there_is_no_answer_if_a_pod_fits_on_no_shape(others):
    assert filled([(9, 1), (1, 1)], [(4, 4, 1.0), (2, 2, 0.6)], [1, others]) is None


def test_nodes_that_cost_nothing_are_filled():
    nodes = filled([(1, 1), (2, 1)], [(4, 4, 0.0), (2, 2, 0.0)], [3, 2])
    assert sum(n * np.array(c) for _, c, n in nodes).tolist() == [3, 2]
