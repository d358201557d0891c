"""A kind is fresh after a contact, and stale after too long a silence."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.contact import ContactTimes
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.builder import StateBuilder
from tests.kube.scripted import (
    HANG,
    ScriptedTransport,
    bookmark,
    event,
    node,
    page,
    refusal,
)
from tests.kube.test_informer import Follower, follow, watches_of, written

BROKEN = ApiError("the watch broke", status=0)
EMPTY = bookmark(10, initial=True)


def failing(status):
    """Refuse every list."""
    return repeat(refusal(status, "no"))


def test_bookmarks_keep_a_kind_fresh():
    """No list is requested while they come."""

    async def script(follower):
        for _ in range(100):
            await asyncio.sleep(3)
            assert follower.informer.age_seconds <= 61
            assert follower.informer.is_fresh

    marks = [step for number in range(11, 20) for step in (60, bookmark(number))]
    follower = follow(script, watches=[[EMPTY, *marks, HANG]])
    assert len(follower.transport.requests) == 1


def test_a_kind_without_changes_is_fresh_without_bookmarks():
    """A list that shows what is held is a contact; the watch goes on."""

    async def script(follower):
        for _ in range(140):
            await asyncio.sleep(3)
            assert follower.informer.is_fresh
        assert follower.informer.problem == ""

    start = [event("ADDED", node("a", 1)), EMPTY, HANG]
    follower = follow(script, answers=repeat(page([node("a", 1)], 300)), watches=[start])
    assert len(watches_of(follower)) == 1
    assert len(follower.transport.requests) == 7
    assert follower.changes == ["+a@1"]


@pytest.mark.parametrize(
    "shown",
    [
        [node("a", 1), node("bound", 20)],
        [node("a", 20)],
    ],
    ids=["something is new", "something has changed"],
)
def test_a_stream_that_hides_a_change_makes_its_kind_stale(shown):
    """However often it is opened; and what it hides is not taken from the list."""

    async def script(follower):
        await asyncio.sleep(100)
        assert not follower.informer.is_fresh
        assert "the watch does not report" in follower.informer.problem
        await asyncio.sleep(800)
        assert not follower.informer.is_fresh
        assert follower.changes == ["+a@1"]

    start = [event("ADDED", node("a", 1)), EMPTY, HANG]
    follower = follow(script, answers=repeat(page(shown, 30)), watches=[start, *repeat([HANG], 90)])
    assert all(each.query["resourceVersion"] == "10" for each in watches_of(follower)[1:])


def test_a_deletion_that_watch_after_watch_lacks_is_taken_from_a_new_list():
    """A lost deletion has no version to ask for; else the kind would be stale for ever."""

    async def script(follower):
        await asyncio.sleep(100)
        assert not follower.informer.is_fresh
        assert follower.changes == ["+a@1"]
        await asyncio.sleep(300)
        assert follower.informer.is_fresh
        assert follower.changes == ["+a@1", "-a@1"]

    start = [event("ADDED", node("a", 1)), EMPTY, HANG]
    watches = [start, *repeat([HANG], 90)]
    follow(script, answers=repeat(page([], 30)), watches=[*watches], jitter=0.2)


def test_watches_that_lack_a_deletion_are_counted_anew_from_a_later_version():
    """That version may show it, so it gets as many watches as the first."""

    async def script(follower):
        for _ in range(60):
            await asyncio.sleep(30)
            if sum(map(_begins_anew, follower.transport.requests)) == 2:
                return

    def watches_before_listing(*watches):
        start = [event("ADDED", node("a", 1)), EMPTY, HANG]
        follower = follow(
            script, answers=repeat(page([], 30)), watches=[start, *watches, *repeat([HANG], 90)]
        )
        asked = list(map(_begins_anew, watches_of(follower)))
        return asked.index(True, 1)

    first = watches_before_listing()
    before = repeat([HANG], first // 2)
    assert watches_before_listing(*before, [bookmark(11), HANG]) > first + first // 3


def _begins_anew(request):
    return "sendInitialEvents" in request.query


def test_a_change_that_the_watch_has_passed_over_is_listed_at_once():
    """Its event was lost on the way; a watch from a later version never shows it."""

    async def script(follower):
        await asyncio.sleep(85)
        assert follower.informer.is_fresh

    start = [event("ADDED", node("a", 1)), EMPTY, event("MODIFIED", node("a", 25)), HANG]
    initial = [event("ADDED", node("a", 25)), event("ADDED", node("lost", 20))]
    follower = follow(
        script,
        answers=repeat(page([node("a", 25), node("lost", 20)], 30)),
        watches=[start, [*initial, bookmark(30, initial=True), HANG]],
    )
    assert follower.changes == ["+a@1", "+a@25", "+a@25", "+lost@20"]


def test_a_stream_that_delivers_the_missing_event_makes_its_kind_fresh():
    """The next stream begins where the last one stopped."""

    async def script(follower):
        await asyncio.sleep(74)
        assert len(watches_of(follower)) == 1
        await asyncio.sleep(4)
        assert follower.informer.is_fresh
        assert follower.informer.problem == ""

    follower = follow(
        script,
        answers=[page([node("b", 20)], 30)],
        watches=[[EMPTY, HANG], [event("ADDED", node("b", 20)), HANG]],
    )
    assert follower.changes == ["+b@20"]


def test_a_change_during_a_list_keeps_the_kind_fresh():
    """The list was quicker than the watch."""

    async def script(follower):
        await asyncio.sleep(120)
        assert follower.informer.is_fresh

    follower = follow(
        script,
        answers=[page([node("b", 20)], 30)],
        watches=[[EMPTY, 72, event("ADDED", node("b", 20)), HANG]],
    )
    assert len(watches_of(follower)) == 1


def test_a_watch_without_headers_makes_its_kind_stale_after_a_change():
    """Some proxies hand headers on with the first event only: as long as nothing changes, fine."""
    hanging = []

    class Headless:
        """The second watch and all later ones are never answered."""

        def __init__(self, inner):
            self.inner = inner

        def request(self, request):
            return self.inner.request(request)

        def stream(self, request):
            hanging.append(request)
            return self.inner.stream(request) if len(hanging) == 1 else _Never()

    class _Never:
        async def __aenter__(self):
            await asyncio.Event().wait()

        async def __aexit__(self, *_):
            pass

    async def scenario():

        answers = chain(repeat(page([], 10), 3), repeat(page([node("b", 20)], 30)))
        inner = ScriptedTransport(answers, [[EMPTY]])
        follower = Follower(Headless(inner))
        async with follower.running():
            await asyncio.sleep(220)
            assert follower.informer.is_fresh
            await asyncio.sleep(180)
            assert not follower.informer.is_fresh
            assert len(hanging) > 3

    run_virtual(scenario())


def test_a_kind_that_may_not_be_listed_or_watched_any_more_grows_stale():
    """And is fresh again, by itself, once it may."""

    async def script(follower):
        await asyncio.sleep(95)
        assert not follower.informer.is_fresh
        assert follower.informer.problem
        await asyncio.sleep(400)
        assert follower.informer.is_fresh
        assert follower.informer.problem == ""

    watches = [[EMPTY], *repeat(refusal(403, "no"), 12), [bookmark(400, initial=True), 60]]
    watches += [[bookmark(500 + number), 60] for number in range(9)]
    follow(script, answers=failing(403), watches=watches)


def test_a_hanging_watch_is_closed_when_lists_fail_too():
    """A dead proxy: new connections are tried until one is answered."""

    async def script(follower):
        await asyncio.sleep(100)
        assert not follower.informer.is_fresh
        assert "no list answers" in follower.informer.problem

    follow(script, answers=failing(503), watches=[[EMPTY, HANG], *repeat([HANG], 9)])


def test_a_kind_that_is_listed_for_minutes_is_fresh_when_the_list_is_complete():
    """Pages are progress, and no picture."""

    async def script(follower):
        await asyncio.sleep(190)
        assert not follower.informer.is_fresh
        await follower.informer.synced.wait()
        assert follower.informer.age_seconds == 0

    follow(
        script,
        answers=[100, page([node("a", 1)], 10, "more"), 100, page([node("b", 2)], 10)],
        watches=[refusal(422), [HANG]],
    )


def test_server_error_sent_twice_for_one_version_lists_again():
    """It cannot go on from there, whatever it says."""
    error = event("ERROR", {"kind": "Status", "code": 500, "message": "etcd says no"})

    async def script(follower):
        await asyncio.sleep(20)

    follower = follow(
        script,
        answers=[page([], 10), page([node("b", 12)], 20)],
        watches=[[error], [event("ADDED", node("a", 11)), error], [error], [HANG]],
        watch_list=False,
    )
    versions = [each.query["resourceVersion"] for each in watches_of(follower)]
    assert versions == ["10", "10", "11", "20"]
    assert follower.changes == ["+a@11", "-a@11", "+b@12"]


class Filed(Follower):
    """A follower whose state is kept."""

    def __init__(self, *args, **options):
        self.state = StateBuilder({})
        super().__init__(*args, **options)

    def sink(self, change):
        super().sink(change)
        self.state.apply_event(change)

    def nodes(self):
        return {
            name: result.resource_version for name, result in self.state.snapshot().nodes.items()
        }


def restored(lists, watches):
    """Follow a server through a restore, and return what the state holds at the end."""

    async def scenario():

        follower = Filed(ScriptedTransport(lists, watches), watch_list=False)
        async with follower.running():
            await asyncio.sleep(200)
        return follower

    return run_virtual(scenario())


EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
BEFORE = [node("kept", 5), node("changed", 90), node("gone", 80), node("anew", 95, uid="later")]
AFTER = [
    node("kept", 5),
    node("changed", 40),
    node("deleted", 30),
    node("anew", 20, uid="earlier"),
]


@pytest.mark.parametrize("version", [50, 1_000_000], ids=["numbered on", "numbered far beyond"])
def test_the_state_takes_the_word_of_a_restored_server(version):
    """Older objects, other UIDs, and those back that were deleted after the backup."""
    deleted = [event("ADDED", node("deleted", 98)), event("DELETED", node("deleted", 99))]
    end = repeat(page(AFTER, version))
    follower = restored(
        chain([page(BEFORE, 97)], end), [[*deleted, EXPIRED], [HANG], [HANG], [HANG]]
    )
    assert follower.nodes() == {"kept": 5, "changed": 40, "deleted": 30, "anew": 20}
    assert follower.informer.is_fresh


def test_restored_server_behind_a_watch_is_detected_by_its_silence():
    """It takes a version of the future and says nothing until it has come so far."""
    follower = restored(
        chain([page(BEFORE, 97)], repeat(page(AFTER, 50))), [[HANG], [HANG], [HANG], [HANG]]
    )
    assert follower.nodes() == {"kept": 5, "changed": 40, "deleted": 30, "anew": 20}
    assert follower.informer.resource_version == "50"


def test_changes_after_a_restore_are_observed():
    """Versions count from the listing on."""
    follower = restored(
        [page(BEFORE, 97), page(AFTER, 50)],
        [[EXPIRED], [event("MODIFIED", node("changed", 60)), *[60, bookmark(70)] * 4]],
    )
    assert follower.nodes()["changed"] == 60


def test_objects_written_before_a_restore_are_removed():
    """Its version is beyond the listing's, and means nothing there."""

    async def scenario():

        lists = [page([node("a", 90)], 97), page([node("a", 40)], 50)]
        follower = Follower(ScriptedTransport(lists, [[5, EXPIRED], [HANG]]), watch_list=False)
        async with follower.running():
            await follower.informer.synced.wait()
            follower.informer.note_written(written("written", 98))
            await asyncio.sleep(30)
        return follower

    assert "-written@98" in run_virtual(scenario()).changes


