"""A cluster that is watched is listed once; its views follow each change, and a lost watch empties nothing."""

from __future__ import annotations

import queue
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.top.feed import ViewFeed
from karpenter_core.cli.top.frame import header_lines, node_table
from karpenter_core.cli.top.view import FeedStatus, ViewOptions
from karpenter_core.errors import KarpenterError
from karpenter_core.kube.resources import EVENTS, PODS
from tests.cli.inputs import POOL, node, pod
from tests.cli.test_live_cluster import NODE_CLASS, World, decision_event

WAIT_SECONDS = 30


@pytest.fixture
def world(tmp_path):
    with World(tmp_path).open() as opened:
        opened.install()
        opened.apply(NODE_CLASS, POOL, node("one", cpu="4"), pod("runs", cpu="1", nodeName="one"))
        opened.make_ready("general")
        yield opened


class Screen:
    """Takes what a feed publishes."""

    def __init__(self):
        self.arrived = queue.Queue()
        self.view = None
        self.views = 0
        self.status = FeedStatus()
        self.progress = []
        self.errors = []

    def publish(self, view):
        self.arrived.put(("view", view))

    def report(self, status):
        self.arrived.put(("status", status))

    def fail(self, error):
        self.arrived.put(("error", error))

    def wait(self, is_shown):
        """Wait until the screen fulfils a condition."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.view is None or not is_shown(self):
            what, found = self.arrived.get(timeout=max(deadline - time.monotonic(), 0.01))
            if what == "view":
                self.view = found
                self.views += 1
            elif what == "error":
                self.errors.append(found)
            else:
                self.status = found
                self.progress.append(found.progress)
        return self.view


@contextmanager
def following(world, types_file, **changes):
    screen = Screen()
    source = replace(
        ClusterSource(
            kubeconfig=world.kubeconfig, instance_types_file=types_file, with_decisions=True
        ),
        **changes,
    )
    feed = ViewFeed(
        source,
        ViewOptions(resources=("cpu", "memory"), node_selector={}),
        refresh_seconds=0.5,
        publish=screen.publish,
        report=screen.report,
        fail=screen.fail,
    )
    feed.start()
    try:
        yield screen, feed
    finally:
        feed.stop()


def names(screen):
    return [row.name for row in screen.view.nodes]


def test_changes_are_shown_without_another_list(world, types_file):
    """Nodes, pods, a pod that waits, and decisions."""
    world.door.watched = {"*"}
    with following(world, types_file) as (screen, _):
        screen.wait(lambda shown: names(shown) == ["one"] and shown.status.is_live)
        listed = len(world.door.requests)
        assert any("pods" in each or "reads" in each for each in screen.progress)

        world.apply(node("two", cpu="8"), pod("more", cpu="2", nodeName="one"))
        view = screen.wait(lambda shown: names(shown) == ["one", "two"])
        screen.wait(lambda shown: shown.view.nodes[0].uses["cpu"].requested == 3000)
        world.apply(pod("huge", cpu="100"), decision_event("ours"))
        world.settle(["huge"])
        view = screen.wait(
            lambda shown: (
                any(each.state == "unschedulable" for each in shown.view.pending)
                and shown.view.decisions
            )
        )
        world.delete(PODS, "more", namespace="shop")
        screen.wait(lambda shown: shown.view.nodes[0].uses["cpu"].requested == 1000)

    assert view.pending[0].key == "shop/huge"
    assert "general" in view.pending[0].pools
    assert view.decisions[0].message == "ours: Empty"
    assert len(world.door.requests) == listed
    assert {method for method, _ in world.door.requests} == {"GET"}
    assert {"pods", "nodes", "events"} <= set(world.door.watches)
    assert not screen.errors


def test_a_lost_watch_is_stale_and_recovers(world, types_file):
    """The last view stays: a cluster that cannot be reached is not empty."""
    world.door.watched = {"*"}
    with following(world, types_file) as (screen, _):
        screen.wait(
            lambda shown: names(shown) == ["one"] and shown.status.is_live and shown.views > 1
        )
        world.do(_async(world.door.cut))
        screen.wait(lambda shown: shown.status.lost)
        assert names(screen) == ["one"]
        assert screen.view.totals.pods == 1
        assert 0 <= time.monotonic() - screen.status.lost_at < WAIT_SECONDS
        world.apply(node("two", cpu="8"))

        world.door.is_cut = False
        screen.wait(lambda shown: names(shown) == ["one", "two"])
        screen.wait(lambda shown: not shown.status.lost)

    assert not screen.errors


def test_without_the_right_to_watch_all_is_listed_again(world, types_file):
    """A note says so once; the view follows at each reading."""
    world.door.watched = {"nodes"}
    with following(world, types_file) as (screen, _):
        view = screen.wait(lambda shown: names(shown) == ["one"])
        world.apply(node("two", cpu="8"))
        screen.wait(lambda shown: names(shown) == ["one", "two"])

    notes = [note for note in view.notes if "cannot be watched" in note]
    assert len(notes) == 1
    assert "pods" in notes[0]
    assert ", nodes" not in notes[0]
    assert not screen.status.is_live


def test_kinds_that_cannot_be_listed_are_noted_or_end_the_view(world, types_file):
    world.door.watched = {"*"}
    world.door.forbidden = {"poddisruptionbudgets"}
    with following(world, types_file) as (screen, _):
        screen.wait(lambda shown: any("poddisruptionbudgets" in note for note in shown.view.notes))
    world.door.forbidden = {"pods"}
    with following(world, types_file) as (screen, _):
        what, error = screen.arrived.get(timeout=WAIT_SECONDS)
        while what != "error":
            what, error = screen.arrived.get(timeout=WAIT_SECONDS)

    assert isinstance(error, KarpenterError)
    assert "pods is forbidden" in str(error)


def test_decisions_are_listed_where_they_cannot_be_watched(world, types_file, monkeypatch):
    monkeypatch.setattr("karpenter_core.cli.cluster_events._POLL_SECONDS", 0.2)
    monkeypatch.setattr("karpenter_core.cli.cluster_events._RETRY_SECONDS", 0.2)
    world.apply(decision_event("first"))
    plurals = {"*"} - {EVENTS.plural}
    world.door.watched = plurals
    world.door.unwatched = {EVENTS.plural}
    with following(world, types_file) as (screen, _):
        screen.wait(lambda shown: shown.view.decisions)
        world.apply(decision_event("second"))
        screen.wait(lambda shown: len(shown.view.decisions) == 2)

    assert EVENTS.plural not in world.door.watches
    assert screen.status.is_live


def test_nodes_are_shown_while_pods_are_still_listed(world, types_file):
    """The list of pods is the longest by far: until it ends, nothing is said about requests."""
    world.door.watched, world.door.delayed = {"*"}, {"pods"}
    with following(world, types_file) as (screen, _):
        early = screen.wait(lambda shown: names(shown) == ["one"])
        lines = ["".join(span.text for span in line) for line in header_lines(early, width=80)]
        table = node_table(early, early.nodes, width=80)
        world.door.delayed = set()
        whole = screen.wait(lambda shown: shown.status.is_live)

    assert early.awaited == "pods"
    assert lines == ["1 node (1 Ready)", "reads pods …", lines[-1]]
    assert "per hour" in lines[-1]
    heading = "".join(span.text for span in table.heading)
    assert "NODE" in heading
    assert "CPU" not in heading
    assert "PODS" not in heading
    assert whole.awaited == ""
    assert whole.nodes[0].uses["cpu"].requested == 1000


def test_a_key_plans_at_once(world, types_file, monkeypatch):
    monkeypatch.setattr("karpenter_core.cli.top.live_view.PLAN_PAUSE", 1e9)
    world.door.watched = {"*"}
    with following(world, types_file) as (screen, feed):
        screen.wait(lambda shown: names(shown) == ["one"] and shown.views > 1)  # it has planned
        world.apply(pod("huge", cpu="100"))
        world.settle(["huge"])
        screen.wait(lambda shown: [each.state for each in shown.view.pending] == ["held"])
        assert screen.view.pending[0].message == "not planned yet"
        feed.refresh()
        screen.wait(lambda shown: [each.state for each in shown.view.pending] == ["unschedulable"])


async def _async(function):
    function()
