"""The feed computes as seldom as it may, sends differences, and drops viewers that are slow."""

from __future__ import annotations

import asyncio
import itertools
import threading
from itertools import pairwise

import msgspec
import pytest

from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import KarpenterError
from karpenter_core.operator.dashboard import cost_history, feed, pod_reasons, subscribers
from karpenter_core.operator.dashboard.cost_history import CostHistory, CostPoint
from karpenter_core.operator.dashboard.feed import UnavailableError
from karpenter_core.operator.dashboard.pod_reasons import PodReasons
from karpenter_core.operator.dashboard.state_versions import StateVersions
from karpenter_core.operator.dashboard.subscribers import Subscriber
from karpenter_core.operator.dashboard_content import Role
from tests.dashboard.moments import Running, ScriptedContent, World, decision, node_row


class ManualClock:
    """A clock whose sleeps end when a test says so."""

    def __init__(self):
        self.time = 0.0
        self.sleeping = []

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        ended = asyncio.Event()
        self.sleeping.append((self.time + seconds, ended))
        await ended.wait()

    async def advance(self, seconds):
        self.time += seconds
        for until, ended in self.sleeping:
            if until <= self.time:
                ended.set()
        self.sleeping = [entry for entry in self.sleeping if not entry[1].is_set()]
        await asyncio.sleep(0.05)  # a thread computes


def viewer(feed):
    """Add a viewer; return it, and the list that tells when it is dropped."""
    dropped = []
    subscriber = Subscriber(lambda: dropped.append(True))
    assert feed.subscribers.add(subscriber)
    feed.watch()
    return subscriber, dropped


