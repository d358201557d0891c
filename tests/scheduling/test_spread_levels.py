"""Amounts are spread over domains by their levels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.placement.spread_placement import fill_levels
from karpenter_core.scheduling.placement.topology_counts import NO_CAP
from tests.properties import with_examples

places = st.tuples(st.integers(0, 9), st.sampled_from((0, 1, 2, 5, NO_CAP)))


@given(st.lists(places, min_size=1, max_size=5), st.integers(0, 40))
@with_examples(100)
def test_each_pod_is_placed_in_the_lowest_domain_that_takes_one(drawn, amount):
    """Few or many, and to the earlier of equals."""
    levels, tops = [level for level, _ in drawn], [top for _, top in drawn]
    shares = [0] * len(drawn)
    for _ in range(amount):
        able = [place for place, top in enumerate(tops) if shares[place] < top]
        if able:
            shares[min(able, key=lambda place: (levels[place] + shares[place], place))] += 1

    assert fill_levels(levels, tops, amount) == shares
