"""Runs the simulations of a sweep, and sums them up in a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.cli.simulate.batch import FailedRun, FinishedRun, RunOutcome, run_all
from karpenter_core.cli.simulate.sweep_results import InputDigests, SweepResults, result_line
from karpenter_core.errors import BadInputError, KarpenterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.sweep import SweepRun

__all__ = ["run_sweep"]

_LEFT_OUT: Final = frozenset({"name", "series"})
"""Fields of a simulation that the entries of a sweep do not have."""


def run_sweep(
    runs: Sequence[SweepRun],
    *,
    jobs: int,
    results: Path | None = None,
    on_line: Callable[[str], object] | None = None,
) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the document of a sweep, the cheapest run first, and the notes about its input.

    `on_line` gets the line of each finished run, as a file of results has it, when the run has ended.

    Raises:
        BadInputError: no run can use its input, or the file of results cannot be used.
        KarpenterError: every run has failed.
    """
    kept = None if results is None else SweepResults(results)
    digests = InputDigests()
    needs_digests = kept is not None or on_line is not None
    inputs = [digests.digest(scenario) if needs_digests else "" for _, scenario in runs]
    outcomes: dict[int, RunOutcome] = {}
    for number, digest in enumerate(inputs):
        found = None if kept is None else kept.find(digest)
        if found is not None:
            outcomes[number] = found
    missing = [number for number in range(len(runs)) if number not in outcomes]

    def note(index: int, outcome: RunOutcome) -> None:
        number = missing[index]
        if isinstance(outcome, FinishedRun):
            if kept is not None:
                kept.add(inputs[number], outcome)
            if on_line is not None:
                on_line(result_line(inputs[number], outcome))
        outcomes[number] = outcome

    if missing:
        scenarios = [runs[number][1] for number in missing]
        run_all(scenarios, jobs=jobs, left_out=_LEFT_OUT, on_outcome=note)
    return _document(runs, [outcomes[number] for number in range(len(runs))])


def _document(
    runs: Sequence[SweepRun], outcomes: Sequence[RunOutcome]
) -> tuple[JsonObject, tuple[str, ...]]:
    documents: list[JsonObject] = []
    failed: list[JsonObject] = []
    notes: list[str] = []
    for (values, _), outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, FailedRun):
            failed.append({"values": dict(values), "error": outcome.error})
        else:
            documents.append({"values": dict(values), **outcome.document})
            notes += outcome.notes
    if not documents:
        refused = next((each for each in outcomes if isinstance(each, FailedRun)), None)
        error = "" if refused is None else refused.error
        is_refused = refused is not None and refused.is_refused
        raise (BadInputError if is_refused else KarpenterError)(error)
    documents.sort(key=lambda each: each["cost"]["total"])
    duration = runs[0][1].duration
    return (
        {"durationSeconds": duration, "runs": documents, "failed": failed},
        tuple(dict.fromkeys(notes)),
    )
