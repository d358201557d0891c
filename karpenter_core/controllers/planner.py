"""Computes plans in a thread; under simulated time, on the event loop.

A pass is pure Python and keeps a processor busy for seconds; on the event loop it would stop watches,
lease renewals and probes. By default it therefore runs in its own thread, with a lower switch interval
of the interpreter meanwhile: a busy thread that yields only every 5 ms cuts the loop's throughput
200-fold (measured). Under simulated time it runs on the loop, step by step, so that two runs of one
scenario interleave in the same way.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from karpenter_core.clock import Clock
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem, SolveOptions

__all__ = ["InlinePlanner", "Planner", "ThreadPlanner"]

T = TypeVar("T")

PASS_LIMIT_SECONDS: Final = 60.0  # upstream default; the plan is what the pass has placed by then
SWITCH_INTERVAL_SECONDS: Final = 0.0005


class Planner(Protocol):
    """Computes scheduling plans."""

    async def warm(self) -> None:
        """Load what a pass needs, so that the first one does not wait for it."""
        ...

    async def compute(self, make: Callable[[], T]) -> T:
        """Compute other data that a pass needs, in the planner's thread."""
        ...

    async def plan(self, problem: SchedulingProblem, options: SolveOptions) -> SchedulingPlan:
        """Return the plan; it is partial if the pass took too long."""
        ...

    async def run_steps(
        self, steps: Generator[int, None, T], *, limit_seconds: float, overtime: Callable[[], None]
    ) -> T:
        """Run steps to their end in the planner's thread.

        After the time limit `overtime` is called; the steps should then end soon.
        """
        ...

    def close(self) -> None:
        """End the threads."""
        ...


@final
class InlinePlanner:
    """Computes on the event loop, and lets other tasks run between steps."""

    def __init__(self) -> None:
        self._columns: CatalogueCache | None = None

    async def warm(self) -> None:
        """Load the solver."""
        _load()

    async def compute(self, make: Callable[[], T]) -> T:
        """Compute it at once."""
        return make()

    async def plan(self, problem: SchedulingProblem, options: SolveOptions) -> SchedulingPlan:
        """Return the plan."""
        from karpenter_core.scheduling.isolation import solve_isolated_steps

        return await self._run(solve_isolated_steps(problem, options, cache=self._cache()))

    async def run_steps(
        self, steps: Generator[int, None, T], *, limit_seconds: float, overtime: Callable[[], None]
    ) -> T:
        """Run the steps; simulated time does not pass meanwhile, so no limit is ever reached."""
        del limit_seconds, overtime
        return await self._run(steps)

    @staticmethod
    async def _run(steps: Generator[int, None, T]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            await asyncio.sleep(0)

    def close(self) -> None:
        """Do nothing: there is no thread."""

    def _cache(self) -> CatalogueCache:
        self._columns = self._columns or _new_cache()
        return self._columns


@final
class ThreadPlanner:
    """Computes in one thread, one pass at a time."""

    def __init__(self, clock: Clock, *, name: str = "planner") -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = threading.Event()
        self._columns: CatalogueCache | None = None

    async def warm(self) -> None:
        """Load the solver in the thread that will run it."""
        await self.compute(_load)

    async def compute(self, make: Callable[[], T]) -> T:
        """Compute it in the thread: the input for a large cluster takes half a second."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _in_turns, make)

    async def plan(self, problem: SchedulingProblem, options: SolveOptions) -> SchedulingPlan:
        """Return the plan."""
        cancelled = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._thread, self._compute, problem, options, cancelled
            )
        finally:
            cancelled.set()

    async def run_steps(
        self, steps: Generator[int, None, T], *, limit_seconds: float, overtime: Callable[[], None]
    ) -> T:
        """Run the steps in the thread; they stop at `close` or when the caller is cancelled."""
        cancelled = threading.Event()
        loop = asyncio.get_running_loop()

        def run() -> T:
            started = self._clock.monotonic()
            with _INTERVAL.lowered():
                while True:
                    try:
                        next(steps)
                    except StopIteration as end:
                        return end.value
                    if self._clock.monotonic() - started > limit_seconds:
                        overtime()
                    if cancelled.is_set() or self._closed.is_set():
                        steps.close()
                        raise asyncio.CancelledError

        try:
            return await loop.run_in_executor(self._thread, run)
        finally:
            cancelled.set()

    def close(self) -> None:
        """Stop the pass that runs, if any, and end the thread."""
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _compute(
        self, problem: SchedulingProblem, options: SolveOptions, cancelled: threading.Event
    ) -> SchedulingPlan:
        from karpenter_core.scheduling.isolation import solve_isolated_steps
        from karpenter_core.scheduling.placement.engine import HaltRequest
        from karpenter_core.scheduling.problem import SchedulingPlan

        halt = HaltRequest()
        started = self._clock.monotonic()
        with _INTERVAL.lowered():
            steps = solve_isolated_steps(problem, options, cache=self._cache(), halt=halt)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                halt.requested = self._clock.monotonic() - started > PASS_LIMIT_SECONDS
                if cancelled.is_set() or self._closed.is_set():
                    steps.close()
                    return SchedulingPlan(partial=True)

    def _cache(self) -> CatalogueCache:
        self._columns = self._columns or _new_cache()
        return self._columns


@final
class _SwitchInterval:
    """Lowers the interpreter's switch interval while any pass runs; the last to end restores it.

    The interval belongs to the process, and passes of two planners overlap.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes = 0
        self._original = 0.0

    @contextmanager
    def lowered(self) -> Generator[None]:
        """Have the interpreter switch threads often while the block runs."""
        with self._lock:
            if not self._passes:
                self._original = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
            self._passes += 1
        try:
            yield
        finally:
            with self._lock:
                self._passes -= 1
                if not self._passes:
                    sys.setswitchinterval(self._original)


_INTERVAL: Final = _SwitchInterval()


def _in_turns(make: Callable[[], T]) -> T:
    with _INTERVAL.lowered():
        return make()


def _load() -> None:
    """Import the solver and its dependencies, which takes most of a second."""
    from karpenter_core.scheduling.problem import SchedulingProblem
    from karpenter_core.scheduling.solve import solve

    solve(SchedulingProblem(pods=()))


def _new_cache() -> CatalogueCache:
    """Return a cache of compiled catalogues, which only the planner's thread may use."""
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache

    return CatalogueCache()
