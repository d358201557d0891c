"""The token bucket limits calls by burst and rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.token_bucket import TokenBucket
from tests.properties import with_examples


class Seconds:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Seconds()
    bucket = TokenBucket(rate_per_second=2, burst=3, monotonic=clock)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]
    assert not bucket.try_take()
    clock.now = 2.0
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5)), max_size=50),
    st.floats(0.1, 50),
)
@with_examples(100)
def test_a_bucket_never_lets_more_through_than_burst_and_rate(steps, rate):
    """For every pattern of waits and takes."""
    clock = Seconds()
    bucket = TokenBucket(rate_per_second=rate, burst=5, monotonic=clock)
    taken = 0
    for wait, count in steps:
        clock.now += wait
        taken += count if bucket.try_take(count) else 0
        assert taken <= 5 + rate * clock.now + 1e-6


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 1)])
def test_a_bucket_that_gives_nothing_is_refused(rate, burst):
    with pytest.raises(ValueError, match="must be positive"):
        TokenBucket(rate_per_second=rate, burst=burst, monotonic=Seconds())


def test_more_than_the_bucket_holds_is_refused():
    bucket = TokenBucket(rate_per_second=1, burst=3, monotonic=Seconds())
    with pytest.raises(ValueError, match="4 tokens"):
        bucket.reserve(4)
