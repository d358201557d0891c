"""The program over contents, which finds nodes for the pods of a plan that is there."""

from __future__ import annotations

import numpy as np
import pytest

from karpenter_core.scheduling.packing.content_program import (
    ContentsProblem,
    _ContentsSearch,
    contents_steps,
)
from karpenter_core.scheduling.steps import run_steps


def bought(contents, *, shapes, sizes, count, nodes=0):
    """Return the problem and the nodes; shapes are (cpu, memory, price)."""
    columns = np.array(shapes, dtype=np.float64).T
    problem = ContentsProblem(
        request=np.array(sizes, dtype=np.int64).T,
        count=np.array(count, dtype=np.int64),
        capacity=columns[:2].astype(np.int64),
        price=columns[2],
        lines=(0, 1),
        nodes=nodes,
    )
    steps = contents_steps(problem, np.array(contents, dtype=np.float64).T)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found, rest = end.value
            return problem, (*found, *rest)


def test_a_better_content_than_those_of_the_plan_is_found():
    """Of two sizes that fill a node together each node of the plan has only one."""
    problem, patterns = bought(
        [(2, 0), (0, 2)],
        shapes=[(10, 10, 1.0)],
        sizes=[(7, 3), (3, 7)],
        count=[40, 40],
    )
    assert [(one.content.tolist(), one.nodes) for one in patterns] == [([1, 1], 40)]
    assert sum(problem.price[one.shape] * one.nodes for one in patterns) == pytest.approx(40.0)


def test_there_are_as_many_nodes_as_pods_that_avoid_each_other_need():
    _, patterns = bought(
        [(4,)], shapes=[(1, 1, 1.0), (8, 8, 4.0)], sizes=[(1, 1)], count=[8], nodes=8
    )
    assert sum(one.nodes for one in patterns) == 8


@pytest.mark.parametrize(("nodes", "rest"), [(1, [([1, 1], 1)]), (2, [])])
def test_the_rest_is_not_put_on_fewer_nodes_than_pods_that_avoid_each_other_need(nodes, rest):
    problem = ContentsProblem(
        request=np.array([(1, 1), (2, 1)]).T,
        count=np.array([1, 1]),
        capacity=np.array([(8, 8)]).T,
        price=np.array([4.0]),
        lines=(0, 1),
        nodes=nodes,
    )
    search = _ContentsSearch(problem, np.array([(1.0, 1.0)]).T)
    found = run_steps(search.rest_steps())

    assert [(one.content.tolist(), one.nodes) for one in found] == rest


def test_nodes_hold_their_pods_and_each_pod_once():
    sizes, count = [(1, 4), (3, 2), (5, 9), (2, 2)], [37, 21, 18, 55]
    problem, patterns = bought(
        [(1, 1, 0, 1), (0, 0, 1, 1), (2, 0, 1, 0)],
        shapes=[(8, 16, 1.0), (8, 32, 1.2), (16, 32, 1.9), (32, 64, 3.7)],
        sizes=sizes,
        count=count,
    )
    for one in patterns:
        assert (problem.request @ one.content <= problem.capacity[:, one.shape]).all()
    placed = sum(one.content * one.nodes for one in patterns)
    assert placed.tolist() == count


def test_no_more_rounds_follow_one_that_changes_nothing():
    """Pods on part of a large node are worth more than it costs; whole ones are not."""
    shapes = np.array([(8, 16, 7.2), (8, 32, 8.0), (32, 64, 28.8), (32, 128, 32.0)]).T
    problem = ContentsProblem(
        request=np.array([(5, 7)]).T,
        count=np.array([3]),
        capacity=shapes[:2].astype(np.int64),
        price=shapes[2],
        lines=(0, 1),
        nodes=0,
    )
    rounds = list(contents_steps(problem, np.array([[3.0]])))
    assert len(rounds) == 1


def test_nodes_that_cost_nothing_are_no_division_by_zero():
    """A commitment may cover them in full, and the setting `node-fee` may be 0."""
    _, patterns = bought([(1,)], shapes=[(8, 8, 0.0), (2, 2, 0.0)], sizes=[(1, 1)], count=[8])
    assert sum(one.content.item() * one.nodes for one in patterns) == 8
