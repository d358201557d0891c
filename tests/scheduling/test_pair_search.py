"""The search for cheaper nodes among few: pairs of them are planned anew."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from karpenter_core.scheduling.packing.pair_search import MAX_NODES, search_pairs_steps
from karpenter_core.scheduling.packing.patterns import NodePattern, PatternProblem


def market(shapes, *, sizes, count):
    """Return a problem of two resources; shapes are (cpu, memory, price)."""
    columns = np.array(shapes, dtype=np.float64).T
    return PatternProblem(
        request=np.array(sizes, dtype=np.int64).T,
        count=np.array(count, dtype=np.int64),
        capacity=columns[:2].astype(np.int64),
        price=columns[2],
    )


def node(shape, *content):
    return NodePattern(shape=shape, content=np.array(content, dtype=np.int64), nodes=1)


def searched(problem, nodes):
    steps = search_pairs_steps(problem, nodes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def cost(problem, nodes):
    return sum(problem.price[one.shape] * one.nodes for one in nodes)


def test_two_nodes_become_one_that_costs_less():
    problem = market([(4, 16, 4.0), (8, 32, 7.0)], sizes=[(4, 16)], count=[2])
    (one,) = searched(problem, [node(0, 1), node(0, 1)])
    assert (one.shape, one.content.tolist()) == (1, [2])


def test_a_node_becomes_two_that_cost_less():
    problem = market(
        [(4, 4, 2.0), (2, 16, 2.5), (8, 32, 9.0)], sizes=[(4, 4), (1, 16)], count=[1, 1]
    )
    nodes = searched(problem, [node(2, 1, 1)])
    assert sorted((one.shape, one.content.tolist()) for one in nodes) == [(0, [1, 0]), (1, [0, 1])]


def test_contents_are_exchanged_between_two_nodes():
    """Large in CPU goes with large in memory, not each with its like."""
    problem = market([(5, 5, 5.0), (8, 8, 9.0)], sizes=[(4, 1), (1, 4)], count=[2, 2])
    nodes = searched(problem, [node(1, 2, 0), node(1, 0, 2)])
    assert cost(problem, nodes) == pytest.approx(10.0)


def test_nodes_of_one_pattern_count_each():
    problem = market([(4, 16, 4.0), (16, 64, 13.0)], sizes=[(4, 16)], count=[4])
    four = NodePattern(shape=0, content=np.array([1]), nodes=4)
    assert cost(problem, searched(problem, [four])) < 16.0


def test_too_many_nodes_are_left_as_they_are():
    problem = market([(4, 16, 4.0), (8, 32, 1.0)], sizes=[(4, 16)], count=[MAX_NODES + 1])
    many = NodePattern(shape=0, content=np.array([1]), nodes=MAX_NODES + 1)
    assert searched(problem, [many]) == (many,)


@pytest.mark.parametrize("seed", range(20))
def test_the_search_keeps_pods_fits_and_never_costs_more(seed):
    random = Random(seed)
    ratios = [(cpu, cpu * ratio, cpu * (1 + 0.1 * ratio)) for cpu in (2, 4, 8) for ratio in (2, 8)]
    sizes = [(random.randint(1, 2), random.randint(1, 4)) for _ in range(3)]
    sizes = sorted(set(sizes))
    nodes = [node(5, *(random.randint(0, 2) for _ in sizes)) for _ in range(random.randint(1, 8))]
    total = sum(one.content for one in nodes)
    problem = market(ratios, sizes=sizes, count=total.tolist())
    better = searched(problem, nodes)
    assert sum(one.content * one.nodes for one in better).tolist() == total.tolist()
    for one in better:
        assert (problem.request @ one.content <= problem.capacity[:, one.shape]).all()
    assert cost(problem, better) <= cost(problem, nodes) + 1e-9
    assert [(one.shape, one.content.tolist()) for one in searched(problem, nodes)] == [
        (one.shape, one.content.tolist()) for one in better
    ]
