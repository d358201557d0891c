"""Events are deduplicated, rate-limited and counted, and never block."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import ApiError
from karpenter_core.kube import events, resources
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.events import EventRecorder
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.direct import DirectTransport
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.virtual_time import LoopClock, run_virtual


def notice(name="web", *, namespace="default", message="why", **options):
    kind = "Pod" if namespace else "NodePool"
    regarding = ObjectRef(api_version="v1", kind=kind, name=name, namespace=namespace, uid=name)
    fields = {"type": "Warning", "reason": "FailedScheduling", "dedupe": (name,)}
    return Notice(regarding=regarding, message=message, **{**fields, **options})


class RecorderFixture:
    def __init__(self):
        self.registry = CollectorRegistry()
        self.frontend = ServerFrontend(ApiServer(LoopClock()))
        clock = LoopClock()
        api = KubeApi(DirectTransport(self.frontend), clock=clock)
        self.recorder = EventRecorder(
            ClusterApis(api), clock=clock, metrics=KubeMetrics(self.registry)
        )

    @property
    def events(self):
        return self.frontend.server.registry.objects(resources.EVENTS)

    @asynccontextmanager
    async def posting(self):
        task = asyncio.ensure_future(self.recorder.run())
        try:
            yield
            await self.recorder.drain()
        finally:
            task.cancel()
            await asyncio.wait({task})


def publish(script):
    async def scenario():
        desk = RecorderFixture()
        async with desk.posting():
            await script(desk)
        return desk

    return run_virtual(scenario())


async def times(desk, count, made):
    for number in range(count):
        desk.recorder.publish(made(number))


def test_quick_duplicates_are_one_event():
    """Case 274: a hundred of the same."""
    assert len(publish(lambda desk: times(desk, 100, lambda _: notice())).events) == 1


def test_distinct_events_are_all_sent():
    """Case 274: a hundred different ones."""
    desk = publish(lambda desk: times(desk, 100, lambda number: notice(f"web-{number}")))
    assert len(desk.events) == 100


def test_a_window_of_its_own_ends_sooner():
    """Case 274: two seconds, and the second event passes after three; counted up, not new."""

    async def script(desk):
        for _ in range(2):
            desk.recorder.publish(notice(window=timedelta(seconds=2)))
            await asyncio.sleep(3)

    (posted,) = publish(script).events
    assert posted["count"] == 2
    assert posted["firstTimestamp"] < posted["lastTimestamp"]


def test_the_default_window_is_two_minutes():
    """The same reason in other letters is the same."""

    async def script(desk):
        desk.recorder.publish(notice(message="first"))
        await asyncio.sleep(119)
        desk.recorder.publish(notice(message="second", reason="failedscheduling"))
        await asyncio.sleep(2)
        desk.recorder.publish(notice(message="third"))

    assert [posted["message"] for posted in publish(script).events] == ["first", "third"]


def test_without_dedupe_values_each_is_sent():
    """As condition transitions are; the same text counts up one Event."""

    async def script(desk):
        for message in ("a", "b", "a"):
            desk.recorder.publish(notice(dedupe=(), message=message))
            await desk.recorder.drain()

    counts = {posted["message"]: posted["count"] for posted in publish(script).events}
    assert counts == {"a": 2, "b": 1}


def test_a_shared_bucket_lets_a_burst_through():
    """Case 274: ten of a hundred nominations at once."""
    made = lambda number: notice(f"web-{number}", bucket="nominated")  # noqa: E731
    desk = publish(lambda desk: times(desk, 100, made))
    assert 10 <= len(desk.events) <= 11


def test_a_shared_bucket_refills():
    """Case 274: five a second for three seconds."""

    async def script(desk):
        await times(desk, 10, lambda number: notice(f"first-{number}", bucket="nominated"))
        for second in range(3):
            await asyncio.sleep(1)
            await times(desk, 20, lambda n, s=second: notice(f"web-{s}-{n}", bucket="Nominated"))

    assert len(publish(script).events) == 10 + 15


def test_a_deduplicated_event_costs_no_token():
    """The bucket is asked after the window."""

    async def script(desk):
        await times(desk, 100, lambda _: notice("same", bucket="nominated"))
        await times(desk, 9, lambda number: notice(f"web-{number}", bucket="nominated"))

    assert len(publish(script).events) == 10


def test_an_event_names_its_source_and_object_and_cuts_long_messages():
    """As the reference's do; cluster-scoped objects' Events live in `default`."""

    async def script(desk):
        desk.recorder.publish(notice(namespace="", message="ü" * 2000))

    (posted,) = publish(script).events
    assert posted["metadata"]["namespace"] == "default"
    assert posted["source"] == {"component": "karpenter"}
    assert posted["involvedObject"]["kind"] == "NodePool"
    assert len(posted["message"].encode()) <= 1024
    assert posted["message"].endswith("ü...")


@pytest.mark.parametrize("message", ["a" * 1024, "a" * 1025, "a" * 5000], ids=len)
def test_a_message_that_is_too_long_fills_the_limit_of_the_api_server(message):
    async def script(desk):
        desk.recorder.publish(notice(message=message))

    (posted,) = publish(script).events
    cut = message if len(message) == 1024 else "a" * 1021 + "..."
    assert posted["message"] == cut


def test_unsendable_event_is_counted_and_dropped():
    """A refused one at once, an unreachable server after some attempts; others still pass."""

    async def script(desk):
        desk.frontend.faults.add(RequestFault(matches=matching("POST", "events"), status=403))
        desk.recorder.publish(notice("refused"))
        await desk.recorder.drain()
        desk.frontend.faults.add(
            RequestFault(matches=matching("POST", "events"), times=3, drop_request=True)
        )
        desk.recorder.publish(notice("unreachable"))
        await desk.recorder.drain()
        desk.recorder.publish(notice("fine"))

    desk = publish(script)
    assert [posted["involvedObject"]["name"] for posted in desk.events] == ["fine"]
    text = generate_latest(desk.registry).decode()
    assert 'karpenter_core_events_dropped_total{cause="403"} 1.0' in text
    assert 'karpenter_core_events_dropped_total{cause="0"} 1.0' in text


@pytest.mark.parametrize(("asked", "waits"), [(None, 1), (0, 1), (4, 4), (10, 10), (300, 10)])
def test_a_throttled_event_waits_as_long_as_the_server_asks_within_bounds(asked, waits):
    """Others wait behind it, so a long pause is not kept."""
    pause = None if asked is None else timedelta(seconds=asked)
    turns = []

    async def story():
        clock = LoopClock()
        recorder = RecorderFixture().recorder

        async def posted(_entry):
            turns.append(clock.monotonic())
            if len(turns) == 1:
                raise ApiError("later", status=429, retry_after=pause)

        recorder._post_once = posted
        await recorder._post(None)

    run_virtual(story())
    assert turns[1] - turns[0] == pytest.approx(waits)


def test_a_lost_reply_makes_no_second_event():
    """The name is fixed when the Event is published."""

    async def script(desk):
        desk.frontend.faults.add(RequestFault(matches=matching("POST", "events"), drop_reply=True))
        desk.recorder.publish(notice())

    assert len(publish(script).events) == 1


def test_a_full_queue_drops_instead_of_growing():
    """No caller waits, nothing is unbounded."""

    async def scenario():
        desk = RecorderFixture()
        await times(desk, 2_500, lambda number: notice(f"web-{number}"))
        return generate_latest(desk.registry).decode()

    text = run_virtual(scenario())
    assert 'karpenter_core_events_dropped_total{cause="queue-full"} 500.0' in text


def test_seen_events_expire():
    """The memory of windows is bounded too."""

    async def scenario():
        desk = RecorderFixture()
        for batch in range(5):
            await times(desk, 5_000, lambda number, b=batch: notice(f"web-{b}-{number}"))
            await asyncio.sleep(121)
        return len(desk.recorder._recent)

    assert run_virtual(scenario()) <= 10_000


def test_large_caches_are_swept_rarely(monkeypatch):
    """A plan for ten thousand pods publishes as many Events in one go."""
    searches = []
    forget = EventRecorder._forget

    def counted(self, now):
        searches.append(len(self._recent))
        forget(self, now)

    monkeypatch.setattr(EventRecorder, "_forget", counted)

    async def script(desk):
        for number in range(60_000):
            desk.recorder.publish(notice(f"web-{number}", bucket="nominated"))

    publish(script)
    assert 0 < len(searches) < 10
    assert max(searches) < 40_000


def test_four_events_are_posted_at_once_while_the_server_is_slow():
    """One that hangs holds up no other, and a slow server is not asked for more."""

    async def script(desk):
        open_posts, most = 0, 0
        genuine = desk.recorder._post

        async def post(entry):
            nonlocal open_posts, most
            open_posts += 1
            most = max(most, open_posts)
            await asyncio.sleep(5)
            await genuine(entry)
            open_posts -= 1

        desk.recorder._post = post
        for number in range(9):
            desk.recorder.publish(notice(f"web-{number}"))
        await asyncio.sleep(60)
        assert (most, open_posts) == (4, 0)

    assert len(publish(script).events) == 9


def test_memory_of_posted_events_keeps_its_bound_while_they_are_counted_up(monkeypatch):
    """An Event may be forgotten while the server is still counting it up."""
    monkeypatch.setattr(events, "_REMEMBERED", 4)

    async def script(desk):
        faults = desk.frontend.faults
        faults.add(RequestFault(matches=matching("PATCH", ""), latency_seconds=30.0, times=None))
        for number in range(20):
            for name in (f"web-{number}", f"web-{number}", *(f"x-{number}-{n}" for n in range(6))):
                desk.recorder.publish(notice(name, dedupe=()))
                await asyncio.sleep(1)
        await desk.recorder.drain()
        assert len(desk.recorder._posted) <= 4

    publish(script)


def test_memory_of_recent_events_drops_what_is_over_and_then_the_oldest(monkeypatch):
    """An Event that is no longer remembered is posted again: memory has a bound."""
    monkeypatch.setattr(events, "_REMEMBERED", 4)
    kept = []

    async def script(desk):
        for number in range(20):
            desk.recorder.publish(notice(f"old-{number}", window=timedelta(seconds=2)))
        await asyncio.sleep(3)
        for number in range(100):
            desk.recorder.publish(notice(f"web-{number}"))
            kept.append(len(desk.recorder._recent))
            await desk.recorder.drain()
        assert not any("old" in key for key in desk.recorder._recent)
        desk.recorder.publish(notice("web-99"))
        desk.recorder.publish(notice("web-0"))

    assert len(publish(script).events) == 120 + 1
    assert 16 < max(kept) <= 2 * 16