def test_contact_times_leave_time_for_a_check():
    """A kind that is stale before its contact is checked would wait for nothing."""
    with pytest.raises(ValueError, match="0 < reply < quiet < fresh"):
        ContactTimes(quiet_seconds=90)


def test_list_of_a_selection_is_passed_on_ahead_of_the_watch():
    """Its objects are treated like our own writes: a list without them removes them."""

    async def script(follower):
        await follower.informer.synced.wait()
        result, unreadable = await follower.informer.read_now("metadata.name=b")
        assert ([each.name for each in result], unreadable) == (["b"], [])
        assert follower.changes == ["+b@20"]
        await asyncio.sleep(20)

    follower = follow(
        script,
        answers=[page([], 10), page([node("b", 20)], 30), page([], 40)],
        watches=[[10, EXPIRED], [HANG]],
        watch_list=False,
    )
    assert follower.changes == ["+b@20", "-b@20"]


def test_a_selected_list_older_than_the_watch_is_ignored():
    """Objects that it shows and the informer lacks were deleted since."""

    async def script(follower):
        await asyncio.sleep(2)
        await follower.informer.read_now("metadata.name=b")

    follower = follow(
        script,
        answers=[page([], 10), page([node("b", 20)], 30)],
        watches=[
            [event("ADDED", node("b", 20)), event("DELETED", node("b", 35)), HANG],
        ],
        watch_list=False,
    )
    assert follower.changes == ["+b@20", "-b@35"]


