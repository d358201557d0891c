"""The guidance LP: answers on small markets, and its bound."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.packing.covering import CoveringProgram, safe_bound
from karpenter_core.scheduling.packing.guidance import Guidance, GuidanceProblem, solve_guidance
from tests.properties import with_examples

GIB = 1 << 30


def market(
    *shapes: tuple[int, int, float],
    demand: tuple[int, int],
    nodes: int = 0,
    fee: float = 0.0,
    supply: tuple[float, ...] | None = None,
) -> GuidanceProblem:
    """Shapes of (milli-CPU, bytes, price), everything usable by everyone."""
    return GuidanceProblem(
        capacity=np.array([shape[:2] for shape in shapes], dtype=np.int64).T,
        price=np.array([shape[2] for shape in shapes], dtype=np.float64),
        supply=np.array(supply or (inf,) * len(shapes), dtype=np.float64),
        usable=np.ones((1, len(shapes)), dtype=np.bool_),
        demand=np.array([demand], dtype=np.int64),
        load=np.zeros((1, len(demand)), dtype=np.int64),
        nodes=np.array([nodes], dtype=np.int64),
        fee_per_hour=fee,
    )


def with_share(
    problem: GuidanceProblem,
    usable: tuple[bool, ...],
    demand: tuple[int, int],
    nodes: int = 0,
    load: tuple[int, int] = (0, 0),
) -> GuidanceProblem:
    return replace(
        problem,
        usable=np.vstack((problem.usable, np.array(usable))),
        demand=np.vstack((problem.demand, np.array(demand, dtype=np.int64))),
        load=np.vstack((problem.load, np.array(load, dtype=np.int64))),
        nodes=np.append(problem.nodes, nodes),
    )


def guided(problem: GuidanceProblem) -> Guidance:
    guidance = solve_guidance(problem)
    assert guidance is not None
    return guidance


def test_the_cheapest_mix_covers_every_resource():
    """Four nodes of 4 CPUs and 16 GiB hold 16 CPUs and 40 GiB; a CPU-heavy mix is cheaper."""
    guidance = guided(
        market((4000, 8 * GIB, 0.10), (4000, 16 * GIB, 0.14), demand=(16_000, 40 * GIB))
    )

    assert guidance.counts == pytest.approx([3.0, 1.0])
    assert guidance.cost_bound == pytest.approx(0.44)


def test_duals_and_bytes_and_millis_are_priced_in_their_own_units():
    """At the optimum the value of a node's resources equals its price."""
    problem = market((4000, 8 * GIB, 0.10), (4000, 16 * GIB, 0.14), demand=(16_000, 40 * GIB))
    guidance = guided(problem)

    assert guidance.duals[0] @ problem.capacity == pytest.approx(problem.price)
    assert guidance.unit_price == pytest.approx(guidance.duals[0])
    assert guidance.unit_price == pytest.approx([0.06 / 4000, 0.04 / (8 * GIB)])


def test_a_resource_in_surplus_has_no_value():
    guidance = guided(market((4000, 16 * GIB, 0.14), demand=(16_000, GIB)))

    assert guidance.unit_price == pytest.approx([0.14 / 4000, 0.0])


def test_a_fee_prefers_few_large_nodes_but_is_not_part_of_the_bound():
    shapes = ((2000, 4 * GIB, 0.05), (16_000, 32 * GIB, 0.401))
    demand = (64_000, 8 * GIB)

    free, charged = (guided(market(*shapes, demand=demand, fee=fee)) for fee in (0.0, 0.005))

    assert free.counts == pytest.approx([32, 0])
    assert charged.counts == pytest.approx([0, 4])
    assert charged.cost_bound == pytest.approx(free.cost_bound) == pytest.approx(1.6)


def test_pods_that_avoid_each_other_force_nodes():
    guidance = guided(market((4000, 8 * GIB, 0.1), (1000, GIB, 0.03), demand=(1000, GIB), nodes=10))

    assert guidance.counts == pytest.approx([0, 10])
    assert guidance.node_duals == pytest.approx([0.03])


