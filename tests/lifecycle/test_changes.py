"""Patches of Nodes merge, apply and never break a Node."""

from __future__ import annotations

import json

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.api.quantities import Quantity
from karpenter_core.api.records import OwnerView, Taint
from karpenter_core.lifecycle.changes import (
    NodePatch,
    changed_fields,
    metadata_patch,
    status_patch,
)
from karpenter_core.lifecycle.nodeclaim.registration import synced_node
from karpenter_core.sim.patches import PatchError, json_patch
from karpenter_core.testing.builders import node_pool, taint
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
    assert patch.operations_for(patched) == []


@given(views(), patches(), patches())
@with_examples(100)
def test_two_patches_merged_are_one_after_the_other(view, first, later):
    together = first.merged(later).applied_to(view)
    assert visible_fields(together) == visible_fields(later.applied_to(first.applied_to(view)))


def test_a_taint_is_written_with_its_value_and_the_time_since_when_it_is_there():
    """Pods that tolerate it for a while count from that time."""
    added = Taint(key="a", value="1", effect="NoExecute", time_added="2026-05-04T12:00:00Z")
    bare = Taint(key="b", effect="NoSchedule")
    operations = NodePatch(add_taints=(added, bare)).operations_for(node("web"))
    (written,) = [operation["value"] for operation in operations if operation["op"] == "add"]
    assert written == [
        {"key": "a", "effect": "NoExecute", "value": "1", "timeAdded": "2026-05-04T12:00:00Z"},
        {"key": "b", "effect": "NoSchedule"},
    ]


def test_a_taint_that_is_also_a_startup_taint_is_set_once():
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


@pytest.mark.parametrize(
    ("change", "is_locked"),
    [
        ({"labels": {"a": "1"}}, False),
        ({"annotations": {"a": "1"}}, False),
        ({"annotations": {TERMINATION_TIMESTAMP: "2026-01-01T00:00:00Z"}}, True),
        ({"finalizers": ("example.com/audit",)}, True),
    ],
)
def test_a_patch_that_could_undo_a_foreign_change_has_a_resource_version(change, is_locked):
    """A list is replaced whole, and the first deadline wins; labels have a key each."""
    claim = node_claim("web", resource_version=7)
    bare = claim.metadata.model_copy(update={"labels": {}, "annotations": {}, "finalizers": ()})
    claim = claim.model_copy(update={"metadata": bare})
    metadata = claim.metadata.model_copy(update=change)

    patch = metadata_patch(claim, claim.model_copy(update={"metadata": metadata}))

    assert patch is not None
    assert patch.resource_version == ("7" if is_locked else None)
    ((name, value),) = change.items()
    wanted = list(value) if isinstance(value, tuple) else value
    assert patch.body == {"metadata": {name: wanted}}


def test_conditions_are_patched_under_the_version_of_the_last_answer():
    """Others write conditions too; amounts have a key each."""
    young, old = node_claim("web", resource_version=7), node_claim("web", stage="Launched")
    conditions = young.status.model_copy(update={"conditions": old.status.conditions})
    image = young.status.model_copy(update={"image_id": "image-1"})

    def version(status, **options):
        patch = status_patch(young, young.model_copy(update={"status": status}), **options)
        return patch and patch.resource_version

    assert version(conditions) == young.metadata.resource_version == "7"
    assert version(conditions, resource_version="9") == "9"
    assert version(image) is None


OWNER = OwnerView(
    api_version="karpenter.sh/v1",
    kind="NodeClaim",
    name="web",
    uid="u-1",
    block_owner_deletion=True,
)
OTHER_OWNER = OwnerView(api_version="v1", kind="ConfigMap", name="other", uid="u-2")


def as_object(view):
    """Return a Node as the API server stores it: without empty fields."""
    metadata = {
        "uid": view.uid,
        "labels": dict(view.labels),
        "annotations": dict(view.annotations),
        "finalizers": list(view.finalizers),
        "ownerReferences": [{"uid": owner.uid} for owner in view.owners],
    }
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in view.taints]
    return {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"taints": taints} if taints else {},
    }


