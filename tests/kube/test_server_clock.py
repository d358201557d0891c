"""The clock that follows the API server's `Date` headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from karpenter_core.kube.server_clock import CONFIRMATIONS, TOLERANCE, ServerClock

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HostClock:
    """A host whose wall clock may be wrong by `lead_seconds`; `server` is the true time."""

    def __init__(self, lead_seconds=0.0):
        self.lead_seconds = lead_seconds
        self.seconds = 1000.25

    @property
    def server(self):
        return START + timedelta(seconds=self.seconds)

    def now(self):
        return self.server + timedelta(seconds=self.lead_seconds)

    def monotonic(self):
        return self.seconds

    async def sleep(self, seconds):
        self.seconds += seconds


def answer(clock, host, *, before=0.01, after=0.01, wrong_seconds=0.0):
    """Let the server answer a request: it is so long on its way, and so is the answer."""
    sent = host.monotonic()
    host.seconds += before
    date = format_datetime(host.server + timedelta(seconds=wrong_seconds), usegmt=True)
    host.seconds += after
    clock.observe(date, sent=sent)


def error_seconds(clock, host):
    return (clock.now() - host.server).total_seconds()


def test_the_host_clock_is_used_before_the_first_answer():
    host = HostClock(lead_seconds=300)
    assert ServerClock(host).now() == host.now()


@pytest.mark.parametrize("lead", [0.0, 0.4, -0.4, 1.5])
def test_a_host_clock_within_the_tolerance_is_followed_exactly(lead):
    host = HostClock(lead)
    clock = ServerClock(host)
    answer(clock, host)
    assert clock.now() == host.now()
    assert clock.host_offset_seconds() == 0


@given(
    lead=st.floats(-86_400, 86_400),
    latencies=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=12),
)
def test_the_time_is_never_ahead_of_the_server_by_more_than_the_tolerance(lead, latencies):
    host = HostClock(lead)
    clock = ServerClock(host)
    for before, after in latencies:
        answer(clock, host, before=before, after=after)
        host.seconds += 7.3
    quickest = min(sum(each) for each in latencies[:1])
    assert (
        error_seconds(clock, host)
        <= TOLERANCE.total_seconds() + max(before for before, _ in latencies) + 1
    )
    assert error_seconds(clock, host) >= -(TOLERANCE.total_seconds() + quickest + 1)


@pytest.mark.parametrize("lead", [-3600, 3600, 300, -90])
def test_a_wrong_host_clock_is_replaced_by_the_server_time(lead):
    host = HostClock(lead)
    clock = ServerClock(host)
    answer(clock, host)
    assert -1.1 <= error_seconds(clock, host) <= 0
    assert clock.host_offset_seconds() == pytest.approx(-lead, abs=1.1)


def test_further_answers_make_the_time_of_a_wrong_host_more_precise():
    host = HostClock(3600)
    clock = ServerClock(host)
    for _ in range(40):
        answer(clock, host)
        host.seconds += 0.37
    assert -0.1 <= error_seconds(clock, host) <= 0


@pytest.mark.parametrize("jump", [-7200, 7200])
def test_setting_the_host_clock_does_not_change_the_time(jump):
    host = HostClock()
    clock = ServerClock(host)
    answer(clock, host)
    host.lead_seconds = jump
    assert error_seconds(clock, host) == 0
    for _ in range(5):
        host.seconds += 10
        answer(clock, host)
        assert error_seconds(clock, host) == 0
    host.lead_seconds = 0
    answer(clock, host)
    assert clock.now() == host.now()


def test_one_wrong_header_does_not_change_the_time():
    host = HostClock()
    clock = ServerClock(host)
    answer(clock, host)
    for _ in range(10):
        for _ in range(CONFIRMATIONS - 1):
            answer(clock, host, wrong_seconds=-4000)
        assert error_seconds(clock, host) == 0
        answer(clock, host)


@pytest.mark.parametrize("change", [-900, 900])
def test_a_server_clock_that_was_set_is_followed_after_a_few_answers(change):
    host = HostClock()
    clock = ServerClock(host)
    answer(clock, host)
    for _ in range(CONFIRMATIONS - 1):
        answer(clock, host, wrong_seconds=change)
        assert error_seconds(clock, host) == 0
    answer(clock, host, wrong_seconds=change)
    assert error_seconds(clock, host) == pytest.approx(change, abs=1.1)


@pytest.mark.parametrize("date", ["", "tomorrow", "Thu, 99 Jan 2026 12:00:00 GMT"])
def test_a_header_that_is_no_date_is_ignored(date):
    host = HostClock(3600)
    clock = ServerClock(host)
    clock.observe(date, sent=host.monotonic())
    assert clock.now() == host.now()


def test_a_wrong_host_clock_is_logged_once():
    host = HostClock(3600)
    with capture_logs() as logs:
        clock = ServerClock(host)
        for _ in range(5):
            answer(clock, host)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert logs[0]["host_is_ahead_seconds"] in {3600, 3601}
