"""The API server's clock is known from the Date headers of its answers."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.server_clock import (
    CONFIRMATIONS,
    DRIFT,
    MAX_OFFSET,
    ClockBounds,
    ServerClock,
)
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.testing.builders import EPOCH
from tests.controllers.clocks import TwoClocks
from tests.kube.scripted import ScriptedTransport
from tests.properties import with_examples

START = 1000.0
"""The monotonic time at which `TwoClocks` shows EPOCH."""


class Server:
    """An API server whose clock is ahead of the client's, and the client's estimate of it."""

    def __init__(self, **ahead):
        self.own = TwoClocks()
        self.ahead = timedelta(**ahead)
        self.clock = ServerClock(self.own)

    @property
    def true_now(self):
        return EPOCH + timedelta(seconds=self.own.monotonic() - START) + self.ahead

    @property
    def error_seconds(self):
        """Seconds by which the estimate is later than the truth."""
        return (self.clock.now() - self.true_now).total_seconds()

    def answer(self, *, there=0.0, back=0.0, status=200, **headers):
        """Answer a request that takes so many seconds there and back."""
        sent = self.own.monotonic()
        self.own.passes(there)
        date = format_datetime(self.true_now, usegmt=True)
        self.own.passes(back)
        self.clock.note_answer(status, {"date": date, **headers}, sent=sent)


@given(
    offset=st.floats(-40_000, 40_000),
    answers=st.lists(
        st.tuples(st.floats(0, 600), st.floats(0, 30), st.floats(0, 30)), min_size=1, max_size=20
    ),
    later=st.floats(0, 7200),
)
@with_examples(200)
def test_error_is_within_a_second_and_the_shortest_latency(offset, answers, later):
    server = Server(seconds=offset)
    bound = math.inf
    for pause, there, back in answers:
        server.own.passes(pause)
        server.answer(there=there, back=back)
        bound = min(bound + 2 * DRIFT * (pause + there + back), 1.0 + there + back)
        assert abs(server.error_seconds) <= bound + 1e-4
    server.own.passes(later)
    assert abs(server.error_seconds) <= bound + 2 * DRIFT * later + 1e-4


@given(
    offset=st.floats(-40_000, 40_000),
    drift=st.floats(-DRIFT / 2, DRIFT / 2),
    answers=st.lists(
        st.tuples(st.floats(0, 600), st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=20
    ),
)
@with_examples(200)
def test_bounds_hold_the_truth_although_the_clocks_come_apart(offset, drift, answers):
    bounds, now = None, START

    def server_time():
        return 1.9e9 + now * (1 + drift) + offset

    for pause, there, back in answers:
        sent = now + pause
        now = sent + there
        date = math.floor(server_time())
        now += back
        answer = ClockBounds.of_answer(date, sent=sent, received=now)
        bounds = answer if bounds is None else bounds.narrowed(answer)
        assert bounds is not None
        lead = server_time() - now
        assert bounds.earliest - 1e-3 <= lead <= bounds.latest + 1e-3


@given(
    offset=st.one_of(st.floats(-40_000, -40), st.floats(40, 40_000)),
    answers=st.lists(
        st.tuples(st.floats(0, 600), st.floats(0, 15), st.floats(0, 15)), min_size=1, max_size=20
    ),
)
@with_examples(200)
def test_no_deadline_comes_early_by_a_clock_that_is_wrong(offset, answers):
    server = Server(seconds=offset)
    for pause, there, back in answers:
        server.own.passes(pause)
        server.answer(there=there, back=back)
        assert server.error_seconds <= 1e-4


def test_many_answers_tell_more_than_the_resolution_of_a_date():
    server = Server(minutes=5)
    for _ in range(200):
        server.own.passes(1.013)
        server.answer(there=0.005, back=0.005)
    assert -0.2 < server.error_seconds <= 0


def test_bounds_that_meet_in_one_time_agree_on_it():
    early, late = ClockBounds(1.0, 2.0, START), ClockBounds(2.0, 3.0, START)
    assert early.narrowed(late) == late.narrowed(early) == ClockBounds(2.0, 2.0, START)


def test_a_clock_within_the_bounds_is_used_unchanged():
    server = Server(seconds=0.3)
    server.answer()
    assert (server.clock.now(), server.clock.offset_seconds) == (server.own.now(), 0.0)


def test_before_the_first_answer_the_time_is_that_of_this_process():
    server = Server(hours=5)
    assert (server.clock.now(), server.clock.offset_seconds) == (server.own.now(), 0.0)


@pytest.mark.parametrize("header", ["", "yesterday", "Mon, 99 Nov 2026 99:00:00 GMT", "-1"])
def test_answers_without_a_readable_date_tell_nothing(header):
    server = Server(hours=5)
    server.clock.note_answer(200, {"date": header} if header else {}, sent=START)
    assert server.clock.offset_seconds == 0.0


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima"])
def test_a_date_without_a_zone_is_in_utc_wherever_this_host_is(monkeypatch, zone):
    """RFC 5322 writes `-0000` for a time whose zone is not told; HTTP knows none but GMT."""
    server = Server(hours=3)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        date = format_datetime(server.true_now.replace(tzinfo=None))
        assert date.endswith("-0000")
        server.clock.note_answer(200, {"date": date}, sent=START)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert abs(server.error_seconds) < 2


@pytest.mark.parametrize("answer", [{"status": 502}, {"status": 403}, {"age": "90"}])
def test_dates_of_proxies_and_caches_tell_nothing(answer):
    server = Server(hours=5)
    server.answer(**answer)
    assert server.clock.offset_seconds == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_an_absurd_date_is_refused_and_logged_once(sign):
    server = Server(seconds=sign * (MAX_OFFSET.total_seconds() + 60))
    with capture_logs() as logs:
        server.answer()
        server.answer()
    assert server.clock.offset_seconds == 0.0
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "refused" in logs[0]["event"]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_date_at_the_greatest_offset_counts(sign):
    server = Server(seconds=sign * MAX_OFFSET.total_seconds())
    server.answer()
    assert server.clock.offset_seconds == sign * MAX_OFFSET.total_seconds()


def test_setting_the_wall_clock_of_this_host_changes_nothing():
    server = Server()
    server.answer()
    for by in ({"hours": 6}, {"hours": -12}, {"minutes": 3}):
        server.own.is_set(**by)
        assert -1.0 <= server.error_seconds <= 0
    server.own.is_set(hours=6, minutes=-3)
    assert server.error_seconds == 0


def test_a_single_contradiction_changes_nothing():
    server = Server(minutes=5)
    server.answer()
    before = server.clock.offset_seconds
    for _ in range(10):
        server.ahead += timedelta(hours=1)
        for _ in range(CONFIRMATIONS - 1):
            server.answer()
        server.ahead -= timedelta(hours=1)
        assert server.clock.offset_seconds == before
        server.answer()


def test_contradictions_that_do_not_agree_change_nothing():
    server = Server(minutes=5)
    server.answer()
    before = server.clock.offset_seconds
    for hours in range(1, 10):
        server.ahead = timedelta(hours=hours)
        server.answer()
    assert server.clock.offset_seconds == before


def test_an_api_server_whose_clock_was_set_is_followed():
    server = Server(minutes=5)
    server.answer()
    server.ahead = timedelta(minutes=-7)
    for _ in range(CONFIRMATIONS):
        server.own.passes(2)
        server.answer()
    assert -1.0 <= server.error_seconds <= 0


def test_a_wrong_clock_is_logged_once():
    server = Server(minutes=5)
    with capture_logs() as logs:
        for _ in range(5):
            server.answer()
    (told,) = logs
    assert told["log_level"] == "warning"
    assert 299 <= told["seconds"] <= 300


def test_each_step_of_the_wall_clock_is_logged_and_that_it_is_right_again():
    server = Server()
    with capture_logs() as logs:
        for step in ({"hours": 5}, {"seconds": 3}, {"hours": -5}, {"hours": -2}, {"hours": 2}):
            server.own.is_set(**step)
            server.answer()
            server.answer()
    assert [(line["log_level"], round(line["seconds"], -2)) for line in logs] == [
        ("warning", -18000),
        ("info", 0),
        ("warning", 7200),
        ("info", 0),
    ]


def test_a_small_difference_is_not_logged():
    server = Server(seconds=3)
    with capture_logs() as logs:
        server.answer()
    assert logs == []
    assert 2 <= server.clock.offset_seconds <= 3


@pytest.mark.parametrize("watches", [False, True])
async def test_lists_and_watches_teach_the_clock(watches):
    own = TwoClocks()
    clock = ServerClock(own)
    date = format_datetime(own.now() + timedelta(minutes=5), usegmt=True)
    answer = ApiResponse(status=200, body=b"{}", headers={"date": date})
    transport = ScriptedTransport([answer], [answer])
    api = KubeApi(transport, clock=own, server_clock=clock)
    if watches:
        async with api.watch(NODES):
            pass
    else:
        await api.list_page(NODES)
    assert clock.offset_seconds == pytest.approx(300)


async def test_waiting_is_by_the_clock_of_this_process():
    server = Server(hours=5)
    server.answer()
    before = server.clock.monotonic()
    await server.clock.sleep(7)
    assert server.clock.monotonic() - before == server.own.monotonic() - before == 7