def messages(subscriber):
    """Return the events that wait for a viewer, as name and data."""
    found = []
    while not subscriber.queue.empty():
        name, data = subscriber.queue.get_nowait().decode().strip().split("\n")
        found.append(
            (name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: ")))
        )
    return found


async def test_no_view_is_computed_without_a_connected_page():
    clock = ManualClock()
    world = World(ScriptedContent(), clock=clock)
    async with Running(world):
        for _ in range(5):
            world.change()
            await clock.advance(10)

    assert world.content.computed == 0


async def test_the_state_is_computed_once_per_interval_for_all_viewers():
    clock = ManualClock()
    world = World(ScriptedContent(node_row("one")), clock=clock)
    async with Running(world):
        viewers = [viewer(world.feed)[0] for _ in range(3)]
        await clock.advance(0)
        states = await asyncio.gather(*(world.feed.state() for _ in range(20)))
        assert world.content.computed == 1
        assert len(set(states)) == 1
        world.change()
        await world.feed.state()
        assert world.content.computed == 1
        world.content.nodes.append(node_row("two"))
        await clock.advance(2)
        assert world.content.computed == 2

    for each in viewers:
        updates = [data for name, data in messages(each) if name == "update"]
        assert [row["name"] for row in updates[-1]["nodes"]] == ["two"]


async def test_the_same_cluster_is_not_computed_again():
    clock = ManualClock()
    world = World(ScriptedContent(), clock=clock)
    async with Running(world):
        viewer(world.feed)
        for _ in range(5):
            await clock.advance(2)
        assert world.content.computed == 1
        world.role = Role.STANDBY
        await clock.advance(2)
        assert world.content.computed == 2


async def test_decisions_are_sent_as_they_happen_and_kept_for_later_viewers():
    world = World(ScriptedContent())
    subscriber, _ = viewer(world.feed)
    for number in range(105):
        world.sink(decision(number))
        assert messages(subscriber)[0][1]["id"] == f"decision-{number}"

    kept = msgspec.json.decode(await world.feed.state())["decisions"]

    assert [each["id"] for each in kept] == [f"decision-{number}" for number in range(5, 105)]


async def test_a_viewer_that_does_not_read_is_dropped_and_others_are_not():
    world = World(ScriptedContent())
    slow, dropped = viewer(world.feed)
    quick, kept = viewer(world.feed)
    for number in range(subscribers.QUEUED_MESSAGES + 1):
        world.sink(decision(number))
        messages(quick)

    assert (dropped, kept) == ([True], [])
    assert slow.queue.qsize() == subscribers.QUEUED_MESSAGES
    assert (len(world.feed.subscribers), world.feed.subscribers.dropped) == (1, 1)


async def test_explanations_are_computed_one_at_a_time_and_few_wait():
    world = World(ScriptedContent(node_row("one")))
    release, running = threading.Event(), []

    def explain(moment, node):
        running.append(node)
        assert release.wait(20)
        return {"message": node}

    world.content.explain_node = explain
    waiting = [asyncio.create_task(world.feed.explain("node", f"n{number}")) for number in range(4)]
    await asyncio.sleep(0.05)
    for _ in range(2):
        try:
            await world.feed.explain("node", "another")
        except UnavailableError:
            pass
        else:
            raise AssertionError("a fifth question was taken")
        waiting[0].cancel()  # a viewer that goes leaves its place taken, as the thread is
        await asyncio.sleep(0)
    assert running == ["n0"]
    release.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert answers[1:] == [b'{"message":"n1"}', b'{"message":"n2"}', b'{"message":"n3"}']
    assert await world.feed.explain("node", "n3") == answers[3]
    assert running == ["n0", "n1", "n2", "n3"]  # an answer is kept for a while


async def test_a_view_that_takes_long_is_computed_seldom(monkeypatch):
    """Of a core it takes at most a thirtieth."""
    seconds = itertools.count(0, 0.5)
    monkeypatch.setattr(feed, "thread_time", lambda: next(seconds))
    clock = ManualClock()
    world = World(ScriptedContent(node_row("one")), clock=clock)
    async with Running(world):
        viewer(world.feed)
        for _ in range(15):
            await clock.advance(2)
            world.change()

    assert world.content.computed == 2  # at 2 s and, 15 s later, at 18 s


async def test_a_standby_names_the_leader_in_place_of_an_explanation():
    """It lists no instance types: its plan would say that no NodePool can be used."""
    world = World(ScriptedContent(node_row("one")), role=Role.STANDBY)
    for ask in (world.feed.explain("node", "one"), world.feed.rebalance()):
        with pytest.raises(UnavailableError, match="ask the leader, other-1"):
            await ask


async def test_problems_of_the_process_are_shown_though_the_cluster_is_the_same():
    clock = ManualClock()
    world = World(ScriptedContent(node_row("one")), clock=clock)
    async with Running(world):
        subscriber, _ = viewer(world.feed)
        await clock.advance(2)
        messages(subscriber)
        world.problems = ("freshness: not fresh: pods",)
        await clock.advance(2)
        updates = [data for name, data in messages(subscriber) if name == "update"]

    assert [update["parts"] for update in updates] == [{"problems": list(world.problems)}]


async def test_an_explanation_that_fails_is_an_error_of_the_dashboard():
    world = World(ScriptedContent(node_row("one")))

    def fail(moment, node):
        raise ValueError("odd object")

    world.content.explain_node = fail
    with pytest.raises(KarpenterError, match="the dashboard cannot be computed: odd object"):
        await world.feed.explain("node", "one")


async def test_a_view_that_cannot_be_computed_is_tried_again():
    clock = ManualClock()
    world = World(ScriptedContent(node_row("one")), clock=clock)
    world.content.problem = ValueError("odd object")
    async with Running(world):
        subscriber, _ = viewer(world.feed)
        await clock.advance(2)
        assert "update" not in {name for name, _ in messages(subscriber)}
        world.content.problem = None
        await clock.advance(2)
        assert "update" in {name for name, _ in messages(subscriber)}


@pytest.mark.parametrize("problem", [KarpenterError("refused"), ValueError("odd object")])
@pytest.mark.parametrize("part", ["state", "moment", "cost", "decision"])
async def test_no_failure_ends_the_dashboard_or_reaches_the_controller(part, problem, monkeypatch):
    def fail(*_, **__):
        raise problem

    clock = ManualClock()
    world = World(ScriptedContent(node_row("one")), clock=clock)
    with monkeypatch.context() as failing:
        if part == "cost":
            failing.setattr(feed, "cost_point", fail)
        elif part == "moment":
            world.failure = problem
        else:
            failing.setattr(world.content, part, fail)
        async with Running(world):
            viewer(world.feed)
            await clock.advance(2)
            world.sink(decision(1))
            if part in {"state", "moment"}:
                with pytest.raises(KarpenterError, match=str(problem)):
                    await world.feed.state()
            await clock.advance(10)
            failing.undo()
            world.failure = None
            world.change()
            await clock.advance(10)
            assert b'"name":"one"' in await world.feed.state()
            world.sink(decision(2))
            state = msgspec.json.decode(await world.feed.state())
            assert state["decisions"][-1]["id"] == "decision-2"
            assert state["costs"]


def test_an_update_has_changed_rows_and_the_keys_of_removed_ones():
    versions = StateVersions("v")
    first = {"nodes": [node_row("one"), node_row("two")], "notes": [], "role": "leader"}
    assert versions.take(first) is not None
    assert versions.take(dict(first)) is None
    second = {"nodes": [node_row("two", state="Draining")], "notes": ["new"], "role": "leader"}

    update = msgspec.json.decode(versions.take(second))

    assert update == {
        "base": "v-1", "version": "v-2", "parts": {"notes": ["new"]},
        "nodes": [node_row("two", state="Draining")], "removedNodes": ["one"],
    }  # fmt: skip
    whole = msgspec.json.decode(versions.whole(costs=[]))
    assert whole == {"version": "v-2", "costs": [], **second}


def test_the_history_is_bounded_and_keeps_its_ends():
    history = CostHistory()
    for number in range(10_000):
        history.add(CostPoint(10.0 * number, float(number), number))

    points = history.points
    assert len(points) <= cost_history.MOST_POINTS
    assert len(points) > cost_history.MOST_POINTS // 4
    assert (points[0].nodes, points[-1].nodes) == (0, 9_999)
    gaps = [late.at - early.at for early, late in pairwise(points)]
    assert all(gap > 0 for gap in gaps)
    assert max(gaps) < 8 * sorted(gaps)[len(gaps) // 2]


def test_reasons_of_pods_are_forgotten_once_a_pod_is_placed(monkeypatch):
    def say(uid, reason, message, kind="Pod"):
        regarding = ObjectRef(api_version="v1", kind=kind, name=uid, uid=uid)
        reasons.observe(Notice(regarding=regarding, type="Warning", reason=reason, message=message))

    monkeypatch.setattr(pod_reasons, "REMEMBERED", 3)
    reasons = PodReasons()
    say("one", "FailedScheduling", "Failed to schedule pod, too large")
    say("node", "FailedScheduling", "x", kind="Node")
    assert reasons.messages() == {"one": "too large"}
    changes = reasons.changes
    say("one", "FailedScheduling", "Failed to schedule pod, too large")
    assert reasons.changes == changes
    say("one", "Nominated", "Pod should schedule on: node/a")
    assert reasons.messages() == {}
    for number in range(5):
        say(f"pod-{number}", "FailedScheduling", "no room")
    assert list(reasons.messages()) == ["pod-2", "pod-3", "pod-4"]


async def test_the_cpu_time_of_views_and_explanations_is_counted():
    """By the clock of the thread, so that it can be told from the work of the controller."""
    counted = []
    world = World(
        ScriptedContent(), count_cpu=lambda work, seconds: counted.append((work, seconds))
    )
    world.change()
    await world.feed.state()
    await world.feed.explain("node", "one")

    assert [work for work, _ in counted] == ["view", "explanation"]
    assert all(seconds >= 0 for _, seconds in counted)
