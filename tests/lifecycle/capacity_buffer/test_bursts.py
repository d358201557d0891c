"""The size of a buffer from the bursts of pods that were observed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.lifecycle.capacity_buffer.bursts import (
    HISTORY,
    SIZE_FROM_BURSTS,
    burst_replicas,
    burst_setting,
    read_history,
    with_arrivals,
    write_history,
)
from karpenter_core.lifecycle.capacity_buffer.declaration import recorded_burst_replicas

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HIGH = Fraction(95, 100)


def after(*bursts, every=timedelta(hours=1)):
    """Return the history after bursts of these sizes, one in each period."""
    history, now = with_arrivals(None, (), now=START), START
    for size in bursts:
        created = [now + MINUTE] * size
        now += every
        history = with_arrivals(history, created, now=now)
    return history, now


def replicas(history, quantile=HIGH):
    return burst_replicas(history, Fraction(quantile))


def test_the_size_is_a_high_quantile_of_the_bursts():
    """One burst in twenty may be larger; hours without pods do not count."""
    history, _ = after(*[3] * 19, 0, 0, 40)

    assert replicas(history) == 3
    assert replicas(history, 1) == 40
    assert replicas(history, Fraction(1, 100)) == 3


def test_pods_of_five_minutes_are_one_burst():
    history = with_arrivals(None, (), now=START)
    created = [START + n * MINUTE for n in (1, 2, 4, 5, 9)]

    history = with_arrivals(history, created, now=START + timedelta(hours=1))

    assert dict(next(iter(history.days.values()))) == {3: 1, 2: 1}


def test_the_burst_that_is_under_way_counts_and_grows():
    history = with_arrivals(None, (), now=START)
    sizes = []
    for minute in range(1, 5):
        now = START + minute * MINUTE
        history = with_arrivals(history, [now - timedelta(seconds=20)] * 2, now=now)
        sizes.append(replicas(history))

    assert sizes == [2, 4, 6, 8]


def test_bursts_are_forgotten_after_a_week():
    history, now = after(40)
    for _ in range(6):
        now += timedelta(days=1)
        history = with_arrivals(history, (), now=now)
    assert replicas(history) == 40

    assert replicas(with_arrivals(history, (), now=now + timedelta(days=1))) == 0


def test_a_history_from_the_future_goes_on_from_now():
    """A clock that was wrong for a moment would otherwise stop the count until then."""
    history, now = after(3)
    ahead = now + timedelta(days=2)
    history = with_arrivals(history, [ahead - timedelta(hours=1)] * 40, now=ahead)

    history = with_arrivals(history, (), now=now)
    assert replicas(history, 1) == 3
    history = with_arrivals(history, [now + MINUTE] * 7, now=now + timedelta(hours=1))
    assert replicas(history, 1) == 7


def test_pods_that_exist_already_are_no_burst():
    assert replicas(with_arrivals(None, [START - MINUTE] * 100, now=START)) == 0


def test_a_pod_is_counted_once():
    """However often it is seen, and after a restart too."""
    history = with_arrivals(None, (), now=START)
    created = [START + MINUTE]
    for minute in range(2, 20):
        history = with_arrivals(history, created, now=START + minute * MINUTE)
        history = read_history({HISTORY: write_history(history)})

    assert replicas(history) == 1
    assert sum(sum(sizes.values()) for sizes in history.days.values()) == 1


def test_a_clock_that_is_set_back_changes_nothing():
    history, now = after(5)

    assert with_arrivals(history, [now] * 9, now=now - timedelta(hours=2)) is history


@given(st.lists(st.integers(0, 3000), max_size=30))
def test_a_history_survives_a_restart_and_stays_short(bursts):
    history, now = after(*bursts, every=timedelta(minutes=50))
    text = write_history(history)
    restored = read_history({HISTORY: text})

    assert len(text) < 5000
    for quantile in (HIGH, 1):
        assert replicas(restored, quantile) == replicas(history, quantile)
    later = now + timedelta(minutes=30)
    assert replicas(with_arrivals(restored, [], now=later)) == replicas(
        with_arrivals(history, [], now=later)
    )


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30), st.integers(1, 100))
def test_no_size_is_smaller_than_the_share_of_bursts_that_it_holds(bursts, percent):
    """Rounding adds a tenth at most."""
    history, _ = after(*bursts)
    size = replicas(history, Fraction(percent, 100))

    assert sum(burst <= size for burst in bursts) * 100 >= percent * len(bursts)
    assert size <= max(bursts) * 1.1


@pytest.mark.parametrize(
    ("text", "quantile"),
    [(None, None), ("false", None), ("true", HIGH), ("0.5", Fraction(1, 2)), ("1", Fraction(1))],
)
def test_automatic_size_is_opt_in(text, quantile):
    annotations = {} if text is None else {SIZE_FROM_BURSTS: text}

    assert burst_setting(annotations) == quantile


@pytest.mark.parametrize("text", ["yes", "", "0", "1.5", "-1", "nan", "1/0", "95%", "1e-999999999"])
def test_a_setting_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match=SIZE_FROM_BURSTS):
        burst_setting({SIZE_FROM_BURSTS: text})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"until":"yesterday","days":{},"interval":0,"arrivals":0}',
        '{"until":"2030-01-01T00:00:00+00:00","days":{"x":{}},"interval":0,"arrivals":0}',
        '{"until":"2030-01-01T00:00:00+00:00","days":{"1":{"3":-1}},"interval":0,"arrivals":0}',
        '{"until":"2030-01-01T00:00:00+00:00","days":{"1":3},"interval":0,"arrivals":0}',
        '{"until":"0001-01-01T00:00:00+14:00","days":{},"interval":0,"arrivals":0}',
        "[" * 100_000,
    ],
)
def test_a_history_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match=HISTORY):
        read_history({HISTORY: text})


def test_a_buffer_without_history_has_none():
    assert read_history({}) is None


def capacity_buffer(annotations, limits=MappingProxyType({"pods": "9"})):
    """Make a buffer whose size is recorded by its annotations."""
    return CapacityBuffer.model_validate(
        {
            "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
            "spec": {
                "podTemplateRef": {"name": "web"},
                "replicas": 1,
                "limits": None if limits is None else dict(limits),
            },
        }
    )


@pytest.mark.parametrize(
    "annotations",
    [
        {SIZE_FROM_BURSTS: "much"},
        {SIZE_FROM_BURSTS: "2"},
        {SIZE_FROM_BURSTS: "true", HISTORY: "{"},
        {SIZE_FROM_BURSTS: "true", HISTORY: '{"days": 3}'},
        {SIZE_FROM_BURSTS: "true"},
        {},
    ],
)
def test_a_record_that_cannot_be_used_gives_no_size(annotations):
    buffer = capacity_buffer(annotations)
    assert recorded_burst_replicas(buffer) is None


def test_the_recorded_size_is_that_of_the_bursts():
    """Only with limits: nothing else bounds it."""
    history, _ = after(3, 3, 3)
    annotations = {SIZE_FROM_BURSTS: "true", HISTORY: write_history(history)}
    assert recorded_burst_replicas(capacity_buffer(annotations)) == 3
    assert recorded_burst_replicas(capacity_buffer(annotations, limits=None)) is None
