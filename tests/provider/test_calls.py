"""Calls to a cloud are retried, paused by operation class, paged and measured."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    UncertainCallError,
)
from karpenter_core.provider.kit.calls.metrics import CallMetrics
from karpenter_core.provider.kit.calls.operation_limits import CallRate, OperationLimits
from karpenter_core.provider.kit.calls.pages import numbered_pages, token_pages
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from tests.properties import with_examples

THROTTLED, UNANSWERED, IN_PROGRESS, DENIED, REFUSED = AttemptFailureKind


class HttpError(Exception):
    """A failed request of an HTTP library: status 0 is no answer."""

    def __init__(self, status, *, code="", retry_after=None):
        super().__init__(f"HTTP {status}")
        self.status, self.code, self.retry_after = status, code, retry_after


def classify(error):
    """Read a failure as a REST cloud does."""
    if not isinstance(error, HttpError):
        return None
    kinds = {0: UNANSWERED, 401: DENIED, 409: REFUSED, 423: IN_PROGRESS, 429: THROTTLED}
    return AttemptFailure(
        kind=kinds.get(error.status, UNANSWERED),
        code=error.code or (str(error.status) if error.status else ""),
        retry_after=None if error.retry_after is None else timedelta(seconds=error.retry_after),
    )


class VirtualTime:
    """A monotonic clock that sleeping moves on."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Attempts:
    """A client that fails with some errors, one after the other, and then answers."""

    def __init__(self, clock, *errors):
        self.clock, self.errors, self.times = clock, list(errors), []

    def __call__(self):
        self.times.append(self.clock.now)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


@pytest.fixture
def clock():
    return VirtualTime()


def caller_of(clock, **more):
    return CloudCaller(classify, sleep=clock.sleep, monotonic=clock.monotonic, **more)


def test_a_throttled_call_is_made_again_after_the_time_that_the_cloud_names(clock):
    attempts = Attempts(clock, HttpError(429, retry_after=2))

    assert caller_of(clock).call(attempts, action="vm:create", repeatable=False) == "answer"
    assert attempts.times == [1000, 1002]


def test_a_call_that_may_be_done_is_made_again_only_if_it_is_repeatable(clock):
    read, write = Attempts(clock, HttpError(0)), Attempts(clock, HttpError(0))
    caller = caller_of(clock)

    assert caller.call(read, action="vm:read") == "answer"
    with pytest.raises(UncertainCallError, match=r"vm:create.*may have been carried out"):
        caller.call(write, action="vm:create", repeatable=False)
    assert (len(read.times), len(write.times)) == (2, 1)


def test_a_refusal_after_a_lost_reply_is_uncertain(clock):
    """The refusal says nothing of the attempt before it."""
    caller = caller_of(clock)

    with pytest.raises(UncertainCallError):
        caller.call(Attempts(clock, HttpError(0), HttpError(409)), action="vm:create")
    many = [HttpError(429)] * 9
    with pytest.raises(UncertainCallError):
        caller.call(Attempts(clock, HttpError(503), *many), action="vm:create")
    with pytest.raises(CloudProviderError) as refused:
        caller.call(Attempts(clock, HttpError(429), HttpError(409)), action="vm:create")
    assert not isinstance(refused.value, UncertainCallError)


def test_failures_become_errors_of_the_core(clock):
    caller = caller_of(clock)

    with pytest.raises(AuthError, match="vm:list: 401") as denied:
        caller.call(Attempts(clock, HttpError(401)), action="vm:list")
    with pytest.raises(ThrottledError) as throttled:
        caller.call(Attempts(clock, HttpError(429, retry_after=60)), action="vm:list")

    assert denied.value.action == "vm:list"
    assert isinstance(denied.value.__cause__, HttpError)
    assert throttled.value.retry_after == timedelta(seconds=60)


def test_an_exception_that_is_no_failed_call_is_raised_at_once(clock):
    attempts = Attempts(clock, TypeError("no such parameter"))

    with pytest.raises(TypeError):
        caller_of(clock).call(attempts, action="vm:list")
    assert len(attempts.times) == 1


def test_a_cloud_keeps_its_own_error_with_the_uncertainty_of_the_call(clock):
    seen = []

    def make_error(call):
        seen.append((call.cause.status, call.may_be_done))
        return call.cause

    caller = caller_of(clock, make_error=make_error)
    with pytest.raises(HttpError):
        caller.call(Attempts(clock, HttpError(0), HttpError(409)), action="vm:create")
    assert seen == [(409, True)]


def test_a_pause_holds_all_calls_of_its_operation_class_and_no_other(clock):
    limits = OperationLimits(monotonic=clock.monotonic)
    limits.pause("writes", AttemptFailure(kind=THROTTLED, retry_after=timedelta(seconds=5)))
    caller = caller_of(clock, limits=limits)
    read, write = Attempts(clock), Attempts(clock)

    caller.call(read, action="vm:list", operation_class="reads")
    caller.call(write, action="vm:create", operation_class="writes")

    assert read.times == [1000]
    assert 1005 <= write.times[0] < 1006


