"""Scripts are fetched again when instances stop registering: their tokens may have ended (section 5.3)."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.bootstrap.registrations import PendingRegistrations
from providers.alibabacloud.tests.manual_clock import HandClock


class Scripts:
    """Records the registrations and failures that were reported."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def note_registered(self) -> None:
        self.reports.append("registered")

    def note_unregistered(self) -> None:
        self.reports.append("unregistered")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def scripts():
    return Scripts()


@pytest.fixture
def registrations(scripts, clock):
    return PendingRegistrations(scripts, clock)


def test_a_late_end_without_registration_is_reported_once(registrations, scripts, clock):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=15)

    registrations.note_terminated(["r.i-1"])
    registrations.note_terminated(["r.i-1"])

    assert scripts.reports == ["unregistered"]


def test_a_registration_is_reported_once_and_the_instance_may_end(registrations, scripts, clock):
    registrations.note_launched(["r.i-1"])
    registrations.note_registered("r.i-1")
    registrations.note_registered("r.i-1")
    clock.forward(minutes=15)
    registrations.note_terminated(["r.i-1"])

    assert scripts.reports == ["registered"]


def test_early_ends_and_instances_of_another_process_report_no_failure(
    registrations, scripts, clock
):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=9)

    registrations.note_terminated(["r.i-1", "r.i-another"])
    registrations.note_registered("r.i-another")

    assert scripts.reports == []


def test_a_repeated_launch_keeps_the_time_of_its_first_answer(registrations, scripts, clock):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=8)
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=8)
    registrations.note_terminated(["r.i-1"])

    assert scripts.reports == ["unregistered"]


@pytest.mark.parametrize(
    ("minutes", "told"), [(9.9, []), (10, ["unregistered"]), (120, ["unregistered"]), (121, [])]
)
def test_an_instance_that_did_not_join_counts_for_two_hours(
    registrations, scripts, clock, minutes, told
):
    """The next launch forgets older ones, of which nobody told the end."""
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=minutes)
    registrations.note_launched(["r.i-2"])
    registrations.note_terminated(["r.i-1"])

    assert scripts.reports == told


def test_without_scripts_nothing_follows(clock):
    registrations = PendingRegistrations(None, clock)
    registrations.note_launched(["r.i-1", "r.i-2"])
    registrations.note_registered("r.i-1")
    clock.forward(minutes=15)
    registrations.note_terminated(["r.i-2"])
