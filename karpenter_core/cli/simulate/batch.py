"""Runs simulations in processes of their own, as many at a time as there are cores."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.simulate.document import simulation_document
from karpenter_core.cli.simulate.run import simulate
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.run import Progress
    from karpenter_core.cli.simulate.scenario import SimulationScenario

__all__ = ["FinishedRun", "run_all"]

_CLEAR_LINE: Final = "\r\x1b[K"

FinishedRun = tuple["JsonObject", tuple[str, ...]]
"""The document of a simulation, and notes about its input."""


def run_all(scenarios: Sequence[SimulationScenario], *, jobs: int) -> list[FinishedRun]:
    """Run simulations, and return their documents in the order of the scenarios.

    Raises:
        KarpenterError: an object or a setting cannot be used.
    """
    if len(scenarios) == 1 or jobs == 1:
        found: list[FinishedRun] = []
        for number, scenario in enumerate(scenarios, start=1):
            line = _ProgressLine(scenario, f"{number} of {len(scenarios)}, ")
            found.append(_finished(scenario, line))
            line.end()
        return found
    return _run_in_processes(scenarios, jobs)


def _run_in_processes(scenarios: Sequence[SimulationScenario], jobs: int) -> list[FinishedRun]:
    # A process by fork would inherit this one's threads and open files.
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(scenarios))
    found: dict[int, FinishedRun] = {}
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = {
            pool.submit(_finished, scenario): number for number, scenario in enumerate(scenarios)
        }
        try:
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                _show(f"{len(found)} of {len(scenarios)} simulations are done")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            _show("")
    return [found[number] for number in range(len(scenarios))]


def _finished(scenario: SimulationScenario, line: _ProgressLine | None = None) -> FinishedRun:
    try:
        result = simulate(scenario, line)
    except BadInputError as error:
        raise BadInputError(str(error)) from error  # a plain one passes from process to process
    return simulation_document(result), result.notes


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
