"""Plans are computed while the event loop goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial

import pytest

from karpenter_core.controllers.planner import (
    PASS_LIMIT_SECONDS,
    SWITCH_INTERVAL_SECONDS,
    InlinePlanner,
    ThreadPlanner,
)
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.problem import SchedulingProblem, SolveOptions
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing import builders


def problem() -> SchedulingProblem:
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
    started = threading.Event(), threading.Event()
    may_end = threading.Event(), threading.Event()

    def occupy(number):
        started[number].set()
        may_end[number].wait(10)

    async def is_begun(number):
        await asyncio.to_thread(started[number].wait, 10)

    try:
        tasks = []
        for number, planner in enumerate(planners):
            tasks.append(asyncio.create_task(planner.compute(partial(occupy, number))))
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


async def test_compute_runs_in_the_thread_of_the_planner():
    """The loop turns meanwhile; a failure is the caller's to hear."""
    threaded = ThreadPlanner(SystemClock())
    loop_thread = threading.get_ident()
    try:
        assert await threaded.compute(threading.get_ident) != loop_thread
        with pytest.raises(ZeroDivisionError):
            await threaded.compute(lambda: 1 // 0)
    finally:
        threaded.close()
    assert await InlinePlanner().compute(threading.get_ident) == loop_thread


class HandClock:
    """A clock that steps move."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time


class Steps:
    """Steps of ten seconds each, that note where they run, and when they are closed."""

    def __init__(self, clock, number, *, error=None):
        self._clock, self._number, self._error = clock, number, error
        self.started, self.ended = threading.Event(), threading.Event()
        self.threads, self.intervals = set(), set()
        self.is_cut_short = False

    def run(self):
        try:
            for _ in range(self._number):
                self.threads.add(threading.get_ident())
                self.intervals.add(sys.getswitchinterval())
                self._clock.time += 10.0
                self.started.set()
                yield 1
                if self.is_cut_short:
                    return "cut short"
            if self._error is not None:
                raise self._error
            return "done"
        finally:
            self.ended.set()

    def cut_short(self):
        self.is_cut_short = True


@pytest.fixture
def threaded():
    planner = ThreadPlanner(HandClock())
    yield planner
    planner.close()


async def worked(planner, steps, *, limit_seconds=60.0):
    return await planner.run_steps(
        steps.run(), limit_seconds=limit_seconds, overtime=steps.cut_short
    )


async def test_steps_run_in_the_thread_of_the_planner(threaded):
    """It gives way often meanwhile, and no longer than that."""
    steps, before = Steps(threaded._clock, 3), sys.getswitchinterval()

    assert await worked(threaded, steps) == "done"

    assert steps.threads == {await threaded.compute(threading.get_ident)}
    assert threading.get_ident() not in steps.threads
    assert max(steps.intervals) < before
    assert sys.getswitchinterval() == before


async def test_overtime_is_called_after_the_limit(threaded):
    """At the limit it is not too long yet."""
    in_time = Steps(threaded._clock, 6)
    assert await worked(threaded, in_time, limit_seconds=60.0) == "done"
    assert not in_time.is_cut_short

    late = Steps(threaded._clock, 1000)
    assert await worked(threaded, late, limit_seconds=60.0) == "cut short"
    assert late.is_cut_short


async def test_time_limit_counts_from_the_start_of_the_steps(threaded):
    """Not from that of the planner, nor of the work before."""
    for _ in range(3):
        assert await worked(threaded, Steps(threaded._clock, 5), limit_seconds=60.0) == "done"


async def test_cancelled_steps_are_closed(threaded):
    """Its thread is free for the next one."""
    steps = Steps(threaded._clock, 10**9)
    waiting = asyncio.create_task(worked(threaded, steps, limit_seconds=float("inf")))
    await asyncio.to_thread(steps.started.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await worked(threaded, Steps(threaded._clock, 1)) == "done"
    assert steps.ended.is_set()


async def test_closing_the_planner_ends_its_steps(threaded):
    """No partial result is returned."""
    steps = Steps(threaded._clock, 10**9)
    waiting = asyncio.create_task(worked(threaded, steps, limit_seconds=float("inf")))
    await asyncio.to_thread(steps.started.wait)
    threaded.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert steps.ended.is_set()


async def test_failing_steps_fail_for_their_caller(threaded):
    """The planner goes on working."""
    with pytest.raises(ZeroDivisionError):
        await worked(threaded, Steps(threaded._clock, 2, error=ZeroDivisionError()))

    assert await worked(threaded, Steps(threaded._clock, 2)) == "done"


class HastyClock(SystemClock):
    """A clock on which each look takes as long as a pass may."""

    looks = 0

    def monotonic(self):
        self.looks += 1
        return self.looks * (PASS_LIMIT_SECONDS + 1.0)


@pytest.mark.parametrize(("clock", "is_partial"), [(SystemClock(), False), (HastyClock(), True)])
async def test_a_plan_at_its_time_limit_is_returned_as_it_is(clock, is_partial):
    planner = ThreadPlanner(clock)
    try:
        plan = await planner.plan(problem(), SolveOptions())
    finally:
        planner.close()
    assert plan.partial == is_partial


def test_no_simulated_time_passes_while_a_plan_is_made_on_the_loop():
    """Else what a life in virtual time decides would depend on the number of steps of a plan."""

    async def main():
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        await InlinePlanner().plan(problem(), SolveOptions())
        await InlinePlanner().run_steps(iter(range(3)), limit_seconds=1.0, overtime=pytest.fail)
        return loop.time() - started_at

    assert run_virtual(main()) == 0
