"""Whole nodes with whole contents: exact covers, close to the bound, the same every time."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.packing.covering import CoveringProgram
from karpenter_core.scheduling.packing.guidance import GuidanceProblem, solve_guidance
from karpenter_core.scheduling.packing.patterns import PatternPlan, PatternProblem, pattern_steps
from tests.properties import with_examples

GIB = 1 << 30
ENOUGH = 20_000


def problem(
    sizes: list[tuple[int, int, int]], shapes: list[tuple[int, int, float]], slots: int = 110
) -> PatternProblem:
    """Sizes of (milli-CPU, bytes, pods), shapes of (milli-CPU, bytes, price); every pod a slot."""
    return PatternProblem(
        request=np.array([(*size[:2], 1) for size in sizes], dtype=np.int64).T,
        count=np.array([size[2] for size in sizes], dtype=np.int64),
        capacity=np.array([(*shape[:2], slots) for shape in shapes], dtype=np.int64).T,
        price=np.array([shape[2] for shape in shapes], dtype=np.float64),
    )


def run(asked: PatternProblem, budget: int = ENOUGH) -> tuple[PatternPlan | None, list[int]]:
    steps, units = pattern_steps(asked, budget=budget), list[int]()
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            return end.value, units


def planned(asked: PatternProblem, budget: int = ENOUGH) -> PatternPlan:
    patterns, _ = run(asked, budget)
    assert patterns is not None
    return patterns


def as_lists(patterns: PatternPlan) -> list[tuple[int, list[int], int]]:
    return [(p.shape, p.content.tolist(), p.nodes) for p in patterns.patterns]


def bound(asked: PatternProblem) -> float:
    count = len(asked.price)
    guidance = solve_guidance(
        GuidanceProblem(
            capacity=asked.capacity,
            price=asked.price,
            supply=np.full(count, inf),
            usable=np.ones((1, count), dtype=np.bool_),
            demand=(asked.request * asked.count).sum(axis=1)[None],
            load=np.zeros((1, len(asked.request)), dtype=np.int64),
            nodes=np.zeros(1, dtype=np.int64),
            fee_per_hour=0.0,
        )
    )
    assert guidance is not None
    return guidance.cost_bound


def test_sizes_that_complement_each_other_share_nodes():
    """Ten CPU-heavy and ten memory-heavy pods fill ten nodes; apart they would need twenty."""
    patterns = planned(
        problem(
            [(3000, GIB, 10), (1000, 7 * GIB, 10)], [(4000, 8 * GIB, 0.1), (8000, 9 * GIB, 0.5)]
        )
    )

    assert as_lists(patterns) == [(0, [1, 1], 10)]
    assert patterns.cost == pytest.approx(1.0)


def test_remaining_pods_are_placed_on_a_smaller_node():
    """Seventeen pods: four on each of four nodes, one on a small one."""
    patterns = planned(problem([(1000, GIB, 17)], [(4000, 4 * GIB, 0.1), (1000, GIB, 0.03)]))

    assert sorted(as_lists(patterns)) == [(0, [4], 4), (1, [1], 1)]


def test_pods_that_fit_nowhere_stay_pending():
    patterns = planned(problem([(5000, GIB, 3), (1000, GIB, 4)], [(4000, 4 * GIB, 0.1)]))

    assert patterns.left.tolist() == [3, 0]
    assert as_lists(patterns) == [(0, [0, 4], 1)]


def test_an_exact_fit_in_bytes_is_neither_missed_nor_exceeded():
    """Three times a third fits; with a byte less only two do."""
    third = 10**12 + 1
    shapes = [(4000, 3 * third, 0.1), (4000, 3 * third - 1, 0.08), (4000, third, 0.07)]

    patterns = planned(problem([(1, third, 6)], shapes))

    assert as_lists(patterns) == [(0, [3], 2)]


def test_shapes_that_daemons_overdraw_hold_nothing():
    patterns = planned(problem([(100, GIB, 2)], [(-100, 4 * GIB, 0.01), (4000, 4 * GIB, 0.1)]))

    assert as_lists(patterns) == [(1, [2], 1)]


def test_a_mixed_load_ends_near_the_bound():
    """Thirty sizes over markets of three families: within three percent of a bound."""
    draw = np.random.default_rng(42)
    sizes = [
        (cpu, memory * GIB // 1024, int(draw.integers(50, 150)))
        for cpu in (100, 250, 500, 1000, 1500)
        for memory in (100, 256, 512, 1024, 2048, 4096)
    ]
    shapes = [
        (cpu * 1000 - 150, cpu * ratio * GIB * 9 // 10, cpu * (0.03 + 0.004 * ratio))
        for cpu in (2, 4, 8, 16, 32, 64, 96)
        for ratio in (2, 4, 8)
    ]
    asked = problem(sizes, shapes, slots=250)

    assert planned(asked).cost <= 1.03 * bound(asked)


@pytest.mark.parametrize(("sizes", "pods"), [(40, 1), (100, 3), (300, 1), (300, 4)])
def test_pods_of_many_sizes_end_near_the_bound(sizes, pods):
    """Nearly every node has a content of its own: a program over contents ended up to 60 % above the bound."""
    draw = np.random.default_rng(sizes)
    asked = problem(
        [
            (int(cpu), int(mib) * GIB // 1024, pods)
            for cpu, mib in zip(
                draw.integers(50, 4000, sizes), draw.integers(64, 8000, sizes), strict=True
            )
        ],
        [
            (cpu * 1000 - 150, cpu * ratio * GIB * 9 // 10, cpu * (0.03 + 0.004 * ratio))
            for cpu in (2, 4, 8, 16, 32, 64, 96)
            for ratio in (2, 4, 8)
        ],
        slots=250,
    )

    assert planned(asked).cost <= 1.06 * bound(asked)


def test_a_pod_that_only_a_dear_shape_holds_is_placed_beside_many_others():
    """The shapes with the most worth for their price are tried; none of them holds that pod."""
    sizes = [(100 + number, GIB, 1) for number in range(1000)]
    shapes = [(4000 + number, 40 * GIB, 0.1) for number in range(40)]
    patterns = planned(problem([*sizes, (100_000, GIB, 1)], [*shapes, (200_000, 40 * GIB, 90.0)]))

    assert not patterns.left.any()
    assert sum(pattern.nodes for pattern in patterns.patterns if pattern.shape == 40) == 1


def test_pods_that_need_nothing_scarce_are_placed():
    """Memory costs nothing here, and some pods ask for memory alone."""
    asked = problem([(1000, GIB, 3), (0, GIB, 2), (0, 2 * GIB, 1)], [(4000, 400 * GIB, 0.1)])
    patterns = planned(asked)

    assert not patterns.left.any()
    placed = sum(pattern.content * pattern.nodes for pattern in patterns.patterns)
    assert placed.tolist() == [3, 2, 1]


def test_thinning_of_many_shapes_keeps_plans_near_the_bound():
    """Four hundred shapes of linear price, of which one in three is considered."""
    sizes = [(700, 2 * GIB, 211), (1500, GIB, 97), (250, 4 * GIB, 120)]
    shapes = [(1000 * n - 100, 2 * n * GIB, 0.3 * n) for n in range(1, 401)]
    asked = problem(sizes, shapes, slots=4000)

    assert planned(asked).cost <= 1.03 * bound(asked)


def test_a_plan_within_a_small_effort_budget_is_complete():
    draw = np.random.default_rng(7)
    sizes = [
        (int(cpu), int(gib) * GIB, 40) for cpu, gib in draw.integers(1, 2000, (40, 2)) % 60 + 1
    ]
    shapes = [(cpu * 7, cpu * GIB, cpu * 0.01 + cpu**0.5 * 0.01) for cpu in range(60, 120)]
    asked = problem(sizes, shapes)

    ample, spent_amply = run(asked)
    scarce, spent_scarcely = run(asked, budget=0)

    assert ample is not None
    assert scarce is not None
    assert sum(spent_scarcely) < sum(spent_amply)
    assert_covers(asked, scarce)
    assert ample.cost <= scarce.cost


def test_a_search_that_hardly_progresses_any_more_ends(monkeypatch: pytest.MonkeyPatch):
    """The last rounds are a fifth of the work, and hardly change the cost of a plan."""
    random = Random(1)
    asked = problem(
        [
            (
                random.randrange(100, 4000, 50),
                random.randrange(1, 16) * GIB // 2,
                random.randrange(8, 60),
            )
            for _ in range(64)
        ],
        [
            (1000 * cpu - 100, (cpu * ratio - 1) * GIB, cpu * (1 + 0.4 * ratio) / 50)
            for cpu in (2, 4, 8, 16, 32, 48)
            for ratio in (2, 4, 8)
        ],
    )
    short, short_work = run(asked)
    monkeypatch.setattr("karpenter_core.scheduling.packing.patterns._PATIENCE", 1000)
    long, long_work = run(asked)

    assert short is not None
    assert long is not None
    assert short.cost == pytest.approx(long.cost, rel=2e-3)
    assert sum(short_work) < 0.9 * sum(long_work)


def test_a_library_without_an_answer_gives_no_patterns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(CoveringProgram, "solve", lambda _self: None)

    assert run(problem([(1, 1, 1)], [(2, 2, 0.1)]))[0] is None


def test_no_pods_need_no_nodes():
    assert as_lists(planned(problem([(1, 1, 0)], [(2, 2, 0.1)]))) == []


# -- properties --------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn) -> PatternProblem:
    size = st.tuples(
        st.integers(0, 4000), st.integers(0, 64).map(lambda n: n * GIB // 8), st.integers(0, 40)
    )
    shape = st.tuples(
        st.integers(0, 16_000),
        st.integers(0, 256).map(lambda n: n * GIB // 4),
        st.integers(0, 1000).map(lambda n: n / 500),
    )
    return problem(
        draw(st.lists(size, min_size=1, max_size=6)),
        draw(st.lists(shape, min_size=1, max_size=8)),
        slots=draw(st.sampled_from((1, 3, 110))),
    )


def assert_covers(asked: PatternProblem, patterns: PatternPlan) -> None:
    placed = [0] * len(asked.count)
    cost = 0.0
    for pattern in patterns.patterns:
        assert pattern.nodes > 0
        assert pattern.content.any()
        for line, room in zip(asked.request, asked.capacity[:, pattern.shape], strict=True):
            used = sum(int(r) * int(n) for r, n in zip(line, pattern.content, strict=True))
            assert used <= int(room)
        for size, number in enumerate(pattern.content):
            placed[size] += int(number) * pattern.nodes
        cost += float(asked.price[pattern.shape]) * pattern.nodes
    assert [p + int(n) for p, n in zip(placed, patterns.left, strict=True)] == asked.count.tolist()
    assert patterns.cost == pytest.approx(cost)


@given(problems())
@with_examples(100)
def test_every_pod_is_placed_exactly_once_where_it_fits(asked: PatternProblem):
    """Left are the sizes that no shape holds, and only they."""
    patterns = planned(asked)

    assert_covers(asked, patterns)
    fits = (asked.capacity[:, None, :] >= asked.request[:, :, None]).all(axis=0).any(axis=1)
    assert patterns.left.tolist() == np.where(fits, 0, asked.count).tolist()


@given(problems())
@with_examples(100)
def test_patterns_cost_no_less_than_the_bound(asked: PatternProblem):
    patterns = planned(asked)
    placed = replace(asked, count=asked.count - patterns.left)

    assert bound(placed) <= patterns.cost


@given(problems(), st.randoms(use_true_random=False))
@with_examples(100)
def test_the_order_of_sizes_and_shapes_does_not_matter(asked: PatternProblem, lots):
    """The same nodes for the same pods, to the byte, in any order and every time."""
    sizes, shapes = list(range(len(asked.count))), list(range(len(asked.price)))
    lots.shuffle(sizes)
    lots.shuffle(shapes)
    shuffled = PatternProblem(
        request=asked.request[:, sizes],
        count=asked.count[sizes],
        capacity=asked.capacity[:, shapes],
        price=asked.price[shapes],
    )

    first, again, other = planned(asked), planned(asked), planned(shuffled)

    assert as_lists(first) == as_lists(again)
    assert first.cost == again.cost == pytest.approx(other.cost)
    assert _as_nodes(asked, first) == _as_nodes(shuffled, other)


def _as_nodes(asked: PatternProblem, patterns: PatternPlan) -> list[tuple[object, ...]]:
    """Shapes by what they are, contents by the requests they hold."""
    return sorted(
        (
            *asked.capacity[:, pattern.shape].tolist(),
            float(asked.price[pattern.shape]),
            sorted(
                (*request.tolist(), int(number))
                for request, number in zip(asked.request.T, pattern.content, strict=True)
                if number
            ),
            pattern.nodes,
        )
        for pattern in patterns.patterns
    )
