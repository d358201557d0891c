"""Growth is told from noise, and what a process holds is counted by name."""

from __future__ import annotations

import asyncio
import random
from functools import cache

import pytest

from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.sim.virtual_time import LoopClock
from tests.support import object_sizes
from tests.support.object_sizes import count_held
from tests.support.trends import trend_of


def test_a_straight_line_has_its_slope_and_no_chance():
    trend = trend_of([10.0 + 2.5 * number for number in range(12)])
    assert (trend.slope, trend.rise) == (2.5, 27.5)
    assert trend.p_value < 1e-5
    assert trend.exceeds(rise=27.0)
    assert not trend.exceeds(rise=28.0)
    assert not trend.exceeds(rise=1.0, share=3.0)


def test_outliers_do_not_make_a_slope():
    assert trend_of([5.0, 5.0, 900.0, 5.0, 5.0, 5.0, 800.0, 5.0, 5.0, 5.0]).slope == 0.0


@pytest.mark.parametrize("values", [[3.0] * 10, [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]])
def test_values_that_do_not_rise_are_no_growth(values):
    assert trend_of(values).p_value == 1.0


def test_noise_is_seldom_reported_as_growth():
    """The test of Mann and Kendall keeps its word: one in a hundred at p < 0.01."""
    rng = random.Random(1)
    series = [[rng.gauss(100, 5) for _ in range(15)] for _ in range(2000)]
    found = sum(trend_of(values).p_value < 0.01 for values in series)
    assert found < 40


@pytest.mark.developer_tools
async def test_items_of_attributes_instances_and_caches_are_counted():
    @cache
    def kept(number):
        return number

    first = count_held()
    journals = [DecisionJournal() for _ in range(3)]
    for journal in journals:
        journal._sinks.extend([print] * 7)
    list(map(kept, range(5)))
    second = count_held()
    grown = second - first
    assert grown["DecisionJournal"] == 3
    assert grown["DecisionJournal._sinks"] == 21
    assert grown[f"{kept.__qualname__}()"] == 5


@pytest.mark.developer_tools
def test_local_variables_of_tasks_are_counted(monkeypatch):
    """A loop that never returns may hide a growing set from every other count."""
    monkeypatch.setattr(object_sizes, "PREFIX", "test_trends")

    async def loop():
        seen = set(range(9))
        await LoopClock().sleep(60)
        return seen

    async def story():
        task = asyncio.create_task(loop())
        await asyncio.sleep(0)
        held = count_held()
        task.cancel()
        return held

    assert asyncio.run(story())[f"{loop.__qualname__}() seen"] == 9


def test_the_bounds_of_a_slope_hold_it_nineteen_times_in_twenty():
    """Sen's bounds, with noise around a slope of 0.5; a line without noise has no width."""
    rng = random.Random(2)
    series = [[0.5 * number + rng.gauss(100, 5) for number in range(25)] for _ in range(1000)]
    bounds = [trend_of(values).slope_bounds for values in series]
    assert 0.93 < sum(low <= 0.5 <= high for low, high in bounds) / len(bounds) < 0.97
    assert trend_of([1.0, 3.0, 5.0, 7.0]).slope_bounds == (2.0, 2.0)
    assert trend_of([4.0]).slope_bounds == (0.0, 0.0)
