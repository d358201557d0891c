"""Shapes of a catalogue, and prices that include substitutes after a stock-out."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.compiled.instance_shapes import (
    InstanceShapes,
    OfferingMatrix,
    find_instance_shapes,
)
from karpenter_core.scheduling.packing.robust import (
    nth_cheapest,
    robust_prices,
    stand_ins,
)
from tests.properties import with_examples


def market(
    *rows: tuple[int, int, float | tuple[float, ...]],
    types: tuple[int, ...] | None = None,
    weight: float = 0.0,
    rank: int = 15,
    floor: int = 0,
) -> OfferingMatrix:
    """Rows of (CPU, memory, price or price per domain), each a type of its own."""
    prices = np.array([np.atleast_1d(row[2]) for row in rows], dtype=np.float64).T
    return OfferingMatrix(
        capacity=np.array([row[:2] for row in rows], dtype=np.int64).T,
        prices=prices,
        types=np.array(types or range(len(rows)), dtype=np.intp),
        robust_weight=np.full(len(prices), weight),
        robust_rank=rank,
        flexibility_floor=floor,
    )


def listed(shapes: InstanceShapes) -> list[tuple[int, int, float]]:
    return [
        (int(row), int(domain), float(price))
        for row, domain, price in zip(shapes.row, shapes.domain, shapes.robust_price, strict=True)
    ]


def test_a_row_is_no_shape_when_a_larger_one_costs_no_more():
    shapes = find_instance_shapes(market((2, 4, 0.10), (4, 8, 0.09), (4, 4, 0.09), (1, 1, 0.05)))

    assert listed(shapes) == [(3, 0, 0.05), (1, 0, 0.09)]
    assert shapes.capacity.tolist() == [[1, 4], [1, 8]]


def test_each_domain_has_its_own_shapes_at_its_own_prices():
    """In a domain without the large row, the small one is used."""
    shapes = find_instance_shapes(market((2, 4, (0.10, 0.12)), (4, 8, (0.09, inf))))

    assert listed(shapes) == [(1, 0, 0.09), (0, 1, 0.12)]


def test_equal_rows_are_one_shape_with_the_cheapest_price():
    shapes = find_instance_shapes(market((2, 4, 0.3), (2, 4, 0.1), (2, 4, 0.1)))

    assert listed(shapes) == [(1, 0, 0.1)]
    assert shapes.flexibility.tolist() == [3]


def test_rows_that_daemons_overdraw_are_no_shapes():
    assert listed(find_instance_shapes(market((-1, 4, 0.1), (2, 4, 0.3)))) == [(1, 0, 0.3)]


def test_a_small_row_with_stand_ins_survives_a_larger_one_without():
    """Its pods cost no more: the larger type is on its list and is the cheapest."""
    rows = ((2, 4, 0.10), (4, 8, 0.09), (3, 4, 0.2))

    assert listed(find_instance_shapes(market(*rows, floor=1))) == [(1, 0, 0.09)]
    shapes = find_instance_shapes(market(*rows, floor=3))
    assert listed(shapes)[:2] == [(0, 0, 0.09), (1, 0, 0.09)]
    assert shapes.flexibility.tolist()[:2] == [3, 1]


def test_a_single_cheap_type_is_priced_by_its_substitutes():
    """With a weight of a half, and the third cheapest for a yardstick."""
    rows = ((4, 8, 0.10), (4, 8, 0.17), (4, 8, 0.18), (2, 4, 0.11), (2, 4, 0.12), (2, 4, 0.12))
    by_room = dict(
        zip(
            (4, 2),
            (
                find_instance_shapes(market(*rows, weight=0.5, rank=3)).robust_price[index]
                for index in (1, 0)
            ),
            strict=True,
        )
    )

    assert by_room == {4: pytest.approx(0.14), 2: pytest.approx(0.11)}


def test_the_most_expensive_substitute_counts_where_there_are_too_few():
    prices = np.array([0.3, 0.1, 0.2, inf])
    counted = np.array([[True, True, True, False], [True, False, False, False], [False] * 4])

    first, second, tenth = nth_cheapest(counted, prices, (1, 2, 10))

    assert first.tolist() == [0.1, 0.3, inf]
    assert second.tolist() == [0.2, 0.3, inf]
    assert tenth.tolist() == [0.3, 0.3, inf]


def test_more_stand_ins_than_a_short_number_counts_are_counted():
    count = 1 << 16
    prices = np.arange(count, dtype=float)

    (second,) = nth_cheapest(np.ones((1, count), dtype=bool), prices, (2,))

    assert second.tolist() == [1.0]


def test_rows_of_one_type_substitute_once_at_the_cheapest_sufficient_price():
    """An instance type with several groups of offerings is still one type."""
    holds = np.array([[True, True, True, True], [True, False, True, True]])
    prices = np.array([0.5, 0.1, 0.3, inf])

    counted = stand_ins(holds, prices, np.array([7, 7, 7, 8]))

    assert counted.tolist() == [[False, True, False, False], [False, False, True, False]]


def test_an_unavailable_offering_has_no_robust_price():
    assert robust_prices(np.array([0.1, inf]), np.array([0.18, inf]), weight=0.25).tolist() == [
        pytest.approx(0.12),
        inf,
    ]


def test_a_stand_in_counts_with_twice_the_cheapest_price_at_most():
    """It is a type of another size, which says nothing of this one's stock."""
    assert robust_prices(np.array([0.1]), np.array([1.5]), weight=0.5) == pytest.approx(0.15)


