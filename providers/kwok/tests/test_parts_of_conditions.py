"""Rules of several parts: each part counts by itself."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from types import SimpleNamespace

import pytest

from karpenter_core.errors import BadInputError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_kwok.catalogue import _is_price
from karpenter_provider_kwok.dump import _state
from karpenter_provider_kwok.faults import _number, _patterns
from karpenter_provider_kwok.instance_rows import repeated_outcome

LAUNCHED_FIELDS = [
    each.name
    for each in fields(LaunchedInstance)
    if each.default is MISSING and each.default_factory is MISSING
]


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


@pytest.mark.parametrize(("gone_at", "is_gone"), [(None, False), (6, False), (5, True), (4, True)])
def test_a_token_brings_its_instance_until_this_one_is_gone(gone_at, is_gone):
    answer = json.dumps(dict.fromkeys(LAUNCHED_FIELDS, ""))
    row = {"gone_at": gone_at, "answer": answer}
    outcome = repeated_outcome(row, SimpleNamespace(token="t"), 5)
    assert isinstance(outcome, LaunchFailedError) is is_gone


@pytest.mark.parametrize("value", ["a", 1, {"a": 1}, ["a", 1], None])
def test_patterns_of_a_fault_are_a_list_of_texts(value):
    assert _patterns({"zones": ["a", "b"]}, "zones", "faults") == ("a", "b")
    assert _patterns({}, "zones", "faults") == ()
    with pytest.raises(BadInputError, match="zones: must be a list of texts"):
        _patterns({"zones": value}, "zones", "faults")
