"""The table of open nodes grows with the claims of a pass, and keeps what it holds."""

from __future__ import annotations

import numpy as np

from karpenter_core.scheduling.placement.open_nodes import OpenNodes


def open_nodes(spare):
    """One existing node of two resources, and a planned claim with a pod."""
    nodes = OpenNodes(
        np.array([[4], [8]]), np.array([3]), weights=np.array([1.0, 0.5]), spare=spare
    )
    (claim,) = nodes.open(1, signature=5, limit=np.array([10, 20]), row=2)
    nodes.place(0, [claim], [1], np.array([1, 2]))
    return nodes


def held(nodes):
    columns = [nodes.signature, nodes.row, nodes.free_value]
    return [each.tolist() for each in (*nodes.free, *nodes.used, *columns)]


def test_claims_beyond_the_allocated_columns_change_nothing_of_those_before():
    nodes = open_nodes(spare=1)
    assert nodes.size == 2
    opened = nodes.open(5, signature=6, limit=np.array([7, 9]), row=4)

    assert opened == [2, 3, 4, 5, 6]
    assert held(nodes) == [
        [4, 9, *[7] * 5],
        [8, 18, *[9] * 5],
        [0, 1, *[0] * 5],
        [0, 2, *[0] * 5],
        [3, 5, *[6] * 5],
        [-1, 2, *[4] * 5],
        [0.0, 18.0, *[11.5] * 5],
    ]


def test_columns_double_so_that_claims_opened_one_by_one_are_seldom_copied():
    nodes = open_nodes(spare=3)
    assert nodes.size == 4
    nodes.open(3, signature=5, limit=np.array([10, 20]))
    assert nodes.size == 8
    for _ in range(3):
        nodes.open(1, signature=5, limit=np.array([10, 20]))
    assert nodes.size == 8