def as_sent(patch, view, stored):
    """Send the patch made for one state of a Node to another state; return the stored Node."""
    return json_patch(as_object(stored), patch.operations_for(view))


def pairs_of(node_object):
    return [(t["key"], t["effect"]) for t in node_object["spec"].get("taints", ())]


@given(views(), patches())
@with_examples(100)
def test_the_operations_for_a_node_do_what_the_patch_says(view, patch):
    stored, wanted = as_sent(patch, view, view), patch.applied_to(view)
    assert stored["metadata"].get("labels", {}) == wanted.labels
    assert stored["metadata"].get("annotations", {}) == wanted.annotations
    assert stored["metadata"].get("finalizers", []) == list(wanted.finalizers)
    assert set(pairs_of(stored)) == {(t.key, t.effect) for t in wanted.taints}


@given(views(), patches(), patches())
@with_examples(300)
def test_a_patch_of_a_node_loses_no_change_of_others(view, patch, theirs):
    """A taint or finalizer that another client has changed meanwhile is as that client left it."""
    now = theirs.applied_to(view)
    try:
        stored = as_sent(patch, view, now)
    except PatchError:
        event("refused")
        return
    before, wanted, other = (
        {(t.key, t.effect) for t in each.taints} for each in (view, patch.applied_to(view), now)
    )
    pairs = pairs_of(stored)
    assert set(pairs) == (other - (before - wanted)) | (wanted - before)
    assert len(pairs) == len(set(pairs)) or (wanted - before) & other  # which the server refuses
    ours = patch.applied_to(view).finalizers
    assert stored["metadata"].get("finalizers", []) == list(
        now.finalizers if ours == view.finalizers else ours
    )
    assert view.finalizers in (ours, now.finalizers)
    for name in ("labels", "annotations"):
        old, new, there = (getattr(each, name) for each in (view, patch.applied_to(view), now))
        changed = {key for key in {**old, **new} if old.get(key) != new.get(key)}
        expected = {
            **{key: value for key, value in there.items() if key not in changed},
            **{key: new[key] for key in changed & new.keys()},
        }
        assert stored["metadata"].get(name, {}) == expected


@pytest.mark.parametrize(
    "patch", [NodePatch(labels={"a": "1"}), NodePatch(add_taints=(taint("a:NoSchedule"),))]
)
def test_a_patch_is_not_for_another_node_of_the_name(patch):
    with pytest.raises(PatchError):
        as_sent(patch, node("web"), node("web", uid="another"))


@pytest.mark.parametrize("others", [(), (OTHER_OWNER,)])
def test_an_owner_joins_those_that_are_there(others):
    stored = replace(node("web"), owners=others)
    written = as_sent(NodePatch(owner=OWNER), stored, stored)["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in written] == [*(each.uid for each in others), OWNER.uid]


def test_an_owner_that_came_meanwhile_is_kept():
    """The list was empty: it would be replaced."""
    with pytest.raises(PatchError):
        as_sent(NodePatch(owner=OWNER), node("web"), replace(node("web"), owners=(OTHER_OWNER,)))


def test_the_owner_of_a_node_is_written_with_its_flags():
    """Without `blockOwnerDeletion` a claim could vanish before its Node."""
    *_, added = NodePatch(owner=OWNER).operations_for(node("web"))

    assert added["value"] == [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": "web",
            "uid": "u-1",
            "blockOwnerDeletion": True,
        }
    ]


def test_fields_that_are_not_given_are_no_change():
    """A null in a patch would remove what another writer adds."""
    pool = node_pool(limits={"cpu": "10"})
    assert changed_fields(pool, pool) == {}
    changed = changed_fields(pool, node_pool(limits={"cpu": "12"}))
    assert list(changed) == ["spec"]
    assert "null" not in json.dumps(changed)
