"""Scripts are fetched anew when machines stop joining: their tokens may have ended (section 5.3)."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.bootstrap.registrations import PendingRegistrations
from providers.alibabacloud.tests.hand_clock import HandClock


class Scripts:
    """What was told of machines."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note_registered(self) -> None:
        self.told.append("registered")

    def note_unregistered(self) -> None:
        self.told.append("unregistered")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def scripts():
    return Scripts()


@pytest.fixture
def registrations(scripts, clock):
    return PendingRegistrations(scripts, clock)


def test_a_machine_that_ends_late_without_having_joined_is_told_of_once(
    registrations, scripts, clock
):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=15)

    registrations.note_terminated(["r.i-1"])
    registrations.note_terminated(["r.i-1"])

    assert scripts.told == ["unregistered"]


def test_a_machine_that_joined_is_told_of_once_and_may_end(registrations, scripts, clock):
    registrations.note_launched(["r.i-1"])
    registrations.note_registered("r.i-1")
    registrations.note_registered("r.i-1")
    clock.forward(minutes=15)
    registrations.note_terminated(["r.i-1"])

    assert scripts.told == ["registered"]


def test_nothing_follows_from_machines_that_end_early_or_that_another_process_launched(
    registrations, scripts, clock
):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=9)

    registrations.note_terminated(["r.i-1", "r.i-another"])
    registrations.note_registered("r.i-another")

    assert scripts.told == []


def test_a_launch_that_is_found_again_began_when_it_was_first_answered(
    registrations, scripts, clock
):
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=8)
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=8)
    registrations.note_terminated(["r.i-1"])

    assert scripts.told == ["unregistered"]


@pytest.mark.parametrize(
    ("minutes", "told"), [(9.9, []), (10, ["unregistered"]), (120, ["unregistered"]), (121, [])]
)
def test_a_machine_that_did_not_join_counts_for_two_hours(
    registrations, scripts, clock, minutes, told
):
    """The next launch forgets older ones, of which nobody told the end."""
    registrations.note_launched(["r.i-1"])
    clock.forward(minutes=minutes)
    registrations.note_launched(["r.i-2"])
    registrations.note_terminated(["r.i-1"])

    assert scripts.told == told


def test_without_scripts_nothing_follows(clock):
    registrations = PendingRegistrations(None, clock)
    registrations.note_launched(["r.i-1", "r.i-2"])
    registrations.note_registered("r.i-1")
    clock.forward(minutes=15)
    registrations.note_terminated(["r.i-2"])
