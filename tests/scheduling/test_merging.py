"""Fewer, larger nodes for the same contents."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.packing.merging import merge_patterns
from karpenter_core.scheduling.packing.patterns import NodePattern, PatternProblem
from tests.properties import with_examples


def market(*shapes, sizes=((1, 2),), count=(100,)):
    """Shapes are (cores, GiB, price), sizes (cores, GiB)."""
    return PatternProblem(
        request=np.array(sizes, dtype=np.int64).T,
        count=np.array(count, dtype=np.int64),
        capacity=np.array([shape[:2] for shape in shapes], dtype=np.int64).T,
        price=np.array([shape[2] for shape in shapes], dtype=np.float64),
    )


def pattern(shape, content, nodes):
    return NodePattern(shape=shape, content=np.array(content, dtype=np.int64), nodes=nodes)


def summary(patterns):
    return sorted((p.shape, tuple(p.content.tolist()), p.nodes) for p in patterns)


def test_nodes_of_one_content_are_put_on_larger_ones_of_the_same_price():
    linear = market((2, 4, 0.2), (4, 8, 0.4), (8, 16, 0.8))
    assert summary(merge_patterns(linear, [pattern(0, [2], 11)])) == [
        (0, (2,), 1),
        (1, (4,), 1),
        (2, (8,), 2),
    ]


def test_two_nodes_of_one_content_are_put_on_one():
    linear = market((2, 4, 0.2), (4, 8, 0.4))
    assert summary(merge_patterns(linear, [pattern(0, [2], 2)])) == [(1, (4,), 1)]


def test_a_larger_node_with_a_higher_price_per_pod_is_not_chosen():
    steep = market((2, 4, 0.2), (4, 8, 0.5))
    assert summary(merge_patterns(steep, [pattern(0, [2], 10)])) == [(0, (2,), 10)]


def test_nodes_of_two_contents_are_put_together():
    two_sizes = market(
        (4, 4, 0.2), (2, 16, 0.2), (8, 32, 0.39), sizes=((4, 4), (2, 16)), count=(1, 1)
    )
    together = merge_patterns(two_sizes, [pattern(0, [1, 0], 1), pattern(1, [0, 1], 1)])
    assert summary(together) == [(2, (1, 1), 1)]


def test_nodes_that_cost_nothing_are_put_together_too():
    free = market((4, 4, 0.0), (2, 16, 0.0), (8, 32, 0.0), sizes=((4, 4), (2, 16)), count=(1, 1))
    together = merge_patterns(free, [pattern(0, [1, 0], 1), pattern(1, [0, 1], 1)])
    assert summary(together) == [(2, (1, 1), 1)]


def test_merging_costs_half_a_percent_more_at_most():
    """Each pair would cost a tenth of a percent of all: five pairs, not more."""
    dear = market(
        *((1, 2, 1.0 + number / 1e6) for number in range(20)), (2, 4, 2.02),
        sizes=((1, 2),) * 20, count=(1,) * 20,
    )  # fmt: skip
    single = [pattern(number, np.eye(20, dtype=np.int64)[number], 1) for number in range(20)]
    assert len(merge_patterns(dear, single)) == 15


@st.composite
def bought(draw):
    """A small market, and patterns that fit their shapes."""
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(1, 40)),
            min_size=1,
            max_size=6,
        )
    )
    sizes = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=3))
    problem = market(*shapes, sizes=sizes, count=(99,) * len(sizes))
    patterns = []
    for _ in range(draw(st.integers(0, 6))):
        shape = draw(st.integers(0, len(shapes) - 1))
        content = np.zeros(len(sizes), dtype=np.int64)
        for size in draw(st.permutations(range(len(sizes)))):
            rest = problem.capacity[:, shape] - problem.request @ content
            asked = problem.request[:, size] > 0
            most = int((rest[asked] // problem.request[asked, size]).min())
            content[size] = draw(st.integers(0, most))
        if content.any():
            patterns.append(
                NodePattern(shape=shape, content=content, nodes=draw(st.integers(1, 9)))
            )
    return problem, patterns


@given(bought())
@with_examples(100)
def test_merging_keeps_pods_adds_no_nodes_and_costs_about_the_same(case):
    problem, patterns = case
    result = merge_patterns(problem, patterns)

    def pods(parts):
        return sum(
            (p.content * p.nodes for p in parts), np.zeros(len(problem.count), dtype=np.int64)
        )

    def cost(parts):
        return sum(float(problem.price[p.shape]) * p.nodes for p in parts)

    assert pods(result).tolist() == pods(patterns).tolist()
    assert sum(p.nodes for p in result) <= sum(p.nodes for p in patterns)
    assert cost(result) <= cost(patterns) * 1.0101
    for part in result:
        assert part.nodes > 0
        assert (problem.request @ part.content <= problem.capacity[:, part.shape]).all()
    assert summary(merge_patterns(problem, patterns)) == summary(result)


def test_an_empty_plan_merges_to_an_empty_plan():
    assert merge_patterns(market((2, 4, 0.2)), []) == ()
