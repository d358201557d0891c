"""Waiting items become batched calls, and late calls are handled."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CallPendingError, CloudProviderError, ThrottledError
from karpenter_core.provider.contract import BatchLimits
from karpenter_core.provider.host.batching import HookBatcher
from karpenter_core.provider.host.timed_calls import TimedCalls
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from tests.properties import with_examples

LIMITS = BatchLimits(
    idle=timedelta(milliseconds=35),
    maximum=timedelta(seconds=1),
    size=100,
    timeout=timedelta(minutes=2),
)


class World:
    """A batcher over a cloud that takes `seconds` for each call."""

    def __init__(self, limits=LIMITS, seconds=0.0, key=lambda _: "", width=None):
        self.clock = LoopClock()
        self.calls = []
        self.late = []
        self.overdue = []
        self.seconds = seconds
        self.answer = lambda items: [item.upper() for item in items]
        self.open = TimedCalls(self.clock, on_change=self.overdue.append)
        self.batcher = HookBatcher(
            self._call,
            what="launch",
            limits=limits,
            clock=self.clock,
            calls=self.open,
            identity=lambda item: item,
            key=key,
            on_late=lambda item, outcome: self.late.append((item, outcome)),
            width=width,
        )

    async def _call(self, items):
        self.calls.append((round(self.clock.monotonic(), 3), list(items)))
        await self.clock.sleep(self.seconds)
        return self.answer(items)


def test_items_that_come_together_are_one_call_and_each_gets_its_own_outcome():
    async def main():
        world = World()
        outcomes = await asyncio.gather(*(world.batcher.add(item) for item in "abc"))
        assert outcomes == ["A", "B", "C"]
        assert world.calls == [(0.035, ["a", "b", "c"])]
        assert world.batcher.open == 0

    run_virtual(main())


def test_a_window_waits_for_idleness_but_not_for_ever():
    """An item every 30 ms keeps the window open until the maximum has passed."""

    async def main():
        world = World()
        adding = []
        for number in range(40):
            adding.append(asyncio.ensure_future(world.batcher.add(f"item-{number}")))
            await world.clock.sleep(0.030)
        await asyncio.gather(*adding)
        assert [at for at, _ in world.calls] == [1.0, pytest.approx(1.205, abs=0.01)]
        assert sum(len(items) for _, items in world.calls) == 40

    run_virtual(main())


def test_a_full_window_is_sent_at_once():
    async def main():
        world = World(BatchLimits(size=2))
        await asyncio.gather(*(world.batcher.add(item) for item in "abcde"))
        assert world.calls == [(0.0, ["a", "b"]), (0.0, ["c", "d"]), (0.035, ["e"])]

    run_virtual(main())


def test_items_of_different_key_never_share_a_call():
    async def main():
        world = World(key=lambda item: item[0])
        await asyncio.gather(*(world.batcher.add(item) for item in ("a1", "b1", "a2")))
        assert sorted(items for _, items in world.calls) == [["a1", "a2"], ["b1"]]

    run_virtual(main())


def test_the_same_item_added_twice_is_sent_once():
    async def main():
        world = World(seconds=5)
        first = asyncio.ensure_future(world.batcher.add("a"))
        await world.clock.sleep(1)
        assert await asyncio.gather(first, world.batcher.add("a")) == ["A", "A"]
        assert len(world.calls) == 1

    run_virtual(main())


def test_an_item_that_is_done_may_be_sent_again():
    async def main():
        world = World()
        await world.batcher.add("a")
        await world.batcher.add("a")
        assert [items for _, items in world.calls] == [["a"], ["a"]]

    run_virtual(main())


def test_an_error_of_a_call_is_the_error_of_every_item():
    async def main():
        world = World()

        def refuse(_items):
            raise ThrottledError("slow down")

        world.answer = refuse
        results = await asyncio.gather(
            *(world.batcher.add(item) for item in "ab"), return_exceptions=True
        )
        assert [type(result) for result in results] == [ThrottledError, ThrottledError]
        assert world.batcher.open == 0

    run_virtual(main())


def test_a_time_limit_ends_the_waiting_and_not_the_call():
    """The caller gets an error that the call is open; the item is not sent again; its end is reported."""

    async def main():
        world = World(seconds=300)
        with pytest.raises(CallPendingError, match="launch has not answered within 120s"):
            await world.batcher.add("a")
        with pytest.raises(CallPendingError, match="still open from an earlier call"):
            await world.batcher.add("a")
        assert (len(world.calls), world.open.overdue, world.late) == (1, 1, [])
        await world.clock.sleep(300)
        assert world.late == [("a", "A")]
        assert (world.open.overdue, world.overdue, world.batcher.open) == (0, [1, 0], 0)
        world.seconds = 0
        assert await world.batcher.add("a") == "A"

    run_virtual(main())


def test_a_call_cancelled_from_within_leaves_no_waiter():
    """An SDK may cancel its own work; that is a failure of the call, not of who waits for it."""

    async def main():
        world = World()

        def cancel(items):
            raise asyncio.CancelledError

        world.answer = cancel
        with pytest.raises(CloudProviderError, match="launch was cancelled"):
            await asyncio.wait_for(world.batcher.add("a"), 10)
        assert world.batcher.open == 0

    run_virtual(main())


@pytest.mark.parametrize("width", [None, 1], ids=["batches", "single"])
@pytest.mark.parametrize("after", [0, 0.5, 2], ids=["before-it-begins", "waiting", "running"])
def test_a_call_with_a_cancelled_task_leaves_no_waiter(width, after):
    """Everything but the waiting tasks is cancelled, as when an event loop is closed."""

    async def main():
        slow = BatchLimits(idle=timedelta(seconds=1), maximum=timedelta(seconds=1), size=100)
        world = World(slow, seconds=60, width=width)
        own = asyncio.all_tasks()
        waiting = [asyncio.ensure_future(world.batcher.add(item)) for item in "ab"]
        await world.clock.sleep(after) if after else await asyncio.sleep(0)
        for task in asyncio.all_tasks() - own - {*waiting}:
            task.cancel()
        await world.clock.sleep(0.1)
        assert waiting[0].done()
        if width is None:
            assert waiting[1].done()
        else:
            assert world.calls[-1][1] == ["b"], "its slot was freed"

    run_virtual(main())


def test_a_late_failure_is_reported():
    async def main():
        world = World(seconds=300)

        def fail(_items):
            raise CloudProviderError("it broke in the end")

        world.answer = fail
        with pytest.raises(CallPendingError):
            await world.batcher.add("a")
        await world.clock.sleep(300)
        assert [(item, str(error)) for item, error in world.late] == [("a", "it broke in the end")]
        assert world.batcher.open == 0

    run_virtual(main())


def test_a_rejected_late_outcome_does_not_affect_the_others():
    """One item's trouble leaves no other one open for ever."""

    async def main():
        world = World(seconds=300)
        keep = world.late.append

        def take(pair):
            if pair[0] == "a":
                raise ValueError("no")
            keep(pair)

        world.late = SimpleNamespace(append=take)
        results = await asyncio.gather(
            *(world.batcher.add(item) for item in "ab"), return_exceptions=True
        )
        assert [type(result) for result in results] == [CallPendingError, CallPendingError]
        await world.clock.sleep(400)
        assert world.batcher.open == 0

    run_virtual(main())


