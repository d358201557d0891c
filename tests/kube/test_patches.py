"""Merge patches as functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.conditions import Condition
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.kube.patches import apply_merge_patch, holds_list, merge_patch, patch_for
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


def test_a_list_in_a_patch_requires_a_lock():
    """A merge patch replaces lists whole."""
    assert holds_list({"status": {"conditions": []}})
    assert not holds_list({"metadata": {"labels": {"a": None}}})


def claim(**changes):
    body = {
        "metadata": {"name": "web-1", "uid": "u", "resourceVersion": "7", "labels": {"a": "1"}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
    }
    return NodeClaim.model_validate(apply_merge_patch(body, changes))


def test_labels_are_patched_without_a_lock():
    """Two writers of different labels do not disturb each other."""
    patch = patch_for(claim(), claim(metadata={"labels": {"a": None, "b": "2"}}))
    assert patch is not None
    assert patch.body == {"metadata": {"labels": {"a": None, "b": "2"}}}
    assert patch.resource_version is None


def test_finalizers_are_replaced_under_a_lock():
    """A finalizer that another client added meanwhile must not vanish."""
    patch = patch_for(claim(), claim(metadata={"finalizers": ["f"], "resourceVersion": "9"}))
    assert patch is not None
    assert patch.body == {"metadata": {"finalizers": ["f"]}}
    assert patch.resource_version == "7"


def test_status_is_a_patch_of_its_own():
    """Its subresource takes nothing else, and its conditions are locked."""
    after = claim(metadata={"labels": {"b": "2"}})
    condition = Condition(type="Launched", status="True", reason="Launched")
    status = after.status.model_copy(update={"provider_id": "p", "conditions": (condition,)})
    after = after.model_copy(update={"status": status})
    patch = patch_for(claim(), after, parts=("status",))
    assert patch is not None
    assert patch.body == {
        "status": {
            "providerID": "p",
            "conditions": [
                {"type": "Launched", "status": "True", "reason": "Launched", "message": ""}
            ],
        }
    }
    assert patch.resource_version == "7"


def test_equal_objects_need_no_patch():
    """For every version."""
    assert patch_for(claim(), claim(metadata={"resourceVersion": "8"})) is None
