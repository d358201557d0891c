"""Changes of instances in place: their rate, their order, and those that a cloud refuses."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.instances.change_queue import ChangeQueue
from tests.properties import with_examples
from tests.provider.small_cloud import Clock


class GoneError(CloudProviderError):
    """An instance of a call does not exist."""


class RefusedError(CloudProviderError):
    """A call was refused because of one of its instances."""


class Cloud:
    """Instances with colours: a state is a colour, and so is a change."""

    def __init__(self):
        self.colours: dict[str, str] = {}
        self.refused: set[str] = set()
        self.denied: set[str] = set()
        """Instances that exist, and that changes do not find."""
        self.unanswered: set[str] = set()
        """Instances whose changes the cloud never answers."""
        self.ending: set[str] = set()
        """Instances that end when they are about to be changed."""
        self.error: CloudProviderError | None = None
        self.during_change = None
        """Called before each change."""
        self.reads: list[list[str]] = []
        self.calls: list[list[str]] = []

    def read(self, instance_ids):
        self.reads.append(list(instance_ids))
        return {name: self.colours[name] for name in instance_ids if name in self.colours}

    def planner(self):
        return lambda state, desired: "" if state == desired else desired

    def make(self, change, instance_ids):
        self.calls.append(list(instance_ids))
        if self.during_change is not None:
            self.during_change()
        if self.error is not None:
            raise self.error
        if self.unanswered & set(instance_ids):
            raise CloudProviderError("no answer")
        for name in self.ending & set(instance_ids):
            self.colours.pop(name, None)
        if set(instance_ids) - self.colours.keys() or self.denied & set(instance_ids):
            raise GoneError("no such instance")
        if self.refused & set(instance_ids):
            raise RefusedError("no")
        self.colours.update(dict.fromkeys(instance_ids, change))

    def changed(self, state, change):
        return change

    def is_gone(self, error):
        return isinstance(error, GoneError)

    def is_refusal(self, error):
        return isinstance(error, RefusedError)


class Stage:
    """A queue over such a cloud."""

    def __init__(self, names="abcdefgh", *, at_once=4, candidates=tuple):
        self.cloud, self.clock = Cloud(), Clock()
        self.cloud.colours = dict.fromkeys(names, "white")
        self.listed: dict[str, str] = {}
        self.queue = ChangeQueue(
            self.clock,
            self.cloud,
            action="small:Paint",
            changes_per_second=1,
            changed_at_once=at_once,
            read_at_once=4,
            listed_state=self.listed.get,
            candidates=candidates,
        )

    def sync_all(self, desired, *, seconds=200):
        """Ask for all until none waits, as the core does; return the errors of those refused."""
        errors = {}
        left = dict(desired)
        for _ in range(seconds):
            for name, colour in tuple(left.items()):
                try:
                    self.queue.sync(name, colour)
                except ThrottledError:
                    continue
                except CloudProviderError as error:
                    errors[name] = error
                del left[name]
            if not left:
                return errors
            self.clock.seconds += 1
        pytest.fail(f"{sorted(left)} still wait")


def test_one_change_a_second_is_made_and_the_others_get_their_turn():
    stage = Stage()
    assert stage.queue.sync("a", "red") == "red"
    for position, name in enumerate("bcd", start=1):
        with pytest.raises(ThrottledError, match=f"{name} waits") as raised:
            stage.queue.sync(name, f"blue-{name}")
        assert raised.value.retry_after == timedelta(seconds=position)
    assert stage.cloud.calls == [["a"]]

    stage.clock.seconds = 1
    with pytest.raises(ThrottledError):
        stage.queue.sync("d", "blue-d")
    assert stage.cloud.calls == [["a"], ["b"]], "b has waited longest"


@with_examples(50)
@given(st.integers(0, 10**6))
def test_nearly_all_of_the_rate_is_used_although_those_who_wait_come_late(seed):
    """The core comes again after the time it was given and up to as much again."""
    random = Random(seed)
    names = [f"i-{number}" for number in range(40)]
    stage = Stage(names)
    arrivals = [(0.0, name) for name in names]
    made = []
    while arrivals:
        at, name = heappop(arrivals)
        stage.clock.seconds = at
        calls = len(stage.cloud.calls)
        try:
            stage.queue.sync(name, f"blue-{name}")
        except ThrottledError as error:
            seconds = error.retry_after.total_seconds()
            heappush(arrivals, (at + seconds * (1 + random.random()), name))
        made += [at] * (len(stage.cloud.calls) - calls)
    assert made[-1] <= 40 * 1.25
    assert all(later - made[n] >= 4 for n, later in enumerate(made[8:])), "at most 4 too early"


def test_an_idle_time_does_not_accumulate_turns():
    stage = Stage()
    stage.queue.sync("a", "red")
    stage.clock.seconds = 100
    stage.queue.sync("b", "red")
    with pytest.raises(ThrottledError):
        stage.queue.sync("c", "red")


def test_instances_that_need_the_same_share_a_call():
    stage = Stage()
    assert stage.sync_all(dict.fromkeys("abcdefgh", "red")) == {}
    assert [len(call) for call in stage.cloud.calls] == [1, 4, 3]
    assert set(stage.cloud.colours.values()) == {"red"}


def test_an_instance_that_is_listed_as_desired_costs_no_call():
    stage = Stage()
    stage.listed["a"] = "red"
    assert stage.queue.sync("a", "red") == "red"
    assert (stage.cloud.reads, stage.cloud.calls) == ([], [])


def test_a_listing_that_is_older_than_the_instance_changes_nothing():
    stage = Stage()
    stage.listed["a"] = "white"
    stage.cloud.colours["a"] = "red"
    assert stage.queue.sync("a", "red") == "red"
    assert stage.cloud.calls == []


def test_a_change_overrides_the_last_listing():
    stage = Stage()
    stage.listed["a"] = "white"
    stage.queue.sync("a", "red")
    stage.queue.sync("a", "red")
    assert stage.cloud.calls == [["a"]]


def test_candidates_are_read_with_the_first_one():
    stage = Stage(candidates=lambda: ("c", "d", "a", ""))
    stage.queue.sync("a", "red")
    stage.sync_all({"c": "blue", "d": "green"})
    assert stage.cloud.reads == [["a", "c", "d"]]


def test_an_instance_that_is_gone_waits_no_more():
    stage = Stage()
    assert stage.queue.sync("gone", "red") is None
    assert stage.cloud.calls == []


def test_one_that_ends_before_its_call_stops_no_other():
    stage = Stage()
    stage.cloud.ending = {"b"}

    assert stage.sync_all(dict.fromkeys("abcd", "red")) == {}

    assert stage.cloud.colours.items() >= dict.fromkeys("acd", "red").items()
    assert "b" not in stage.cloud.colours


@pytest.mark.parametrize("kind", ["refused", "denied"])
def test_a_refused_instance_holds_up_no_other_and_is_tried_again_after_a_minute(kind):
    stage = Stage(at_once=8)
    setattr(stage.cloud, kind, {"c"})

    errors = stage.sync_all(dict.fromkeys("abcdefgh", "red"))

    assert set(errors) == {"c"}
    assert {name for name, colour in stage.cloud.colours.items() if colour == "red"} == set(
        "abdefgh"
    )
    calls = len(stage.cloud.calls)
    with pytest.raises(CloudProviderError):
        stage.queue.sync("c", "red")
    assert len(stage.cloud.calls) == calls

    setattr(stage.cloud, kind, set())
    stage.clock.seconds += 61
    assert stage.queue.sync("c", "red") == "red"


def test_a_state_requested_during_a_change_is_applied_after_it():
    stage = Stage()

    def ask_again():
        stage.cloud.during_change = None
        with pytest.raises(ThrottledError):
            stage.queue.sync("a", "blue")

    stage.cloud.during_change = ask_again
    with pytest.raises(ThrottledError):
        stage.queue.sync("a", "red")
    stage.clock.seconds = 1
    with pytest.raises(ThrottledError):
        stage.queue.sync("b", "green")

    assert stage.cloud.colours["a"] == "blue"


def test_an_instance_whose_change_is_never_answered_holds_up_no_other():
    stage = Stage()
    stage.cloud.unanswered = {"a"}
    stage.clock.seconds = 1
    done = set()
    for _ in range(8):
        for name in "abcd":
            with suppress(CloudProviderError):
                stage.queue.sync(name, f"blue-{name}")
                done.add(name)
        stage.clock.seconds += 1

    assert done == set("bcd")
    stage.cloud.unanswered.clear()
    assert stage.sync_all({"a": "blue-a"}) == {}


def test_a_failure_that_says_nothing_of_an_instance_leaves_it_waiting():
    stage = Stage()
    stage.cloud.error = CloudProviderError("no answer")
    with pytest.raises(CloudProviderError, match="no answer"):
        stage.queue.sync("a", "red")

    stage.cloud.error = None
    stage.clock.seconds = 1
    assert stage.queue.sync("a", "red") == "red"


@with_examples(100)
@given(
    colours=st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["red", "blue"])),
    refused=st.sets(st.sampled_from("abcdefgh")),
    gone=st.sets(st.sampled_from("abcdefgh")),
    at_once=st.integers(1, 8),
)
def test_every_instance_is_changed_refused_or_gone(colours, refused, gone, at_once):
    stage = Stage(at_once=at_once)
    stage.cloud.refused = refused
    for name in gone:
        del stage.cloud.colours[name]

    errors = stage.sync_all(colours)

    assert set(errors) == (refused & colours.keys()) - gone
    for name, colour in colours.items():
        if name not in refused | gone:
            assert stage.cloud.colours[name] == colour
