"""The batcher closes its window in time (cases 85 to 87)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from karpenter_core.controllers.provisioning.trigger_batcher import TriggerBatcher
from karpenter_core.sim.virtual_time import LoopClock, run_virtual


def closes(*triggers, idle=5, maximum=10):
    """Trigger at these times and return when the first window closed, with what in it."""

    async def scenario():
        clock = LoopClock()
        batcher = TriggerBatcher(
            clock, idle=timedelta(seconds=idle), maximum=timedelta(seconds=maximum)
        )

        async def trigger():
            for at, element in triggers:
                await clock.sleep(at - clock.monotonic())
                batcher.trigger(element)

        task = asyncio.create_task(trigger())
        elements = await batcher.next_batch()
        closed = clock.monotonic()
        await task
        return pytest.approx(closed), elements

    return run_virtual(scenario())


async def is_waiting(batcher):
    """Tell whether no window opens within an hour."""
    try:
        async with asyncio.timeout(3600):
            await batcher.next_batch()
    except TimeoutError:
        return True
    return False


def test_a_single_pod_is_planned_after_the_idle_time():
    """Case 85."""
    assert closes((0, "a"), idle=1) == (1.0, ("a",))


def test_a_pod_that_triggers_again_does_not_keep_the_window_open():
    """Case 86."""
    assert closes((0, "a"), (3, "a")) == (5.0, ("a",))


def test_another_pod_keeps_the_window_open():
    """Case 87: still open three seconds after the second pod, closed three later."""
    assert closes((0, "a"), (3, "b")) == (8.0, ("a", "b"))


def test_a_stream_of_pods_does_not_keep_the_window_open_for_ever():
    """The longest window is ten seconds."""
    stream = [(second, f"pod-{second}") for second in range(20)]

    closed, elements = closes(*stream, idle=5)

    assert closed == 10.0
    assert len(elements) in {10, 11}


def test_pods_that_came_during_a_pass_have_waited_already():
    """No pass ran for four seconds: the window closes at once."""

    async def scenario():
        clock = LoopClock()
        batcher = TriggerBatcher(clock, idle=timedelta(seconds=1), maximum=timedelta(seconds=10))
        batcher.trigger("a")
        await clock.sleep(4)

        assert await batcher.next_batch() == ("a",)
        assert clock.monotonic() == pytest.approx(4)
        assert await is_waiting(batcher)

    run_virtual(scenario())


def test_elements_that_need_no_pass_any_more_neither_open_nor_extend_the_window():
    """The pass that ran when they came has planned for their pods."""

    async def scenario():
        clock = LoopClock()
        batcher = TriggerBatcher(clock, idle=timedelta(seconds=3), maximum=timedelta(seconds=10))
        batcher.trigger("planned-first")
        await clock.sleep(6)
        batcher.trigger("new")
        await clock.sleep(1)
        batcher.trigger("planned-last")

        batcher.discard(lambda element: element.startswith("planned"))

        assert await batcher.next_batch() == ("new",)
        assert clock.monotonic() == pytest.approx(9), "three seconds after the one that is left"
        batcher.trigger("planned-again")
        batcher.discard(lambda element: element.startswith("planned"))
        assert await is_waiting(batcher)

    run_virtual(scenario())


def test_the_longest_window_counts_from_the_first_element_that_is_left():
    async def scenario():
        clock = LoopClock()
        batcher = TriggerBatcher(clock, idle=timedelta(seconds=5), maximum=timedelta(seconds=10))
        batcher.trigger("planned")
        await clock.sleep(4)
        batcher.discard(lambda element: element == "planned")

        async def stream():
            for number in range(9):
                batcher.trigger(f"pod-{number}")
                await clock.sleep(2)

        task = asyncio.create_task(stream())
        await batcher.next_batch()
        assert clock.monotonic() == pytest.approx(14)
        await task

    run_virtual(scenario())
