"""Where passes are computed: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial

import pytest

from karpenter_core.controllers.planner import (
    SWITCH_INTERVAL_SECONDS,
    InlinePlanner,
    ThreadPlanner,
)
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.problem import Problem, SolveOptions
from karpenter_core.testing import builders


def problem() -> Problem:
    return builders.problem(pods=[builders.pod(f"web-{n}") for n in range(40)])


async def test_both_planners_give_the_same_plan():
    """In a thread or on the loop."""
    threaded = ThreadPlanner(SystemClock())
    try:
        first = await threaded.plan(problem(), SolveOptions())
    finally:
        threaded.close()
    second = await InlinePlanner().plan(problem(), SolveOptions())

    assert len(first.claims) == len(second.claims) > 0
    assert [c.instance_types for c in first.claims] == [c.instance_types for c in second.claims]


async def test_the_loop_turns_while_a_pass_runs():
    """On the loop it gives way between steps; the switch interval is put back after a thread's."""
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    before = sys.getswitchinterval()
    task = asyncio.create_task(turn())
    await InlinePlanner().plan(problem(), SolveOptions())
    inline = turns
    threaded = ThreadPlanner(SystemClock())
    await threaded.plan(problem(), SolveOptions())
    threaded.close()
    task.cancel()

    assert inline > 3
    assert turns > inline
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("first_to_end", [0, 1])
async def test_two_passes_that_overlap_leave_the_switch_interval_as_it_was(first_to_end):
    """The last one to end restores it, whichever began first."""
    before = sys.getswitchinterval()
    planners = ThreadPlanner(SystemClock()), ThreadPlanner(SystemClock())
    begun = threading.Event(), threading.Event()
    may_end = threading.Event(), threading.Event()

    def occupy(number):
        begun[number].set()
        may_end[number].wait(10)

    async def is_begun(number):
        await asyncio.to_thread(begun[number].wait, 10)

    try:
        tasks = []
        for number, planner in enumerate(planners):
            tasks.append(asyncio.create_task(planner.prepare(partial(occupy, number))))
            await is_begun(number)
        during = sys.getswitchinterval()
        may_end[first_to_end].set()
        await tasks[first_to_end]
        after_first = sys.getswitchinterval()
        may_end[1 - first_to_end].set()
        await tasks[1 - first_to_end]
    finally:
        for event, planner in zip(may_end, planners, strict=True):
            event.set()
            planner.close()
        after, _ = sys.getswitchinterval(), sys.setswitchinterval(before)

    assert during == after_first == pytest.approx(SWITCH_INTERVAL_SECONDS)
    assert after == before


async def test_a_closed_planner_gives_a_partial_plan():
    """The pass that runs is dropped; nothing of it is acted on."""
    threaded = ThreadPlanner(SystemClock())
    threaded._closed.set()  # what `close` does first; the thread is at its first step by then
    plan = await threaded.plan(problem(), SolveOptions())
    threaded.close()

    assert plan.partial
    assert plan.claims == ()


async def test_what_a_pass_needs_is_computed_where_passes_are():
    """The loop turns meanwhile; a failure is the caller's to hear."""
    threaded = ThreadPlanner(SystemClock())
    loop_thread = threading.get_ident()
    try:
        assert await threaded.prepare(threading.get_ident) != loop_thread
        with pytest.raises(ZeroDivisionError):
            await threaded.prepare(lambda: 1 // 0)
    finally:
        threaded.close()
    assert await InlinePlanner().prepare(threading.get_ident) == loop_thread
