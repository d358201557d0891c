"""Merge patches as functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.kube.patches import apply_merge_patch, merge_patch
from tests.properties import with_examples

keys = st.sampled_from(["a", "b", "c", "d"])
leaves = st.one_of(st.booleans(), st.integers(0, 2), st.sampled_from(["", "x"]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)


@given(objects, objects)
@with_examples(100)
def test_a_patch_turns_before_into_after(before, after):
    """For every pair of objects without nulls."""
    patched = apply_merge_patch(before, merge_patch(before, after))
    assert repr(sorted_json(patched)) == repr(sorted_json(after))  # repr tells True from 1


@given(objects)
@with_examples(100)
def test_equal_states_give_an_empty_patch(same):
    """So that no request is sent for it."""
    assert merge_patch(same, same) == {}


@given(objects, objects)
@with_examples(100)
def test_a_patch_does_not_change_its_inputs(before, after):
    """Patches are computed from objects that others hold."""
    copies = repr(before), repr(after)
    apply_merge_patch(before, merge_patch(before, after))
    assert copies == (repr(before), repr(after))


def sorted_json(value):
    if isinstance(value, dict):
        return {key: sorted_json(value[key]) for key in sorted(value)}
    return [sorted_json(item) for item in value] if isinstance(value, list) else value


def test_the_examples_of_the_standard_hold():
    """RFC 7386, appendix A, where it differs from a plain update."""
    assert apply_merge_patch({"a": "b", "b": "c"}, {"a": None}) == {"b": "c"}
    assert apply_merge_patch({"a": [{"b": "c"}]}, {"a": [1]}) == {"a": [1]}
    assert apply_merge_patch({"e": None}, {"a": 1}) == {"e": None, "a": 1}
    assert apply_merge_patch([1, 2], {"a": "b", "c": None}) == {"a": "b"}
    assert apply_merge_patch({}, {"a": {"bb": {"ccc": None}}}) == {"a": {"bb": {}}}
