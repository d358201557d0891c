"""The informer keeps its contract, alone and against the embedded server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise, repeat

import msgspec
from prometheus_client import CollectorRegistry

from karpenter_core.errors import ApiError
from karpenter_core.kube import resources
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.contact import ContactTimes
from karpenter_core.kube.informer import Informer
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.kube.wire.codecs import NODE_POOLS, Codecs
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.direct import DirectTransport
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.events import ObjectRemoved
from tests.kube.scripted import (
    HANG,
    ScriptedTransport,
    answer,
    bookmark,
    event,
    node,
    node_pool,
    page,
    refusal,
)

EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired"}
BROKEN = ApiError("the watch broke", status=0)


class Follower:
    """A running informer, and its events."""

    def __init__(self, transport, kind=resources.NODES, jitter=0.5, **options):
        self.clock = LoopClock()
        self.transport = transport
        self.changes: list[str] = []
        self.invalid: list[str] = []
        self.informer = Informer(
            kind,
            Codecs().for_kind(kind),
            KubeApi(transport, clock=self.clock),
            clock=self.clock,
            sink=self.sink,
            on_invalid=lambda found: self.invalid.append(found.name),
            jitter=lambda: jitter,
            **options,
        )

    def sink(self, change):
        sign = "-" if isinstance(change, ObjectRemoved) else "+"
        result = change.object
        version = getattr(result, "resource_version", None) or result.metadata.resource_version
        self.changes.append(f"{sign}{result.name}@{version}")

    @asynccontextmanager
    async def running(self):
        task = asyncio.ensure_future(self.informer.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()


def follow(script, answers=(), watches=(), **options):
    """Run `script(follower)` while an informer follows a scripted server."""

    async def scenario():
        follower = Follower(ScriptedTransport(answers, watches), **options)
        async with follower.running():
            await script(follower)
        return follower

    return run_virtual(scenario())


def watches_of(follower):
    return [request for request in follower.transport.requests if "watch" in request.query]


def test_a_watch_list_syncs_at_its_bookmark():
    """No event comes before the listing is complete; then the stream goes on."""

    async def script(follower):
        await asyncio.sleep(4)
        assert follower.changes == []
        assert not follower.informer.synced.is_set()
        await follower.informer.synced.wait()
        assert follower.changes == ["+a@1", "+b@2"]
        await asyncio.sleep(2)
        assert follower.informer.resource_version == "11"

    watch = [
        event("ADDED", node("a", 1)),
        event("ADDED", node("b", 2)),
        5,
        bookmark(10, initial=True),
        1,
        event("MODIFIED", node("a", 11)),
        HANG,
    ]
    follower = follow(script, watches=[watch])
    assert follower.changes == ["+a@1", "+b@2", "+a@11"]
    (request,) = follower.transport.requests
    assert request.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "450",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


def test_an_error_within_the_initial_events_ends_the_listing():
    """Else objects of a stream that the server gave up would count as all that there are."""

    async def script(follower):
        await follower.informer.synced.wait()
        await asyncio.sleep(5)

    broken = [
        event("ADDED", node("a", 1)),
        event("ERROR", EXPIRED),
        bookmark(5, initial=True),
        HANG,
    ]
    whole = [event("ADDED", node("b", 2)), bookmark(10, initial=True), HANG]
    follower = follow(script, watches=[broken, whole])
    assert follower.changes == ["+b@2"]


def test_a_server_without_watch_lists_is_listed_in_pages():
    """Tried once for each kind; the watch begins where the list ended."""

    async def script(follower):
        await follower.informer.synced.wait()
        await asyncio.sleep(1)

    follower = follow(
        script,
        answers=[page([node("a", 1)], 10, "more"), page([node("b", 2)], 10)],
        watches=[refusal(422, "sendInitialEvents is forbidden"), [HANG]],
    )
    assert follower.changes == ["+a@1", "+b@2"]
    watch = follower.transport.requests[-1]
    assert (watch.query["resourceVersion"], "sendInitialEvents" in watch.query) == ("10", False)


def test_a_server_that_never_ends_its_initial_events_is_listed_in_pages():
    """An old one takes the parameter and ignores it."""

    async def script(follower):
        await follower.informer.synced.wait()

    watches = [[event("ADDED", node("a", 1)), HANG], [HANG]]
    follower = follow(script, answers=[page([node("a", 1)], 10)], watches=watches)
    assert follower.changes == ["+a@1"]


def test_a_closed_stream_is_resumed_after_a_pause():
    """From the last version, bookmarks included, and without listing again."""

    async def script(follower):
        await asyncio.sleep(30)

    follower = follow(
        script,
        answers=[page([node("a", 1)], 10)],
        watches=[[event("MODIFIED", node("a", 11)), bookmark(15)], [BROKEN], [HANG]],
        watch_list=False,
    )
    versions = [r.query["resourceVersion"] for r in follower.transport.requests[1:]]
    assert versions == ["10", "15", "15"]
    assert follower.changes == ["+a@1", "+a@11"]


def test_reconnects_do_not_spin():
    """A stream that ends at once is tried again after 0.8 s, 1.6 s … up to 30 s."""

    async def script(follower):
        await asyncio.sleep(150)

    watches = [[bookmark(10, initial=True)], *([] for _ in range(20))]
    times = follow(script, watches=watches, jitter=1.0).transport.times
    gaps = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert gaps == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]


def test_the_pause_starts_small_again_after_healthy_time():
    """Two minutes of a good stream."""

    async def script(follower):
        await asyncio.sleep(500)

    healthy = [bookmark(10, initial=True), 60, bookmark(11), 60, bookmark(12), 10]
    watches = [BROKEN, BROKEN, BROKEN, BROKEN, healthy, [HANG]]
    follower = follow(script, answers=repeat(page([], 12)), watches=watches, jitter=1.0)
    assert follower.informer._backoff.next_delay() == 1.6  # one failure since the reset


def test_an_expired_version_lists_again_and_reports_the_difference():
    """By UID and version: unchanged nothing, changed and new observed, missing removed."""

    async def script(follower):
        await follower.informer.synced.wait()
        await asyncio.sleep(5)

    expired = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
    second = [node("same", 1), node("changed", 18), node("again", 19, uid="new"), node("added", 17)]
    follower = follow(
        script,
        answers=[
            page([node("same", 1), node("changed", 2), node("gone", 3), node("again", 4)], 10),
            page(second, 20),
        ],
        watches=[[expired], [HANG]],
        watch_list=False,
    )
    assert follower.changes[4:] == ["-gone@3", "-again@4", "+changed@18", "+again@19", "+added@17"]
    assert follower.informer.resource_version == "20"


def test_old_objects_are_kept_during_a_relist():
    """A refused list changes nothing."""

    async def script(follower):
        await asyncio.sleep(60)
        assert len(follower.informer) == 1
        assert follower.informer.problem == ""

    follower = follow(
        script,
        answers=[page([node("a", 1)], 10), refusal(500), refusal(503), page([node("a", 1)], 20)],
        watches=[refusal(410), [HANG]],
        watch_list=False,
    )
    assert follower.changes == ["+a@1"]


def test_an_expired_page_token_starts_the_list_over():
    """Once with a fresh token, then all in one answer."""

    async def script(follower):
        await follower.informer.synced.wait()

    follower = follow(
        script,
        answers=[
            page([node("a", 1)], 10, "t"),
            refusal(410),
            page([node("a", 1)], 11, "t"),
            refusal(410),
            page([node("b", 2)], 12),
        ],
        watch_list=False,
    )
    assert follower.changes == ["+b@2"]
    assert [r.query.get("limit", "") for r in follower.transport.requests[:5]] == [
        "500",
        "500",
        "500",
        "500",
        "",
    ]


def test_a_line_that_is_too_long_lists_again():
    """The stream cannot get past it."""

    async def script(follower):
        await asyncio.sleep(10)

    too_long = ApiError("too long", status=0, reason="LineTooLong")
    follower = follow(
        script,
        answers=[page([node("a", 1)], 10), page([node("a", 12)], 12)],
        watches=[[too_long], [HANG]],
        watch_list=False,
    )
    assert follower.changes == ["+a@1", "+a@12"]


def test_a_version_from_the_future_lists_again():
    """As after a restore of etcd."""

    async def script(follower):
        await asyncio.sleep(10)

    follower = follow(
        script,
        answers=[page([node("a", 90)], 90), page([node("a", 5)], 6)],
        watches=[refusal(504, "Too large resource version: 90, current: 6"), [HANG]],
        watch_list=False,
    )
    assert follower.changes == ["+a@90", "+a@5"]


def test_a_garbled_line_lists_again():
    """Changes in between must not be missed."""

    async def script(follower):
        await asyncio.sleep(10)

    follower = follow(
        script,
        answers=[page([node("a", 1)], 10), page([], 12)],
        watches=[[b'{"type":"ADD'], [HANG]],
        watch_list=False,
    )
    assert follower.changes == ["+a@1", "-a@1"]


def test_a_stuck_stream_is_closed():
    """It outlived the time that the server was asked to close it after, and the grace."""

    async def script(follower):
        await asyncio.sleep(479)
        assert len(watches_of(follower)) == 1
        await asyncio.sleep(5)
        assert len(watches_of(follower)) == 2

    watches = [[bookmark(10, initial=True), HANG], [HANG]]
    follow(script, answers=repeat(page([], 10)), watches=watches)


def test_a_kind_that_is_not_installed_is_waited_for():
    """Every few seconds, with one message."""

    async def script(follower):
        await asyncio.sleep(8)
        assert "404" not in follower.informer.problem
        assert follower.informer.problem
        await follower.informer.synced.wait()
        assert follower.informer.problem == ""
        assert follower.clock.monotonic() < 16

    watches = [refusal(404), refusal(404), refusal(404), [bookmark(3, initial=True), HANG]]
    follow(script, watches=watches, kind=NODE_POOLS)


def test_a_kind_that_was_removed_and_installed_again_is_listed_anew():
    """Objects that were created and deleted meanwhile are in no watch from the old version."""

    async def script(follower):
        await asyncio.sleep(30)
        assert follower.changes == ["+a@1", "-a@1", "+b@8"]

    first = [event("ADDED", node_pool("a", 1)), bookmark(3, initial=True)]
    again = [event("ADDED", node_pool("b", 8)), bookmark(9, initial=True), HANG]
    follower = follow(script, watches=[first, refusal(404), again], kind=NODE_POOLS)
    assert "sendInitialEvents" in watches_of(follower)[-1].query


def test_events_that_repeat_held_objects_are_not_passed_on():
    """Only changes fire, and each once."""

    async def script(follower):
        await asyncio.sleep(1)

    watch = [event("ADDED", node("a", 1)), bookmark(5, initial=True)]
    watch += [event("MODIFIED", node("a", 6))] * 2 + [event("DELETED", node("a", 7))] * 2 + [HANG]
    assert follow(script, watches=[watch]).changes == ["+a@1", "+a@6", "-a@7"]


def test_a_kind_whose_changes_come_out_of_order_is_listed_again():
    """An old change may have been undone by one that was shown before: only a list tells."""

    async def script(follower):
        await asyncio.sleep(30)

    first = [event("ADDED", node("a", 1)), bookmark(5, initial=True)]
    first += [event("DELETED", node("a", 8)), event("MODIFIED", node("a", 6)), HANG]
    again = [event("ADDED", node("b", 7)), bookmark(9, initial=True), HANG]
    follower = follow(script, watches=[first, again])
    assert follower.changes == ["+a@1", "-a@8", "+b@7"]
    assert "sendInitialEvents" in watches_of(follower)[-1].query


def test_an_unreadable_object_keeps_its_last_good_state():
    """It is reported once a version, served as it was, and removed when it is deleted."""

    async def script(follower):
        await asyncio.sleep(1)

    bad = {"disruption": {"consolidateAfter": "soon"}}
    watch = [
        event("ADDED", node_pool("web", 1)),
        event("ADDED", node_pool("never", 2, **bad)),
        bookmark(5, initial=True),
        event("MODIFIED", node_pool("web", 6, **bad)),
        event("MODIFIED", node_pool("web", 6, **bad)),
        event("MODIFIED", node_pool("web", 8)),
        event("MODIFIED", node_pool("web", 9, **bad)),
        event("DELETED", node_pool("web", 10, **bad)),
        HANG,
    ]
    follower = follow(script, watches=[watch], kind=NODE_POOLS)
    assert follower.changes == ["+web@1", "+web@8", "-web@8"]
    assert follower.invalid == ["never", "web", "web"]


def test_an_unreadable_object_in_a_new_listing_is_not_gone():
    """A typing error in a NodePool must not count as its deletion."""

    async def script(follower):
        await asyncio.sleep(5)

    bad = {"disruption": {"consolidateAfter": "soon"}}
    follower = follow(
        script,
        answers=[page([node_pool("web", 1)], 5), page([node_pool("web", 6, **bad)], 7)],
        watches=[refusal(410), [HANG]],
        kind=NODE_POOLS,
        watch_list=False,
    )
    assert follower.changes == ["+web@1"]
    assert follower.invalid == ["web"]
    assert len(follower.informer) == 1


def test_a_handler_that_fails_does_not_end_the_watch():
    """Each call has its own boundary."""

    async def scenario():
        watch = [event("ADDED", node("a", 1)), event("ADDED", node("b", 2))]
        transport = ScriptedTransport(watches=[[*watch, bookmark(5, initial=True), HANG]])
        follower = Follower(transport)
        tell = follower.sink

        def fragile(change):
            tell(change)
            raise RuntimeError(change.object.name)

        follower.informer._sink = fragile
        async with follower.running():
            await follower.informer.synced.wait()
        return follower.changes

    assert run_virtual(scenario()) == ["+a@1", "+b@2"]


def test_no_change_is_lost_when_the_server_breaks_off_repeatedly():
    """Against the embedded server: faults, stops, forgotten history."""

    async def scenario():
        frontend = ServerFrontend(ApiServer(LoopClock()))
        api = KubeApi(DirectTransport(frontend), clock=LoopClock())
        follower = Follower(DirectTransport(frontend), jitter=0.3)
        held: dict[str, int] = {}

        def keep(change):
            if isinstance(change, ObjectRemoved):
                held.pop(change.object.name)
            else:
                assert held.get(change.object.name, 0) < change.object.resource_version
                held[change.object.name] = change.object.resource_version

        follower.informer._sink = keep
        async with follower.running():
            await follower.informer.synced.wait()
            for number in range(60):
                if number % 7 == 0:
                    frontend.faults.add(
                        RequestFault(
                            matches=matching(path="nodes", watch=True), drop_after_events=2
                        )
                    )
                if number % 20 == 10:
                    frontend.stop()
                    await asyncio.sleep(3)
                    frontend.start()
                    frontend.server.compact()
                body = {"metadata": {"name": f"n{number}"}, "spec": {}}
                await api.create(resources.NODES, body)
                if number % 3 == 0:
                    labels = {"metadata": {"labels": {"n": str(number)}}}
                    await api.patch(resources.NODES, f"n{number}", labels)
                if number % 5 == 4:
                    await api.delete(resources.NODES, f"n{number - 2}")
                await asyncio.sleep(1)
            await asyncio.sleep(90)
        stored = frontend.server.registry.objects(resources.NODES)
        expected = {n["metadata"]["name"]: int(n["metadata"]["resourceVersion"]) for n in stored}
        assert held == expected
        assert len(held) == 48

    run_virtual(scenario())


def test_all_informers_sync_and_stop_together():
    """Those of kinds that are missing are named."""

    async def scenario():
        frontend = ServerFrontend(ApiServer(LoopClock()))
        clock = LoopClock()
        codecs = Codecs()
        changes = []
        informers = Informers(
            ClusterApis(KubeApi(DirectTransport(frontend), clock=clock)),
            codecs,
            clock=clock,
            sink=changes.append,
            kinds=[kind for kind in codecs.kinds if kind.group != "karpenter.sh"],
        )
        assert not informers.synced
        running = asyncio.ensure_future(informers.run())
        await informers.wait_synced()
        assert (informers.synced, informers.unsynced, informers.stale()) == (True, (), ())
        assert {change.object.name for change in changes} == {
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
        }
        assert len(informers[resources.NAMESPACES]) == 4
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    run_virtual(scenario())
    assert answer().status == 200


def test_a_kind_that_is_optional_and_not_served_is_not_stale():
    """Controllers wait for no contact with it; a kind that has to be there is stale without one."""

    async def scenario():
        clock = LoopClock()
        frontend = ServerFrontend(ApiServer(clock))
        apis = ClusterApis(KubeApi(DirectTransport(frontend), clock=clock))

        async def stale_kinds(optional):
            informers = Informers(
                apis,
                Codecs(),
                clock=clock,
                sink=lambda change: None,
                kinds=[resources.NODES, NODE_POOLS],
                optional=optional,
            )
            running = asyncio.ensure_future(informers.run())
            await clock.sleep(600)
            result = [each.kind for each in informers.stale()], informers.is_served(NODE_POOLS)
            running.cancel()
            await asyncio.wait({running})
            return result

        assert await stale_kinds([NODE_POOLS]) == ([], False)
        assert await stale_kinds([]) == ([NODE_POOLS], True)

    run_virtual(scenario())


def test_an_optional_kind_has_an_age_from_the_moment_it_is_served():
    """An infinite age would be alerted on for as long as the kind is not installed."""
    registry = CollectorRegistry()

    def age():
        return registry.get_sample_value("karpenter_core_informer_age_seconds", {"kind": "Node"})

    async def scenario():
        clock = LoopClock()
        frontend = ServerFrontend(ApiServer(clock))
        frontend.faults.add(RequestFault(matches=matching("GET", "nodes"), status=404, times=1))
        informers = Informers(
            ClusterApis(KubeApi(DirectTransport(frontend), clock=clock)),
            Codecs(),
            clock=clock,
            sink=lambda change: None,
            metrics=KubeMetrics(registry),
            kinds=[resources.NODES],
            optional=[resources.NODES],
        )
        running = asyncio.ensure_future(informers.run())
        await clock.sleep(5)
        missing = age()
        await clock.sleep(60)
        served = age()
        running.cancel()
        await asyncio.wait({running})
        return missing, served

    missing, served = run_virtual(scenario())

    assert missing is None
    assert served < 60


def test_all_informers_pass_their_objects_to_the_state():
    """Odd objects to their listener, counts to metrics; and they ask as they are told to."""
    registry, invalid, times = CollectorRegistry(), [], []
    odd = {**node("odd", 2), "spec": {"taints": "none"}}
    transport = ScriptedTransport(repeat(page([node("a", 1), odd], 3)), [[BROKEN], [HANG]])

    async def scenario():
        clock = LoopClock()
        informers = Informers(
            ClusterApis(KubeApi(transport, clock=clock)),
            Codecs(),
            clock=clock,
            sink=lambda change: None,
            metrics=KubeMetrics(registry),
            on_invalid=lambda found: invalid.append(found.name),
            jitter=lambda: times.append(clock.monotonic()) or 0.0,
            kinds=[resources.NODES],
            watch_list=False,
            times=ContactTimes(fresh_seconds=9.0, quiet_seconds=6.0, reply_seconds=1.0),
        )
        running = asyncio.ensure_future(informers.run())
        await asyncio.sleep(100)
        running.cancel()
        await asyncio.wait({running})

    run_virtual(scenario())
    assert invalid[:1] == ["odd"]
    assert "sendInitialEvents" not in transport.requests[0].query
    assert registry.get_sample_value("karpenter_core_informer_objects", {"kind": "Node"}) == 1
    assert times, "jitter spreads its retries"
    lists = [at for at, each in zip(transport.times, transport.requests, strict=True)
             if "watch" not in each.query]  # fmt: skip
    assert len(lists) > 100 / 9, "a silent kind is listed again in time"


def written(name, version):
    return Codecs().for_kind(resources.NODES).decode(msgspec.json.encode(node(name, version)))


def test_written_object_missing_from_a_listing_is_removed():
    """Made and removed while the stream was broken: it is in no listing, before or after."""

    async def script(follower):
        await follower.informer.synced.wait()
        follower.informer.note_written(written("brief", 11))
        follower.informer.note_written(written("kept", 12))
        follower.informer.note_written(written("newer", 25))
        await asyncio.sleep(20)
        assert follower.changes == ["-brief@11", "+kept@12"]
        await asyncio.sleep(40)
        follower.informer.note_written(written("late", 15))

    follower = follow(
        script,
        answers=[page([], 10), page([node("kept", 12)], 20)],
        watches=[
            refusal(400),
            [5, event("ERROR", EXPIRED)],
            [30, event("ADDED", node("newer", 25)), HANG],
        ],
    )
    assert follower.changes == ["-brief@11", "+kept@12", "+newer@25", "-late@15"]


def test_listing_that_ends_in_its_last_moment_is_passed_on_whole():
    """The time limit is on the server's answer, not on what is done with it."""
    names = [f"n{number}" for number in range(5000)]

    async def script(follower):
        tell = follower.informer._sink

        def slow(change):
            tell(change)
            if len(follower.changes) == 400:
                asyncio.get_running_loop()._jumping.now += 121  # this machine is busy

        follower.informer._sink = slow
        await follower.informer.synced.wait()

    events = [event("ADDED", node(name, 1)) for name in names]
    follower = follow(script, watches=[[*events, 1, bookmark(10, initial=True), HANG]])
    assert len(follower.changes) == 5000
