"""Rules of several parts: each part counts by itself."""

from __future__ import annotations

import pytest

from karpenter_core.errors import BadInputError
from karpenter_provider_kwok.catalogue import _is_price
from karpenter_provider_kwok.dump import _state
from karpenter_provider_kwok.faults import _number


@pytest.mark.parametrize(
    ("gone_at", "terminating_at", "running_at", "state"),
    [
        (5, 3, 1, "terminated"),
        (6, 3, 1, "shutting-down"),
        (None, 3, 1, "shutting-down"),
        (None, None, 5, "running"),
        (None, None, 6, "pending"),
    ],
)
def test_an_instance_has_the_state_of_its_times(gone_at, terminating_at, running_at, state):
    row = {"gone_at": gone_at, "terminating_at": terminating_at, "running_at": running_at}
    assert _state(row, 5) == state


@pytest.mark.parametrize(
    ("value", "is_price"), [(0, True), (0.5, True), (-1, False), (float("inf"), False)]
)
def test_a_price_is_finite_and_not_negative(value, is_price):
    assert _is_price(value) is is_price


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1"])
def test_a_number_of_a_fault_is_above_zero(value):
    assert _number({"count": 1}, "count", "faults") == 1
    assert _number({}, "count", "faults") is None
    with pytest.raises(BadInputError):
        _number({"count": value}, "count", "faults")
