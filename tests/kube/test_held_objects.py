"""Objects of a kind are held as they were last shown, and end with their deletion."""

from __future__ import annotations

import pytest

from karpenter_core.kube.held_objects import HeldObjects
from karpenter_core.kube.wire.kind_codec import WatchEvent
from karpenter_core.state.events import ObjectObserved, ObjectRemoved
from tests.kube.test_listing import bad, good


def holding(*invalid):
    """Objects after a listing at version 10 that shows only what cannot be read."""
    held = HeldObjects(lambda _found: None)
    held.replace({}, {each.uid: each for each in invalid}, "10")
    return held


def watched(held, kind, version, **shown):
    event = {"object": None, "invalid": None, **shown}
    return held.apply(WatchEvent(type=kind, resource_version=str(version), **event))


def delete_in_the_watch(held):
    return [watched(held, "DELETED", 15, invalid=bad("x", 15))]


def break_and_delete_in_the_watch(held):
    assert watched(held, "MODIFIED", 13, invalid=bad("x", 13)) is None
    return delete_in_the_watch(held)


def list_without_it(held):
    return held.replace({}, {}, "20")[0]


def list_broken_and_then_without_it(held):
    assert held.replace({}, {"uid-x": bad("x", 14)}, "18")[0] == []
    return list_without_it(held)


@pytest.mark.parametrize(
    "end",
    [
        delete_in_the_watch,
        break_and_delete_in_the_watch,
        list_without_it,
        list_broken_and_then_without_it,
    ],
)
@pytest.mark.parametrize("was_broken", [True, False])
def test_an_object_that_a_list_has_shown_before_the_watch_ends_with_its_deletion(end, was_broken):
    """Whether the watch could read it before or not: else its state would stay for ever."""
    held = holding(*[bad("x", 7)] * was_broken)
    shown = good("x", 12)
    assert held.note_listed(shown) == ObjectObserved(shown)
    assert end(held) == [ObjectRemoved(shown)]
    assert (len(held), held.invalid_count) == (0, 0)


def test_unreadable_objects_of_a_list_are_counted_and_reported_once_until_they_are_gone():
    found = []
    held = HeldObjects(found.append)
    for version in ("10", "11"):
        held.replace({}, {"uid-x": bad("x", 10)}, version)
        assert (held.count, held.invalid_count, len(found)) == (1, 1, 1)
    held.replace({}, {}, "12")
    assert (held.count, held.invalid_count) == (0, 0)


def test_a_list_shows_nothing_new_of_an_object_in_the_same_or_a_later_version():
    held = holding()
    watched(held, "ADDED", 12, object=good("x", 12))
    assert held.note_listed(good("x", 12)) is None
    assert held.note_listed(good("x", 11)) is None
    assert held.note_listed(good("x", 13)) is not None