def test_a_pause_that_a_call_set_off_holds_the_calls_of_other_threads():
    """The second thread comes during the wait of the first, and sends nothing before its end."""
    clock, in_pause, second_waits = VirtualTime(), threading.Event(), threading.Event()
    limits = OperationLimits(monotonic=clock.monotonic)

    def first_sleep(_seconds):
        in_pause.set()
        assert second_waits.wait(10)
        clock.now = 1003.0

    def second_sleep(seconds):
        clock.slept.append(seconds)
        second_waits.set()
        first.result(timeout=10)

    one = CloudCaller(classify, limits=limits, sleep=first_sleep, monotonic=clock.monotonic)
    other = CloudCaller(classify, limits=limits, sleep=second_sleep, monotonic=clock.monotonic)
    early = Attempts(clock, HttpError(429, retry_after=3))
    late = Attempts(clock)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.call, early, action="a", operation_class="writes")
        assert in_pause.wait(10)
        second = pool.submit(other.call, late, action="b", operation_class="writes")
        assert second.result(timeout=10) == "answer"

    assert late.times == [1003]
    assert 3 <= clock.slept[0] < 4


def test_a_call_is_not_sent_while_a_pause_would_outlast_it(clock):
    """The core is told when to come back, and no thread waits for it."""
    caller = caller_of(clock)
    with pytest.raises(ThrottledError):
        caller.call(
            Attempts(clock, HttpError(429, retry_after=300)), action="a", operation_class="w"
        )
    clock.now += 100
    later = Attempts(clock)

    with pytest.raises(ThrottledError) as refused:
        caller.call(later, action="b", operation_class="w")

    assert refused.value.retry_after == timedelta(seconds=200)
    assert later.times == []
    assert clock.slept == []


@pytest.mark.parametrize("asked_seconds", [3600, 24 * 3600])
def test_a_pause_holds_a_class_for_five_minutes_at_most(clock, asked_seconds):
    """A senseless Retry-After of one call must not stop all calls for a day."""
    caller = caller_of(clock)
    with pytest.raises(ThrottledError):
        caller.call(Attempts(clock, HttpError(429, retry_after=asked_seconds)), action="vm:list")
    clock.now += 270
    with pytest.raises(ThrottledError, match="not sent"):
        caller.call(Attempts(clock), action="vm:list")
    clock.now += 30

    assert caller.call(Attempts(clock), action="vm:list") == "answer"


@pytest.mark.parametrize("asked_seconds", [-3600, 0])
def test_a_time_in_the_past_pauses_nothing(clock, asked_seconds):
    caller = caller_of(clock)
    attempts = Attempts(clock, HttpError(429, retry_after=asked_seconds))

    assert caller.call(attempts, action="vm:list") == "answer"
    assert caller.call(attempts, action="vm:list") == "answer"
    assert clock.now == 1000


def test_a_pause_that_grew_during_a_wait_is_waited_for_to_its_end(clock):
    limits = OperationLimits(monotonic=clock.monotonic)
    caller = caller_of(clock, limits=limits)

    class Grows(Attempts):
        def __call__(self):
            limits.pause("w", AttemptFailure(kind=THROTTLED, retry_after=timedelta(seconds=9)))
            return super().__call__()

    attempts = Grows(clock, HttpError(429, retry_after=1))
    caller.call(attempts, action="a", operation_class="w")

    assert attempts.times[1] >= 1009


def test_calls_keep_to_the_rate_of_their_operation_class(clock):
    limits = OperationLimits(
        monotonic=clock.monotonic, rates={"w": CallRate(per_second=0.5, burst=2)}
    )
    caller = caller_of(clock, limits=limits, policy=RetryPolicy(longest_backoff_seconds=3))
    attempts = Attempts(clock)
    for _ in range(4):
        caller.call(attempts, action="a", operation_class="w")

    assert attempts.times == [1000, 1000, 1002, 1004]


def test_a_call_beyond_the_rate_is_refused_and_takes_no_turn_of_others():
    clock = VirtualTime()
    limits = OperationLimits(
        monotonic=clock.monotonic, rates={"w": CallRate(per_second=0.1, burst=1)}
    )
    caller = caller_of(clock, limits=limits, policy=RetryPolicy(longest_backoff_seconds=3))
    caller.call(Attempts(clock), action="a", operation_class="w")

    for _ in range(5):
        with pytest.raises(ThrottledError) as refused:
            caller.call(Attempts(clock), action="a", operation_class="w")
        assert refused.value.retry_after == timedelta(seconds=10)
    clock.now += 10
    assert caller.call(Attempts(clock), action="a", operation_class="w") == "answer"