# -- properties --------------------------------------------------------------------------------

PRICES = st.one_of(st.just(inf), st.integers(1, 12).map(lambda n: n / 8))


@st.composite
def markets(draw: st.DrawFn) -> OfferingMatrix:
    """Up to a dozen rows of up to six types in two domains; few values, so that many tie."""
    sizes = st.integers(-1, 5)
    rows = draw(
        st.lists(st.tuples(sizes, sizes, st.tuples(PRICES, PRICES)), min_size=1, max_size=12)
    )
    types = draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    return market(
        *rows,
        types=tuple(types),
        weight=draw(st.sampled_from((0.0, 0.3, 1.0))),
        rank=draw(st.integers(1, 5)),
        floor=draw(st.integers(0, 4)),
    )


def naive(market: OfferingMatrix, need: tuple[int, ...], domain: int) -> tuple[int, float]:
    """Stand-ins and robust price for an amount of room, one row after the other."""
    cheapest: dict[int, float] = {}
    for number, room in enumerate(market.capacity.T.tolist()):
        price = float(market.prices[domain, number])
        if price < inf and all(a >= b for a, b in zip(room, need, strict=True)):
            kind = int(market.types[number])
            cheapest[kind] = min(price, cheapest.get(kind, inf))
    ranked = sorted(cheapest.values())
    if not ranked:
        return 0, inf
    weight = float(market.robust_weight[domain])
    nth = ranked[min(market.robust_rank, len(ranked)) - 1]
    return len(ranked), ranked[0] + weight * min(nth - ranked[0], ranked[0])


@given(markets())
@with_examples(100)
def test_shapes_equal_those_of_an_exhaustive_search(market: OfferingMatrix):
    shapes = find_instance_shapes(market)

    for number in range(len(shapes.row)):
        need = tuple(shapes.capacity[:, number].tolist())
        count, price = naive(market, need, int(shapes.domain[number]))
        assert shapes.flexibility[number] == count
        assert shapes.robust_price[number] == pytest.approx(price)
        assert market.capacity[:, shapes.row[number]].tolist() == list(need)
        assert shapes.price[number] <= market.prices[shapes.domain[number], shapes.row[number]]


@given(markets())
@with_examples(100)
def test_every_available_row_has_a_shape_at_least_as_good(market: OfferingMatrix):
    """With as many resources, no higher price, and enough substitutes."""
    shapes = find_instance_shapes(market)

    for domain, prices in enumerate(market.prices):
        for number in np.flatnonzero(np.isfinite(prices) & (market.capacity >= 0).all(axis=0)):
            need = market.capacity[:, number]
            count, price = naive(market, tuple(need.tolist()), domain)
            enough = np.minimum(shapes.flexibility, market.flexibility_floor)
            assert (
                (shapes.domain == domain)
                & (shapes.capacity >= need[:, None]).all(axis=0)
                & (shapes.robust_price <= price + 1e-12)
                & (enough >= min(count, market.flexibility_floor))
            ).any()


@given(markets())
@with_examples(100)
def test_no_shape_makes_another_one_of_its_domain_useless(market: OfferingMatrix):
    shapes = find_instance_shapes(market)
    enough = np.minimum(shapes.flexibility, market.flexibility_floor)

    for one in range(len(shapes.row)):
        assert not any(
            other != one
            and shapes.domain[other] == shapes.domain[one]
            and (shapes.capacity[:, other] >= shapes.capacity[:, one]).all()
            and shapes.robust_price[other] <= shapes.robust_price[one]
            and enough[other] >= enough[one]
            for other in range(len(shapes.row))
        )


@given(markets(), st.randoms(use_true_random=False))
@with_examples(100)
def test_the_order_of_rows_does_not_change_the_shapes(market: OfferingMatrix, lots):
    order = list(range(len(market.types)))
    lots.shuffle(order)
    shuffled = replace(
        market,
        capacity=market.capacity[:, order],
        prices=market.prices[:, order],
        types=market.types[order],
    )

    first, other = find_instance_shapes(market), find_instance_shapes(shuffled)

    assert _as_set(first) == _as_set(other)


def _as_set(shapes: InstanceShapes) -> list[tuple[object, ...]]:
    return sorted(
        (int(domain), *room.tolist(), float(price), float(robust), int(flexibility))
        for domain, room, price, robust, flexibility in zip(
            shapes.domain,
            shapes.capacity.T,
            shapes.price,
            shapes.robust_price,
            shapes.flexibility,
            strict=True,
        )
    )