def test_an_outcome_whose_caller_went_away_is_late():
    async def main():
        world = World(seconds=5)
        waiting = asyncio.ensure_future(world.batcher.add("a"))
        await world.clock.sleep(1)
        waiting.cancel()
        await world.clock.sleep(10)
        assert world.late == [("a", "A")]

    run_virtual(main())


def test_an_item_cancelled_before_sending_is_not_sent():
    async def main():
        world = World()
        waiting = asyncio.ensure_future(world.batcher.add("a"))
        await world.clock.sleep(0.01)
        waiting.cancel()
        assert await world.batcher.add("b") == "B"
        assert [items for _, items in world.calls] == [["b"]]

    run_virtual(main())


def test_closing_sends_nothing_more():
    async def main():
        world = World()
        waiting = asyncio.ensure_future(world.batcher.add("a"))
        await world.clock.sleep(0.01)
        world.batcher.close()
        await world.clock.sleep(1)
        assert waiting.cancelled()
        assert (world.calls, world.batcher.open) == ([], 0)

    run_virtual(main())


@given(
    arrivals=st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    size=st.integers(1, 10),
    seconds=st.floats(0, 3),
)
@with_examples(100)
def test_every_item_has_one_outcome_and_no_batch_breaks_its_limits(arrivals, size, seconds):
    """For every pattern of arrivals, in milliseconds."""

    async def main():
        world = World(BatchLimits(size=size, maximum=timedelta(milliseconds=200)), seconds)

        async def arrive(number, at):
            await world.clock.sleep(at / 1000)
            return await world.batcher.add(f"item-{number}")

        outcomes = await asyncio.gather(*(arrive(n, at) for n, at in enumerate(arrivals)))
        assert outcomes == [f"ITEM-{n}" for n in range(len(arrivals))]
        sent = [item for _, items in world.calls for item in items]
        assert sorted(sent) == sorted(f"item-{n}" for n in range(len(arrivals)))
        for at, items in world.calls:
            assert 0 < len(items) <= size
            first = min(arrivals[int(item.removeprefix("item-"))] for item in items) / 1000
            assert at - first <= 0.2 + 1e-3
        assert (world.late, world.batcher.open) == ([], 0)

    run_virtual(main())


# -- one item each


def test_single_items_wait_for_their_turn_outside_of_the_time_limit():
    """Ten calls of 100 s, two at a time: the last begins after 400 s, and none is overdue."""

    async def main():
        world = World(seconds=100, width=2)
        outcomes = await asyncio.gather(*(world.batcher.add(item) for item in "abcdefghij"))
        assert outcomes == list("ABCDEFGHIJ")
        assert [moment for moment, _ in world.calls] == [
            0,
            0,
            100,
            100,
            200,
            200,
            300,
            300,
            400,
            400,
        ]
        assert all(len(items) == 1 for _, items in world.calls)
        assert world.overdue == []

    run_virtual(main())


def test_an_overdue_call_frees_its_slot():
    """Two that hang do not keep the third from being sent for ever."""

    async def main():
        world = World(seconds=1000, width=2)
        outcomes = await asyncio.gather(
            *(world.batcher.add(item) for item in "abc"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [CallPendingError] * 3
        assert world.calls == [(0, ["a"]), (0, ["b"]), (120, ["c"])]

    run_virtual(main())


def test_a_single_item_cancelled_before_its_turn_is_not_sent():
    async def main():
        world = World(seconds=10, width=1)
        first = asyncio.ensure_future(world.batcher.add("a"))
        second = asyncio.ensure_future(world.batcher.add("b"))
        await asyncio.sleep(1)
        second.cancel()
        assert await first == "A"
        await asyncio.sleep(100)
        assert world.calls == [(0, ["a"])]
        assert world.batcher.open == 0

    run_virtual(main())


def test_closing_sends_no_single_item_more():
    async def main():
        world = World(seconds=10, width=1)
        first = asyncio.ensure_future(world.batcher.add("a"))
        second = asyncio.ensure_future(world.batcher.add("b"))
        await asyncio.sleep(1)
        world.batcher.close()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await first == "A"
        assert world.calls == [(0, ["a"])]

    run_virtual(main())