def test_a_zone_share_launches_only_usable_nodes():
    """Pods for two nodes are bound to the expensive zone."""
    shapes = ((4000, 8 * GIB, 0.1), (4000, 8 * GIB, 0.3))
    guidance = guided(
        with_share(market(*shapes, demand=(20_000, GIB)), (False, True), demand=(8000, GIB))
    )

    assert guidance.counts == pytest.approx([3, 2])
    assert guidance.cost_bound == pytest.approx(0.9)
    assert guidance.duals[:, 0] * 4000 == pytest.approx([0.1, 0.2])


def test_reserved_capacity_is_used_up_before_other_offerings():
    guidance = guided(
        market((4000, 8 * GIB, 0.0), (4000, 8 * GIB, 0.2), demand=(20_000, GIB), supply=(3, inf))
    )

    assert guidance.counts == pytest.approx([3, 2])
    assert guidance.cost_bound == pytest.approx(0.4)


@pytest.mark.parametrize(
    "problem",
    [
        market((4000, 0, 0.1), demand=(1000, GIB)),
        market((4000, GIB, 0.1), demand=(5000, GIB), supply=(1,)),
        market((-5, GIB, 0.1), demand=(1, 1)),
    ],
    ids=["no memory anywhere", "too few reserved", "all taken by daemons"],
)
def test_demand_that_nothing_holds_has_no_guidance(problem: GuidanceProblem):
    assert solve_guidance(problem) is None


def test_no_demand_launches_no_node():
    guidance = guided(market((4000, GIB, 0.1), demand=(0, 0)))

    assert guidance.counts.tolist() == [0.0]
    assert guidance.cost_bound == 0.0


def test_a_library_without_an_answer_gives_no_guidance(monkeypatch: pytest.MonkeyPatch):
    """The caller falls back to weights of its own."""
    monkeypatch.setattr(CoveringProgram, "solve", lambda _self: None)

    assert solve_guidance(market((4000, GIB, 0.1), demand=(1000, GIB))) is None


def test_a_bound_from_duals_that_are_too_high_is_still_a_bound():
    """Twice the true duals prove no more than the true ones do."""
    coefficients = np.array([[4000.0, 8000.0]])
    demand, costs = np.array([16_000.0]), np.array([0.1, 0.19])
    upper, duals = np.array([inf, inf]), np.array([0.1 / 4000])

    for factor in (1.0, 2.0):
        bound = safe_bound(coefficients, demand, costs, upper, factor * duals)
        assert bound == pytest.approx(0.38)
        assert bound <= 0.38


def test_a_share_has_the_capacity_left_by_daemons():
    """Two cores of four are taken on each node of the zone: eight cores need four nodes."""
    problem = market((4000, 16 * GIB, 0.1), (4000, 16 * GIB, 0.2), demand=(8000, 8 * GIB))
    guidance = guided(with_share(problem, (False, True), (8000, 8 * GIB), load=(2000, 2 * GIB)))

    assert guidance.counts.tolist() == pytest.approx([0.0, 4.0])


# -- properties --------------------------------------------------------------------------------