def test_waits_grow_and_end():
    policy = RetryPolicy()

    def waits(attempts, kind, *, repeatable=True, **more):
        failure = AttemptFailure(kind=kind, **more)
        return [
            policy.wait_seconds(failure, attempt=attempt, repeatable=repeatable, draw=1.0)
            for attempt in range(1, attempts + 1)
        ]

    assert waits(5, THROTTLED) == [0.1, 0.2, 0.4, 0.8, None]
    assert waits(3, UNANSWERED) == [0.1, 0.2, None]
    assert waits(1, UNANSWERED, repeatable=False) == [None]
    assert waits(1, UNANSWERED, retry_after=timedelta(seconds=4)) == [4]
    assert waits(1, THROTTLED, repeatable=False) == [0.1]  # nothing was done
    assert waits(1, THROTTLED, retry_after=timedelta(minutes=5)) == [None]
    assert waits(10, IN_PROGRESS) == [0.5, 1, 2, 4, 5, 5, 5, 5, 5, None]
    assert waits(1, IN_PROGRESS, repeatable=False) == [None]
    assert waits(1, REFUSED) == waits(1, DENIED) == [None]


def test_every_attempt_is_measured(clock):
    registry = CollectorRegistry()
    metrics = CallMetrics(registry, "mycloud", cloud="My Cloud")
    caller = caller_of(clock, observe=metrics.observe)
    caller.call(Attempts(clock, HttpError(0), HttpError(429)), action="vm:list")

    counts = {
        code: registry.get_sample_value(
            "karpenter_mycloud_api_requests_total", {"action": "vm:list", "code": code}
        )
        for code in ("NoAnswer", "429", "OK")
    }
    assert counts == {"NoAnswer": 1, "429": 1, "OK": 1}
    metrics.close()
    CallMetrics(registry, "mycloud", cloud="My Cloud")


def error_of(act):
    """Return the error of the core that a function raises; None if it raises none."""
    try:
        act()
    except CloudProviderError as error:
        return error
    return None


_STATUSES = st.sampled_from([0, 401, 409, 423, 429, 500])
_FAILURES = st.builds(HttpError, _STATUSES, retry_after=st.none() | st.floats(0, 60))


@given(st.lists(_FAILURES, max_size=20), st.booleans(), st.floats(0.02, 100))
@example([HttpError(429, retry_after=19)] * 5, True, 1 / 30)
@with_examples(200)
def test_an_attempt_that_may_be_done_is_never_forgotten(failures, repeatable, rate):
    clock = VirtualTime()
    attempts = Attempts(clock, *failures)
    policy = RetryPolicy()
    limits = OperationLimits(
        monotonic=clock.monotonic, rates={"w": CallRate(per_second=rate, burst=1)}
    )
    caller = caller_of(clock, policy=policy, limits=limits)
    error = error_of(
        lambda: caller.call(attempts, action="a", operation_class="w", repeatable=repeatable)
    )

    uncertain = [it for it in failures[: len(attempts.times)] if classify(it).may_be_done]
    if error is None:
        assert len(attempts.times) == len(failures) + 1
    else:
        assert isinstance(error, UncertainCallError) == bool(uncertain)
    if not repeatable:
        assert len(uncertain) <= 1
    assert attempts.times[-1] - attempts.times[0] <= policy.longest_call_seconds


def test_pages_by_token_end_without_a_token():
    answers = {None: (["a"], "1"), "1": ([], "2"), "2": (["b"], "")}

    pages = token_pages(lambda token: answers[token], lambda page: page[1])

    assert [item for items, _ in pages for item in items] == ["a", "b"]


def test_a_listing_with_repeated_page_tokens_ends():
    pages = token_pages(lambda _: "page", lambda _: "again")

    with pytest.raises(RuntimeError, match="'again' came twice"):
        list(pages)


def test_a_listing_of_too_many_pages_ends(monkeypatch):
    monkeypatch.setattr("karpenter_core.provider.kit.calls.pages.MOST_PAGES", 5)
    numbers = count()

    with pytest.raises(RuntimeError, match="there are more than 5 pages"):
        list(token_pages(lambda _: "page", lambda _: str(next(numbers))))


def test_codes_of_a_cloud_make_a_bounded_number_of_series():
    """A cloud that puts an id into each code would fill the memory."""
    registry = CollectorRegistry()
    metrics = CallMetrics(registry, "mycloud", cloud="My Cloud")

    for number in range(1000):
        metrics.observe("list", f"Code{number}", 0.1)
    metrics.observe("list", "no code: <html>", 0.1)

    (family,) = [each for each in registry.collect() if each.name.endswith("api_requests")]
    codes = {each.labels["code"] for each in family.samples if each.name.endswith("_total")}
    assert len(codes) == 201
    assert "other" in codes


def test_pages_by_number_end_with_a_short_page_at_the_total_or_at_the_last():
    asked = []

    def fetch(number):
        asked.append(number)
        return [0] * (2 if number < 3 else 1)

    def count(fetch, **more):
        return len(list(numbered_pages(fetch, lambda page: page, size=2, **more)))

    assert count(fetch, last=9) == 3
    assert asked == [1, 2, 3]
    assert count(lambda _: [0, 0], total=lambda _: 4, last=9) == 2
    assert count(lambda _: [0, 0], last=5) == 5
