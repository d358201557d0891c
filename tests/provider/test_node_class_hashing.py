"""Hashes of NodeClass fields depend on their meaning alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.node_class.hashing import hash_fields, significant_value
from tests.properties import with_examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def reversed_order(value):
    """Return a value with its keys and lists in the opposite order."""
    if isinstance(value, dict):
        return {name: reversed_order(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [reversed_order(item) for item in reversed(value)]
    return value


@given(JSON, st.booleans())
@with_examples(100)
def test_neither_the_order_of_keys_nor_that_of_lists_counts(value, zero_counts):
    one, other = (
        significant_value(each, zero_counts=zero_counts) for each in (value, reversed_order(value))
    )

    assert one == other
    assert json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("empty", [None, "", [], {}, {"below": None}])
def test_empty_fields_do_not_count(empty):
    assert significant_value({"a": 1, "b": empty}) == significant_value({"a": 1})


def test_zero_and_repeated_items_count_by_default():
    value = {"a": False, "b": 0, "c": ["x", "x"]}

    assert significant_value(value) == {"a": False, "b": 0, "c": ['"x"', '"x"']}
    assert significant_value(value, zero_counts=False) == {"c": ['"x"']}


def test_a_hash_is_the_same_in_every_process():
    hashed = hash_fields({"b": [1], "a": "ä"}, version="v1")

    assert (hashed.value, hashed.version) == ("495fe349932ab73f", "v1")
    assert hash_fields({"a": "ä", "b": [1]}, version="v1") == hashed
    assert hash_fields({"a": "ä", "b": [2]}, version="v1") != hashed
