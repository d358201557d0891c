"""Runs simulations in their own processes, as many at a time as cores.

A run of a sweep that fails, or whose process ends, is reported with its cause and ends no other run.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.simulate.document import simulation_document
from karpenter_core.cli.simulate.run import simulate
from karpenter_core.errors import BadInputError, KarpenterError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.run import Progress
    from karpenter_core.cli.simulate.scenario import SimulationScenario

__all__ = ["FailedRun", "FinishedRun", "RunOutcome", "run_all"]

_CLEAR_LINE: Final = "\r\x1b[K"
_RUNS_OF_A_PROCESS: Final = 50
"""Number of runs after which a process is replaced, so that its memory does not grow with a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """The document of a simulation, and notes about its input."""

    document: JsonObject
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """The cause for which a simulation has no result; `is_refused`: its input cannot be used."""

    error: str
    is_refused: bool = False


RunOutcome = FinishedRun | FailedRun


def run_all(
    scenarios: Sequence[SimulationScenario],
    *,
    jobs: int,
    left_out: AbstractSet[str] = frozenset(),
    on_outcome: Callable[[int, RunOutcome], None] | None = None,
) -> list[RunOutcome]:
    """Run simulations, and return their outcomes in the order of the scenarios.

    `left_out` are fields that their documents need not have. `on_outcome` gets the number and the outcome
    of each as soon as it has ended.
    """
    found: dict[int, RunOutcome] = {}

    def note(number: int, outcome: RunOutcome) -> None:
        found[number] = outcome
        if on_outcome is not None:
            on_outcome(number, outcome)

    if len(scenarios) == 1 or jobs == 1:
        for number, scenario in enumerate(scenarios):
            line = _ProgressLine(scenario, f"{number + 1} of {len(scenarios)}, ")
            note(number, _outcome(scenario, left_out, line))
            line.end()
    else:
        _run_in_processes(scenarios, jobs, left_out, note)
    return [found[number] for number in range(len(scenarios))]


def _run_in_processes(
    scenarios: Sequence[SimulationScenario],
    jobs: int,
    left_out: AbstractSet[str],
    note: Callable[[int, RunOutcome], None],
) -> None:
    """Run each simulation in one of several processes; one that ends by itself is replaced.

    Each process has an executor of its own: the executor of several does not tell which run has ended
    its process, and gives up all others.
    """
    waiting = deque(enumerate(scenarios))
    idle = [_executor() for _ in range(min(jobs, len(scenarios)))]
    running: dict[Future[RunOutcome], tuple[int, ProcessPoolExecutor]] = {}
    count = _RunCount(len(scenarios))
    try:
        while waiting or running:
            while waiting and idle:
                number, scenario = waiting.popleft()
                executor = idle.pop()
                running[executor.submit(_outcome, scenario, left_out)] = (number, executor)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, executor = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    executor.shutdown(wait=False)
                    executor = _executor()
                    why = "its process has ended, killed by the system or for lack of memory"
                    outcome = FailedRun(error=why)
                idle.append(executor)
                note(number, outcome)
                count.add(outcome)
    finally:
        if running:  # only after an error or a key that ends the program
            for child in multiprocessing.active_children():
                child.terminate()
        for _, executor in running.values():
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in idle:  # a program that ended before them would print errors of closed pipes
            executor.shutdown(wait=True)
        _show("")


def _executor() -> ProcessPoolExecutor:
    # A process by fork would inherit this one's threads and open files.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=_RUNS_OF_A_PROCESS)


def _outcome(
    scenario: SimulationScenario, left_out: AbstractSet[str], line: _ProgressLine | None = None
) -> RunOutcome:
    try:
        result = simulate(scenario, line)
    except (BadInputError, SettingsError) as error:
        return FailedRun(error=str(error), is_refused=True)
    except KarpenterError as error:
        return FailedRun(error=str(error))
    except Exception as error:  # a defect in one run must not cost the others
        return FailedRun(error=f"{type(error).__name__}: {error}")
    document = {
        key: value for key, value in simulation_document(result).items() if key not in left_out
    }
    return FinishedRun(document=document, notes=result.notes)


class _RunCount:
    """Shows on a terminal how many runs have ended, and how long the others will take."""

    def __init__(self, total: int) -> None:
        self._total: Final = total
        self._began: Final = time.monotonic()
        self._ended = 0
        self._failed = 0

    def add(self, outcome: RunOutcome) -> None:
        """Count a run that has ended."""
        self._ended += 1
        self._failed += isinstance(outcome, FailedRun)
        passed = time.monotonic() - self._began
        left = passed / self._ended * (self._total - self._ended)
        failed = f", {self._failed} failed" if self._failed else ""
        _show(
            f"{self._ended} of {self._total} simulations have ended{failed}; "
            f"about {left / 60:.0f} min to go"
        )


class _ProgressLine:
    """Shows on a terminal how far a simulation has got."""

    def __init__(self, scenario: SimulationScenario, count: str) -> None:
        self._scenario: Final = scenario
        self._count: Final = count

    def __call__(self, progress: Progress) -> None:
        level = progress.level
        _show(
            f"{self._count}{progress.seconds / self._scenario.duration:4.0%}  "
            f"{level.nodes:.0f} nodes  {level.pods:.0f} pods  {level.pending:.0f} pending  "
            f"{level.price:.2f} per hour"
        )

    def end(self) -> None:
        """Remove the line."""
        _show("")


def _show(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_CLEAR_LINE + text)
        sys.stderr.flush()
