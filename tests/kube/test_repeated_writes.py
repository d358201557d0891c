"""A write that is taken back each time is repeated ever more slowly."""

from __future__ import annotations

import pytest

from karpenter_core.errors import TooManyRequestsError
from karpenter_core.kube.repeated_writes import (
    FREE_REPEATS,
    FREE_WRITES,
    MAX_REPEAT_PAUSE,
    RepeatedWrites,
)

POOL = ("nodepools", "", "", "general")
HASH = {"metadata": {"annotations": {"hash": "1"}}}


class SetClock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def writes(clock):
    return RepeatedWrites(clock)


def write(writes, body=HASH, target=POOL):
    writes.check(target, body)
    writes.note(target, body)


def wait(writes, body=HASH, target=POOL):
    """Return the seconds that a write has to wait; 0 if it may be sent."""
    try:
        writes.check(target, body)
    except TooManyRequestsError as error:
        return error.retry_after.total_seconds()
    return 0


def test_pauses_double_up_to_a_minute(writes, clock):
    for _ in range(FREE_REPEATS):
        write(writes)
    pauses = []
    for _ in range(9):
        pauses.append(wait(writes))
        clock.now += pauses[-1]
        write(writes)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_error_names_the_object_and_the_cause(writes):
    for _ in range(FREE_REPEATS):
        write(writes)
    with pytest.raises(
        TooManyRequestsError, match=r"patch nodepools general: .* 10 times in a row"
    ):
        write(writes)


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"metadata": {"annotations": {"hash": "2"}}}, POOL),
        (HASH, ("nodepools", "", "", "other")),
        (HASH, ("nodepools", "status", "", "general")),
    ],
)
def test_other_writes_do_not_wait(writes, body, target):
    for _ in range(FREE_REPEATS):
        write(writes)
    assert wait(writes, body, target) == 0


def test_another_content_ends_a_row(writes):
    for _ in range(FREE_REPEATS):
        write(writes)
    write(writes, {"metadata": {}})
    assert wait(writes) == 0


def test_writes_that_are_far_apart_are_no_row(writes, clock):
    for _ in range(3 * FREE_REPEATS):
        write(writes)
        clock.now += 2 * MAX_REPEAT_PAUSE.total_seconds()
    assert wait(writes) == 0


def test_writes_of_long_ago_are_not_kept(writes, clock):
    """Nodes come and go for months."""
    for number in range(20):
        write(writes, target=("nodes", "", "", f"node-{number}"))
        clock.now += 30
    assert [name for *_, name in writes._last] == [f"node-{number}" for number in range(16, 20)]


def test_a_write_that_was_not_done_does_not_count(writes):
    for _ in range(3 * FREE_REPEATS):
        writes.check(POOL, HASH)
    assert wait(writes) == 0


def version(number):
    return {"metadata": {"annotations": {"hash": str(number)}}}


def test_writes_of_other_contents_each_time_are_one_a_second_in_the_end(writes, clock):
    """Conditions contain times, so patches that a webhook takes back may differ."""
    for number in range(FREE_WRITES):
        write(writes, version(number))
    assert wait(writes, version(-1)) == pytest.approx(1)
    assert wait(writes, target=("nodepools", "", "", "other")) == 0
    for number in range(5):
        clock.now += 1
        write(writes, version(number))
        assert wait(writes, version(-1)) == pytest.approx(1)


def test_an_object_that_rests_may_be_written_as_often_again(writes, clock):
    for number in range(FREE_WRITES):
        write(writes, version(number))
    clock.now += FREE_WRITES
    for number in range(FREE_WRITES):
        write(writes, version(number))
    clock.now += 1000 * FREE_WRITES
    for number in range(FREE_WRITES):
        write(writes, version(number))
    with pytest.raises(TooManyRequestsError, match="60 writes in a short time"):
        write(writes, version(-1))
