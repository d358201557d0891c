"""Termination in batches: refused instances hold back no other, now and later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from tests.properties import with_examples
from tests.provider.small_cloud import Clock, SmallInstance

STARTED = TerminationStatus.STARTED


@dataclass
class Refusal:
    """A refused call."""

    message: str


class CallRefusedError(CloudProviderError):
    """A call that was refused because of some of its instances."""


class Calls:
    """A cloud that terminates all instances of a call or none."""

    def __init__(self):
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.error: CloudProviderError | None = None
        self.names_instances = False
        self.sent: list[list[str]] = []
        self.terminated: set[str] = set()
        self.on_send = lambda: None

    def known_outcome(self, instance):
        return STARTED if instance.is_leaving else None

    def send(self, instance_ids):
        self.sent.append(list(instance_ids))
        self.on_send()
        if self.error is not None:
            raise self.error
        bad = sorted((self.refused | self.unknown) & set(instance_ids))
        if bad:
            raise CallRefusedError(f"no: {bad[0]}" if self.names_instances else "no")
        self.terminated |= set(instance_ids)

    def read_refusal(self, error):
        return Refusal(str(error)) if isinstance(error, (CallRefusedError, AuthError)) else None

    def refused_outcome(self, instance_id, refusal, *, is_alone):
        if instance_id in self.unknown:
            return STARTED
        if is_alone:
            return AuthError(refusal.message, action="terminate")
        return TerminationRefusedError(f"{instance_id}: {refusal.message}")


def names(count):
    return [f"i-{number:03}" for number in range(count)]


def instances(ids):
    return {name: SmallInstance(id=name) for name in ids}


class Stage:
    """A terminator over such a cloud."""

    def __init__(self, *, pause_seconds=0, max_refusals=6, batch_size=8, calls_at_once=1):
        self.calls, self.clock = Calls(), Clock()
        self.terminator = BatchTerminator(
            self.calls,
            batch_size=batch_size,
            max_refusals=max_refusals,
            pause=timedelta(seconds=pause_seconds),
            monotonic=self.clock.monotonic,
            calls_at_once=calls_at_once,
        )

    def start(self, ids):
        return self.terminator.start(instances(ids))


def test_no_call_takes_more_than_a_batch():
    stage = Stage()

    assert set(stage.start(names(20)).values()) == {STARTED}
    assert [len(each) for each in stage.calls.sent] == [8, 8, 4]


def test_calls_are_made_side_by_side():
    """None of them returns before all have been made."""
    stage = Stage(batch_size=1, calls_at_once=4)
    together = Barrier(4, timeout=5)
    stage.calls.on_send = together.wait

    assert set(stage.start(names(4)).values()) == {STARTED}
    assert stage.calls.terminated == set(names(4))


def test_an_instance_that_another_thread_terminates_is_not_sent_again():
    stage = Stage(pause_seconds=60)
    outcomes = []
    stage.calls.on_send = lambda: outcomes.append(stage.start(names(1)))

    assert stage.start(names(1)) == dict.fromkeys(names(1), STARTED)
    assert outcomes == [dict.fromkeys(names(1), STARTED)]
    assert stage.calls.sent == [names(1)]


def test_a_recorded_outcome_costs_no_call():
    stage = Stage()

    assert stage.terminator.start({"i": SmallInstance(id="i", is_leaving=True)}) == {"i": STARTED}
    assert stage.calls.sent == []


@pytest.mark.parametrize("names_instances", [True, False])
def test_a_refused_instance_has_calls_of_its_own_from_then_on(names_instances):
    stage = Stage()
    stage.calls.refused, stage.calls.names_instances = {"i-003"}, names_instances
    outcomes = stage.start(names(8))
    assert isinstance(outcomes.pop("i-003"), TerminationRefusedError)
    assert set(outcomes.values()) == {STARTED}

    stage.calls.sent.clear()
    again = stage.start(["i-003", "i-100", "i-101"])
    assert isinstance(again["i-003"], TerminationRefusedError), "others were terminated before"
    assert stage.calls.sent == [["i-100", "i-101"], ["i-003"]]

    stage.calls.refused.clear()
    assert stage.start(["i-003"]) == {"i-003": STARTED}
    stage.calls.sent.clear()
    stage.start(["i-003", "i-004"])
    assert stage.calls.sent == [["i-003", "i-004"]], "nothing is held against it any more"


def test_within_the_pause_neither_a_started_nor_a_refused_instance_is_sent_again():
    stage = Stage(pause_seconds=60)
    stage.calls.refused = {"i-001"}
    first = stage.start(names(2))
    stage.calls.sent.clear()
    stage.clock.seconds = 59

    assert stage.start(names(2)) == first
    assert stage.calls.sent == []
    stage.clock.seconds = 60
    stage.start(names(2))
    assert stage.calls.sent == [["i-000"], ["i-001"]]


def test_a_call_without_an_answer_ends_the_attempt_and_is_held_against_no_instance():
    stage = Stage()
    stage.calls.error = CloudProviderError("no answer")
    outcomes = stage.start(names(8))
    assert {str(outcome) for outcome in outcomes.values()} == {"no answer"}
    assert len(stage.calls.sent) == 1

    stage.calls.error = None
    assert set(stage.start(names(8)).values()) == {STARTED}
    assert len(stage.calls.sent) == 2


def test_if_no_call_is_permitted_every_instance_gets_that_error_for_few_calls():
    stage = Stage(batch_size=100)
    stage.calls.error = AuthError("denied", action="terminate")

    outcomes = stage.start(names(100))

    assert {type(outcome) for outcome in outcomes.values()} == {AuthError}
    assert len(stage.calls.sent) == 6


def test_an_instance_that_the_cloud_does_not_list_counts_as_started():
    stage = Stage()
    stage.calls.unknown, stage.calls.names_instances = {"i-000"}, True

    assert set(stage.start(names(3)).values()) == {STARTED}
    assert stage.calls.terminated == {"i-001", "i-002"}


def test_the_record_of_a_deleted_instance_is_dropped():
    stage = Stage(pause_seconds=60)
    stage.calls.refused = {"i-001"}
    stage.start(names(3))
    assert stage.terminator.is_started("i-000")

    stage.terminator.forget("i-000")
    stage.terminator.keep_only({"i-002"})

    assert [stage.terminator.is_started(name) for name in names(3)] == [False, False, True]
    stage.calls.sent.clear()
    stage.start(names(3))
    assert stage.calls.sent[0] == ["i-000", "i-001"]


@with_examples(100)
@given(
    refused=st.sets(st.integers(0, 39)),
    names_instances=st.booleans(),
    pause_seconds=st.sampled_from([0, 60]),
)
def test_all_that_may_be_terminated_end_within_a_few_attempts(
    refused, names_instances, pause_seconds
):
    stage = Stage(pause_seconds=pause_seconds, batch_size=40, max_refusals=8)
    stage.calls.refused = {f"i-{number:03}" for number in refused}
    stage.calls.names_instances = names_instances
    ids = names(40)

    for _ in range(40):
        outcomes = stage.start([name for name in ids if name not in stage.calls.terminated])
        stage.clock.seconds += 5
        assert all(
            outcome is STARTED or isinstance(outcome, CloudProviderError)
            for outcome in outcomes.values()
        )
        assert not any(outcomes.get(name) is STARTED for name in stage.calls.refused)

    assert stage.calls.terminated == set(ids) - stage.calls.refused
    assert len(stage.calls.sent) <= 40 * (8 + 8)
