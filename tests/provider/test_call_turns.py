"""After a pause, the calls of an operation class take turns until the cloud has answered enough."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from karpenter_core.errors import ThrottledError
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import AttemptFailure
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.token_bucket import TokenBucket
from tests.provider.test_calls import (
    REFUSED,
    THROTTLED,
    UNANSWERED,
    Attempts,
    HttpError,
    VirtualTime,
    caller_of,
    classify,
)

LONGEST = 1000.0


@pytest.fixture
def clock():
    return VirtualTime()


@pytest.fixture
def limits(clock):
    return OperationLimits(monotonic=clock.monotonic, first_turn_seconds=0.1)


def refuse(limits, seconds, operation_class="writes"):
    limits.pause(
        operation_class, AttemptFailure(kind=THROTTLED, retry_after=timedelta(seconds=seconds))
    )


def waits(limits, count, operation_class="writes"):
    return [limits.take_turn(operation_class, longest_seconds=LONGEST) for _ in range(count)]


def test_calls_that_waited_for_a_pause_follow_each_other_by_its_length(limits):
    refuse(limits, 1.5)
    assert waits(limits, 3) == [1.5, 3.0, 4.5]


def test_a_class_that_was_not_refused_takes_no_turns(limits):
    refuse(limits, 1.5)
    assert waits(limits, 3, "reads") == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seconds", [0, -5])
def test_a_refusal_without_a_wait_makes_no_turns(limits, seconds):
    refuse(limits, seconds)
    assert waits(limits, 3) == [0.0, 0.0, 0.0]


def test_after_a_long_pause_calls_follow_each_other_within_seconds(limits):
    """A cloud that counts calls in windows permits many after one: its wait is no rate."""
    refuse(limits, 120)
    assert waits(limits, 3) == [120.0, 122.0, 124.0]


def refuse_without_a_time(limits, *, turn_at=None):
    limits.pause("writes", AttemptFailure(kind=THROTTLED), turn_at=turn_at)


def test_a_refusal_that_names_no_time_makes_turns_at_once(limits):
    """EC2 names none; the calls of all threads together would be refused again."""
    refuse_without_a_time(limits)
    assert waits(limits, 3) == pytest.approx([0.1, 0.2, 0.3])
    assert waits(limits, 3, "reads") == [0.0, 0.0, 0.0]


def test_calls_wait_independently_if_the_cloud_names_no_time(clock):
    limits = OperationLimits(monotonic=clock.monotonic)
    refuse_without_a_time(limits)
    assert waits(limits, 3) == [0.0, 0.0, 0.0]


def test_each_further_refusal_without_a_time_doubles_the_turns(clock, limits):
    gaps = []
    for _ in range(7):
        refuse_without_a_time(limits)
        first, second = waits(limits, 2)
        gaps.append(second - first)
        clock.now += second
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_calls_that_were_under_way_do_not_slow_a_class_down_again(clock, limits):
    """Twenty threads are refused together: that is one refusal."""
    turn_at = clock.now
    clock.now += 0.05
    for _ in range(20):
        refuse_without_a_time(limits, turn_at=turn_at)
    first, second = waits(limits, 2)
    assert second - first == pytest.approx(0.1)


def test_a_class_begins_anew_a_minute_after_its_last_refusal(clock, limits):
    for _ in range(5):
        refuse_without_a_time(limits)
    clock.now += 61
    refuse_without_a_time(limits)
    first, second = waits(limits, 2)
    assert second - first == pytest.approx(0.1)


def test_answers_bring_turns_closer_until_there_are_none(clock, limits):
    refuse(limits, 1.0)
    clock.now += 1
    gaps = []
    for _ in range(60):
        first, second = waits(limits, 2)
        gaps.append(second - first)
        clock.now += second
        limits.note_answer("writes")
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] == pytest.approx(1.0)
    assert gaps[10] == pytest.approx(0.9**10)
    assert gaps[-1] == 0.0


def test_a_further_refusal_makes_turns_long_again(clock, limits):
    refuse(limits, 1.0)
    clock.now += 1
    for _ in range(10):
        limits.note_answer("writes")
    refuse(limits, 1.0)
    first, second = waits(limits, 2)
    assert second - first == pytest.approx(1.0)


def test_turns_end_a_minute_after_the_last_refusal(clock, limits):
    refuse(limits, 1.0)
    clock.now += 61
    assert waits(limits, 3) == [0.0, 0.0, 0.0]


def test_a_turn_that_is_too_far_away_is_not_taken(limits):
    refuse(limits, 1.0)
    assert limits.take_turn("writes", longest_seconds=0.5) == 1.0
    assert waits(limits, 2) == [1.0, 2.0]


def test_a_call_is_not_sent_if_its_turn_is_too_far_away(clock):
    limits = OperationLimits(monotonic=clock.monotonic)
    caller = caller_of(clock, limits=limits, policy=RetryPolicy(longest_backoff_seconds=5))
    refuse(limits, 2)
    waits(limits, 4)
    late = Attempts(clock)

    with pytest.raises(ThrottledError, match="take turns") as refused:
        caller.call(late, action="a", operation_class="writes")

    assert late.times == []
    assert refused.value.retry_after > timedelta(seconds=5)


@pytest.mark.parametrize(
    ("status", "kind", "is_answer"), [(409, REFUSED, True), (0, UNANSWERED, False)]
)
def test_a_refusal_for_another_reason_is_an_answer_and_silence_is_none(
    clock, status, kind, is_answer
):
    assert classify(HttpError(status)).kind is kind
    limits = OperationLimits(monotonic=clock.monotonic)
    refuse(limits, 1.0)
    with pytest.raises(Exception, match="a"):
        caller_of(clock, limits=limits, policy=RetryPolicy(transient_attempts=1)).call(
            Attempts(clock, HttpError(status)), action="a", operation_class="writes"
        )
    first, second = waits(limits, 2)
    assert (second - first < 0.95) is is_answer


@pytest.mark.parametrize("asked_seconds", [0.05, None])
def test_many_threads_beyond_the_rate_are_refused_less_often_than_they_call(asked_seconds):
    """A cloud with a bucket: without turns, each pause ends with a refusal for every thread but one."""
    bucket = TokenBucket(rate_per_second=20, burst=4, monotonic=time.monotonic)
    refusals, calls = [], 24
    lock = threading.Lock()

    def attempt():
        if not bucket.try_take():
            with lock:
                refusals.append(1)
            raise HttpError(429, retry_after=asked_seconds)

    limits = OperationLimits(monotonic=time.monotonic, first_turn_seconds=0.05)
    caller = CloudCaller(classify, policy=RetryPolicy(throttled_attempts=100), limits=limits)
    with ThreadPoolExecutor(8) as pool:
        for future in [
            pool.submit(caller.call, attempt, action="a", operation_class="writes")
            for _ in range(calls)
        ]:
            future.result()

    assert len(refusals) < calls