@st.composite
def markets(draw: st.DrawFn) -> GuidanceProblem:
    """Few shapes in two zones, one of them perhaps reserved; a share of the demand for each zone."""
    count = draw(st.integers(2, 7))
    shapes = st.tuples(
        st.integers(1, 64).map(lambda n: n * 1000),
        st.integers(1, 256).map(lambda n: n * GIB),
        st.integers(0, 5000).map(lambda n: n / 1000),
    )
    problem = market(
        *draw(st.lists(shapes, min_size=count, max_size=count)),
        demand=draw(st.tuples(st.integers(0, 500_000), st.integers(0, 2000).map(GIB.__mul__))),
        nodes=draw(st.integers(0, 20)),
        fee=draw(st.sampled_from((0.0, 0.002, 0.03))),
        supply=tuple(
            draw(st.lists(st.sampled_from((inf, inf, 3.0)), min_size=count, max_size=count))
        ),
    )
    zones = np.array(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    for zone in (0, 1):
        if draw(st.booleans()):
            problem = with_share(
                problem,
                tuple(zones == zone),
                demand=(draw(st.integers(0, 50_000)), draw(st.integers(0, 200)) * GIB),
                nodes=draw(st.integers(0, 5)),
            )
    return problem


def covers(problem: GuidanceProblem, counts: np.ndarray) -> bool:
    """Whether whole nodes hold every share, in exact arithmetic."""
    whole = [int(count) for count in counts]
    return all(
        sum(n for n, ok in zip(whole, usable, strict=True) if ok) >= nodes
        and all(
            sum(n * int(room) for n, room, ok in zip(whole, line, usable, strict=True) if ok)
            >= asked
            for line, asked in zip(problem.capacity, demand, strict=True)
        )
        for usable, demand, nodes in zip(problem.usable, problem.demand, problem.nodes, strict=True)
    )


@given(markets(), st.data())
@with_examples(100)
def test_no_integral_cover_is_cheaper_than_the_bound(problem: GuidanceProblem, data: st.DataObject):
    """Neither the mix rounded up, nor other covers that are drawn and then trimmed."""
    guidance = solve_guidance(problem)
    most = np.minimum(problem.supply, 2000).astype(np.int64)
    if guidance is None:
        assert not covers(problem, most)
        return
    drawn = np.array([data.draw(st.integers(0, int(count))) for count in most])
    for start in (np.ceil(guidance.counts - 1e-6), drawn, most):
        counts = np.minimum(start, most).astype(np.int64)
        if not covers(problem, counts):
            continue
        for shape in np.argsort(-problem.price, kind="stable"):
            step = int(counts[shape])
            while step:
                counts[shape] -= step
                if counts[shape] < 0 or not covers(problem, counts):
                    counts[shape] += step
                    step //= 2
        assert guidance.cost_bound <= float(counts @ problem.price)


@given(markets())
@with_examples(100)
def test_a_mix_covers_the_demand_at_the_bound(problem: GuidanceProblem):
    """Primal and dual meet: without a fee the mix costs what the bound says."""
    guidance = solve_guidance(replace(problem, fee_per_hour=0.0))
    if guidance is None:
        return
    held = (problem.usable[:, None, :] * problem.capacity[None] * guidance.counts).sum(axis=2)

    assert (held >= problem.demand * (1 - 1e-6) - 1e-6).all()
    assert (guidance.counts <= problem.supply + 1e-6).all()
    assert float(guidance.counts @ problem.price) == pytest.approx(
        guidance.cost_bound, rel=1e-5, abs=1e-7
    )


@given(markets(), st.randoms(use_true_random=False))
@with_examples(100)
def test_the_order_of_shapes_does_not_matter(problem: GuidanceProblem, lots):
    """The same bytes, wherever a shape stands and however often one asks."""
    shapes = list(range(len(problem.price)))
    lots.shuffle(shapes)
    shuffled = replace(
        problem,
        capacity=problem.capacity[:, shapes],
        price=problem.price[shapes],
        supply=problem.supply[shapes],
        usable=problem.usable[:, shapes],
    )
    first, again, other = solve_guidance(problem), solve_guidance(problem), solve_guidance(shuffled)
    if first is None or again is None or other is None:
        assert first is again is other is None
        return

    assert first.counts.tobytes() == again.counts.tobytes()
    assert first.duals.tobytes() == other.duals.tobytes()
    assert first.unit_price.tobytes() == other.unit_price.tobytes()
    assert first.cost_bound == again.cost_bound == other.cost_bound
    same = _sorted_columns(problem, first.counts), _sorted_columns(shuffled, other.counts)
    assert same[0] == same[1]


def _sorted_columns(problem: GuidanceProblem, counts: np.ndarray) -> list[tuple[float, ...]]:
    """Shapes with their counts, as a set: equal shapes may swap theirs."""
    return sorted(
        (*map(float, room), float(price), float(count))
        for room, price, count in zip(problem.capacity.T, problem.price, counts, strict=True)
    )


def test_a_cover_says_how_much_work_it_took():
    """The solver's effort counts against the work units of a pass."""
    coefficients = np.array([[4.0, 1.0], [1.0, 4.0]])
    costs, upper = np.array([1.0, 1.0]), np.array([inf, inf])

    def solved(*demand):
        result = CoveringProgram(coefficients, np.array(demand), costs, upper).solve()
        assert result is not None
        return result

    assert solved(8.0, 8.0).iterations > 0
    assert solved(0.0, 0.0).iterations == 0
