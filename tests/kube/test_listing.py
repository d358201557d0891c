"""Listings are compared with what an informer holds."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.kube import resources
from karpenter_core.kube.listing import add_initial_event, is_fully_held, is_restored
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.kube.wire.kind_codec import InvalidObject, ListPage, WatchEvent
from tests.kube.scripted import node

CODEC = Codecs().for_kind(resources.NODES)


def good(name, version):
    return CODEC.decode(msgspec.json.encode(node(name, version)))


def bad(name, version):
    return InvalidObject(
        kind="Node", name=name, uid=f"uid-{name}", resource_version=str(version), message="odd"
    )


def held(*objects):
    return {f"uid-{each.name}": each for each in objects}


HELD, INVALID = held(good("a", 5), good("b", 6)), held(bad("x", 7))


@pytest.mark.parametrize(
    ("objects", "invalid", "is_held"),
    [
        ([], [], True),
        ([good("a", 5), good("b", 6)], [bad("x", 7)], True),
        ([good("a", 6)], [], False),
        ([good("a", 4)], [], False),
        ([good("c", 5)], [], False),
        ([good("x", 7)], [], False),
        ([good("a", 5), good("c", 1)], [], False),
        ([good("a", 5)], [bad("x", 8)], False),
        ([good("a", 5)], [bad("y", 7)], False),
        ([], [bad("a", 5)], False),
    ],
)
def test_a_page_is_held_when_each_object_is_in_its_version(objects, invalid, is_held):
    page = ListPage(objects=tuple(objects), invalid=tuple(invalid), resource_version="9")
    assert is_fully_held(page, held=HELD, invalid=INVALID) is is_held


@pytest.mark.parametrize(
    ("objects", "version", "reached", "restored"),
    [
        ([good("a", 5)], "9", 8, False),
        ([good("a", 5)], "8", 8, False),
        ([good("a", 5)], "7", 8, True),
        ([good("a", 5)], "", 8, True),
        ([good("a", 5)], "7", 0, False),
        ([good("a", 4)], "9", 8, True),
        ([good("a", 9)], "9", 8, False),
        ([good("new", 9)], "9", 8, False),
        ([good("old", 8)], "9", 8, True),
        ([good("old", 3)], "9", 8, True),
        ([good("x", 3)], "9", 8, False),
    ],
)
def test_a_server_that_lost_seen_objects_was_restored(objects, version, reached, restored):
    listed = is_restored(
        held(*objects), version=version, reached=reached, held=HELD, invalid=INVALID
    )
    assert listed is restored


@pytest.mark.parametrize(
    ("event", "objects", "invalid"),
    [
        (WatchEvent(type="ADDED", object=good("c", 1)), {"a", "b", "c"}, {"x"}),
        (WatchEvent(type="MODIFIED", object=good("x", 8)), {"a", "b", "x"}, set()),
        (WatchEvent(type="DELETED", object=good("a", 8)), {"b"}, {"x"}),
        (WatchEvent(type="DELETED", object=good("x", 8)), {"a", "b"}, set()),
        (WatchEvent(type="MODIFIED", invalid=bad("a", 8)), {"b"}, {"a", "x"}),
        (WatchEvent(type="DELETED", invalid=bad("a", 8)), {"b"}, {"x"}),
        (WatchEvent(type="BOOKMARK", resource_version="9"), {"a", "b"}, {"x"}),
    ],
)
def test_initial_events_make_a_listing(event, objects, invalid):
    """An object is in one of its two parts at most."""
    result, odd = dict(HELD), dict(INVALID)
    add_initial_event(event, result, odd)
    assert {each.name for each in result.values()} == objects
    assert {each.name for each in odd.values()} == invalid
