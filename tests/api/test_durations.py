"""Durations: Go's syntax, exact, and kept as spelled."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.durations import (
    Duration,
    NillableDuration,
    format_duration,
    parse_duration,
    parse_nanoseconds,
)
from karpenter_core.api.nodepool import Disruption, TemplateSpec
from tests.properties import with_examples

LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30_000_000_000),
        ("1h30m5s", 5_405_000_000_000),
        ("720h", 2_592_000_000_000_000),
        ("90m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("-1m", -60_000_000_000),
        ("+1m", 60_000_000_000),
        ("100ms", 100_000_000),
        ("1us", 1000),
        ("1µs", 1000),
        ("1ns", 1),
        ("0.1ns", 0),
        ("5s1h", 3_605_000_000_000),
        ("0000000000000000000000000000001s", 1_000_000_000),
    ],
)
def test_duration_is_read_exactly(text, nanoseconds):
    assert parse_nanoseconds(text) == nanoseconds
    assert parse_duration(text) == timedelta(microseconds=int(nanoseconds / 1000))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        "s",
        ".s",
        "1hr",
        "1d",
        "Never",
        "1h 30m",
        " 1h",
        "--1h",
        "+-1h",
        "1e3s",
        "1h-1m",
    ],
)
def test_texts_that_go_refuses_are_refused(text):
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999h", f"{'9' * 5000}s", "9223372036854775808ns"])
def test_a_duration_beyond_the_range_of_go_is_the_longest(text):
    """The patterns of the API admit any number of digits; no such object may break anything."""
    assert parse_nanoseconds(text) == LONGEST
    assert parse_nanoseconds(f"-{text}") == -LONGEST
    assert parse_duration(text) > timedelta(days=365 * 292)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=30), "30s"),
        (timedelta(hours=1, minutes=30), "1h30m0s"),
        (timedelta(hours=1), "1h0m0s"),
        (timedelta(minutes=5), "5m0s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(milliseconds=20), "20ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=7), "7µs"),
        (timedelta(seconds=-90), "-1m30s"),
        (timedelta(hours=1, microseconds=1), "1h0m0.000001s"),
    ],
)
def test_duration_is_written_canonically(value, text):
    assert format_duration(value) == text


@given(st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)))
@with_examples(100)
def test_a_written_value_is_read_back(value):
    assert parse_duration(format_duration(value)) == value


PARTS = st.lists(
    st.tuples(st.integers(0, 999), st.sampled_from([("h", 3600), ("m", 60), ("s", 1)])),
    min_size=1,
    max_size=6,
)


@given(PARTS)
@with_examples(100)
def test_parts_add_up_without_rounding(parts):
    text = "".join(f"{count}{unit}" for count, (unit, _) in parts)

    assert parse_nanoseconds(text) == sum(n * seconds * 10**9 for n, (_, seconds) in parts)


@given(st.text(max_size=12) | st.from_regex(r"[+-]?([0-9.]{0,30}(h|m|s|ms|x)){0,4}"))
@with_examples(100)
def test_any_text_is_read_or_refused(text):
    try:
        nanoseconds = parse_nanoseconds(text)
    except ValueError:
        return
    assert -LONGEST <= nanoseconds <= LONGEST


@pytest.mark.parametrize("text", ["90m", "1h30m0s", "720h", "0s", "Never", "1h30m5s"])
def test_the_users_spelling_is_preserved(text):
    spec = {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": text}

    read = TemplateSpec.model_validate(spec)

    assert read.model_dump(mode="json", exclude_unset=True) == spec
    assert f'"expireAfter":"{text}"' in read.model_dump_json(exclude_unset=True, by_alias=True)
    assert str(read.expire_after) == text


def test_never_is_no_duration():
    assert NillableDuration("Never").timedelta is None
    assert NillableDuration("Never").nanoseconds is None
    assert NillableDuration("0s").timedelta == timedelta()
    assert Duration("1h").nanoseconds == 3_600_000_000_000


@pytest.mark.parametrize("value", [30, None, "1hr"])
def test_invalid_duration_is_refused_in_its_field(value):
    with pytest.raises(ValueError, match="consolidateAfter"):
        Disruption.model_validate({"consolidateAfter": value})