def test_an_informer_says_when_its_kind_is_fresh_again():
    """Once for each time without contact, the first list included."""
    fresh = []

    async def script(follower):
        await asyncio.sleep(300)

    broken = repeat(BROKEN, 8)
    marks = [step for number in range(20, 26) for step in (bookmark(number), 40)]
    follow(
        script,
        watches=[[EMPTY], *broken, [*marks, HANG]],
        on_fresh=lambda: fresh.append(asyncio.get_running_loop().time()),
        jitter=1.0,
    )
    assert [round(moment) for moment in fresh] == [0, 140]


@pytest.mark.parametrize(
    ("times", "recovered_within"), [(ContactTimes(), 71), (ContactTimes(proves_recovery=True), 9)]
)
def test_a_quiet_kind_recovers_sooner_where_people_wait(times, recovered_within):
    """By a list that equals the held objects; the problem of the broken watch is over by it."""

    async def script(follower):
        await asyncio.sleep(3)
        assert follower.informer.problem == "the watch broke"
        await asyncio.sleep(recovered_within - 3)
        assert follower.informer.problem == ""
        assert follower.changes == ["+a@1"]

    start = [event("ADDED", node("a", 1)), EMPTY, 2, BROKEN]
    follower = follow(
        script,
        answers=repeat(page([node("a", 1)], 300)),
        watches=[start, [HANG]],
        times=times,
    )
    assert len(follower.transport.requests) == 3


def test_a_controller_spares_a_server_that_has_just_come_back():
    async def script(follower):
        await asyncio.sleep(60)
        assert follower.informer.problem == "the watch broke"

    start = [event("ADDED", node("a", 1)), EMPTY, 2, BROKEN]
    follow(script, answers=repeat(page([node("a", 1)], 300)), watches=[start, [HANG]])
