"""An answer that many callers need at once is read once, and again when it is old or wrong."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.shared_answer import SharedAnswer
from tests.provider.cloud_node_classes import HandClock

TTL = timedelta(hours=1)


class Cloud:
    """Answers 1, 2, ...; `error` makes it fail, `gate` makes it wait."""

    def __init__(self):
        self.count, self.error, self.gate = 0, None, None

    def read(self):
        self.count += 1
        count = self.count
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return count


@pytest.fixture
def cloud():
    return Cloud()


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def answer(cloud, clock):
    return SharedAnswer(clock, TTL, cloud.read)


def test_an_answer_is_read_again_when_it_is_old(cloud, clock, answer):
    assert answer.current() is answer.current()
    clock.forward(minutes=59)
    assert answer.current().value == 1
    clock.forward(minutes=1)
    assert answer.current().value == 2
    clock.forward(minutes=59)
    assert answer.current().value == 2
    assert cloud.count == 2


def test_an_old_answer_is_used_while_the_cloud_does_not_answer(cloud, clock, answer):
    first = answer.current()
    cloud.error = CloudProviderError("no answer")
    clock.forward(hours=2)

    assert answer.current() is first
    cloud.error = None
    assert answer.current().value == 3


def test_without_an_answer_the_error_is_raised_and_the_next_caller_reads(cloud, answer):
    cloud.error = CloudProviderError("no answer")
    with pytest.raises(CloudProviderError, match="no answer"):
        answer.current()
    cloud.error = None

    assert answer.current().value == 2


def test_a_wrong_answer_is_replaced_once_for_all_that_saw_it(cloud, answer):
    seen = answer.current()
    newer = answer.newer_than(seen)

    assert newer.value == 2
    assert answer.newer_than(seen) is newer
    assert answer.current() is newer
    assert cloud.count == 2
    assert answer.newer_than(newer).value == 3


def test_an_error_of_a_replacement_is_raised_and_keeps_the_answer(cloud, answer):
    seen = answer.current()
    cloud.error = CloudProviderError("no answer")

    with pytest.raises(CloudProviderError, match="no answer"):
        answer.newer_than(seen)
    assert answer.current() is seen


@pytest.mark.parametrize("is_first", [True, False])
def test_callers_at_the_same_time_share_a_read(cloud, answer, is_first):
    seen = None if is_first else answer.current()
    before, cloud.gate = cloud.count, threading.Event()
    with ThreadPoolExecutor(10) as threads:
        call = answer.current if is_first else lambda: answer.newer_than(seen)
        futures = [threads.submit(call) for _ in range(10)]
        cloud.gate.set()
        found = {id(future.result()) for future in futures}

    assert cloud.count == before + 1
    assert len(found) == 1
