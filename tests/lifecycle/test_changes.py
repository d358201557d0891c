"""Patches of Nodes merge, apply and never break a Node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.quantities import Quantity
from karpenter_core.api.records import Taint
from karpenter_core.lifecycle.changes import NodePatch, status_patch
from karpenter_core.lifecycle.nodeclaim.registration import synced_node
from karpenter_core.testing.builders import taint
from karpenter_core.testing.state_builders import node, node_claim
from tests.properties import with_examples

TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["a", "b"]),
    value=st.sampled_from(["", "1"]),
    effect=st.sampled_from(["NoSchedule", "NoExecute"]),
)
WORDS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
FINALIZERS = st.lists(st.sampled_from(["f/1", "f/2"]), max_size=2, unique=True).map(tuple)


def unique(taints):
    return tuple({(t.key, t.effect): t for t in taints}.values())


@st.composite
def patches(draw):
    """A patch that does not contradict itself."""
    added = tuple(draw(st.lists(TAINTS, max_size=3)))
    removed = tuple(draw(st.lists(TAINTS, max_size=3)))
    gained, lost = draw(FINALIZERS), draw(FINALIZERS)
    pairs = {(t.key, t.effect) for t in added}
    return NodePatch(
        labels=draw(WORDS),
        annotations=draw(WORDS),
        add_taints=added,
        remove_taints=tuple(t for t in removed if (t.key, t.effect) not in pairs),
        add_finalizers=gained,
        remove_finalizers=tuple(f for f in lost if f not in gained),
    )


@st.composite
def views(draw):
    """A Node as the API server may hold it."""
    taints = unique(draw(st.lists(TAINTS, max_size=3)))
    texts = [f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in taints]
    return node("web", labels=draw(WORDS), taints=texts, finalizers=draw(FINALIZERS))


def visible_fields(view):
    return (
        view.labels,
        view.annotations,
        {(t.key, t.effect) for t in view.taints},
        set(view.finalizers),
    )


@given(views(), patches())
@with_examples(100)
def test_no_patch_leaves_a_taint_or_finalizer_twice(view, patch):
    """The API server refuses such a Node, and with it everything else in the patch."""
    patched = patch.applied_to(view)
    assert len(patched.taints) == len(unique(patched.taints))
    assert len(patched.finalizers) == len(set(patched.finalizers))


@given(views(), patches())
@with_examples(100)
def test_applied_patch_changes_nothing_more(view, patch):
    patched = patch.applied_to(view)
    assert patch.merge_patch(patched) is None


@given(views(), patches(), patches())
@with_examples(100)
def test_two_patches_merged_are_one_after_the_other(view, first, later):
    together = first.merged(later).applied_to(view)
    assert visible_fields(together) == visible_fields(later.applied_to(first.applied_to(view)))


def test_a_taint_that_is_both_for_good_and_for_the_start_is_put_on_once():
    claim = node_claim(
        "web", stage="Launched", taints=("a:NoSchedule",), startup_taints=("a:NoSchedule",)
    )
    young = node("web", claim=claim, stage="", taints=("own:NoSchedule",))
    assert synced_node(claim, young).taints == (taint("own:NoSchedule"), taint("a:NoSchedule"))


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.just("1"))


@st.composite
def statuses(draw):
    """A claim in some state of its life."""
    claim = node_claim("web", stage=draw(st.sampled_from(["", "Launched", "Initialized"])))
    update = {
        "capacity": {name: Quantity(text) for name, text in draw(AMOUNTS).items()},
        "image_id": draw(st.sampled_from(["", "image-1"])),
    }
    return claim.model_copy(update={"status": claim.status.model_copy(update=update)})


def merged(target, patch):
    """Merge a patch as RFC 7386 says."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = merged(kept.get(key), value)
    return kept


@given(statuses(), statuses())
@with_examples(100)
def test_status_patch_turns_one_status_into_the_other(old, new):
    """Also where something is gone from a map."""
    before, after = (
        item.status.model_dump(mode="json", exclude_defaults=True) for item in (old, new)
    )
    patch = status_patch(old, new)
    assert (patch is None) == (before == after)
    if patch is not None:
        assert merged(before, patch.body["status"]) == after
