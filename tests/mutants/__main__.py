"""Draws mutants of the product and reports which of them the tests kill.

    .venv/bin/python -m tests.mutants --record               which test reaches what (kept)
    .venv/bin/python -m tests.mutants --seed 7 --count 150   draw mutants and judge them
    .venv/bin/python -m tests.mutants --seed 7 --count 150 --draw-only

The first takes as long as the unit tests, and afterwards only what changed test files, and tests that run
changed functions, take. Nothing is judged while tests have no record, because mutants that only they kill
would survive. A survivor is judged again with more time (`--survivor-budget`), and with the tests that CI
runs besides: properties on their usual examples, and runs of whole clusters, which are taken by what they
are about unless `--record --with-cluster-runs` recorded what they reach. Judge in a worktree in which
nothing is edited: judging ends where a file changes. Exit code
1: fewer are killed than `--goal` per cent of those that are not explained as equivalent, or none was
judged. Where pytest cannot collect the tests, its own.
"""

# ruff: noqa: T201 - a program that reports

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.areas import AREAS, NOT_JUDGES, ROOT, TESTS
from tests.mutants.draw import Mutant, draw
from tests.mutants.equivalent import reason_for
from tests.mutants.frozen import FrozenTree, TreeChangedError
from tests.mutants.judge import Verdict, failure_of, judge, tests_reaching
from tests.mutants.modules import judge_module, name_at, tests_mentioning
from tests.mutants.order import Record, file_of
from tests.mutants.probes import MARKS, Blocks, Hook
from tests.mutants.records import Recorder, RecordingError, unrecorded
from tests.mutants.samples import note_killers, read_sample, save_sample
from tests.mutants.wider import CLUSTER_RUN, PROPERTY, judge_wider, nearest_files, wider_tests

_WIDER: Final = frozenset({CLUSTER_RUN, PROPERTY})
_KNOWN_SECONDS: Final = 20.0
"""Of CPU, that a test which killed before may take."""
_QUICK_EXAMPLES: Final = "5"
"""Of each property: as many judge as were recorded, or times and limits would not be comparable."""


class Session:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, blocks: Blocks, options: argparse.Namespace) -> None:
        self._recorder = Recorder(blocks, keeps_stale=options.stale_records)
        self._options = options
        self._sound: set[str] = set()
        self._tree = FrozenTree(ROOT)
        self._marks: dict[str, frozenset[str]] = {}
        self.verdicts: list[Verdict] = []
        self.unrecorded: dict[str, int] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, or judge."""
        self._marks = {
            item.nodeid: frozenset(mark.name for mark in item.iter_markers())
            for item in session.items
        }
        runs = self._options.with_cluster_runs
        items = [
            item for item in session.items if runs or CLUSTER_RUN not in self._marks[item.nodeid]
        ]
        try:
            if self._options.record or self._options.record_first:
                with self._recorder.alone():
                    self._record(items)
            if not self._options.record and self._is_recorded(items):
                self._judge(session.items)
        except (RecordingError, TreeChangedError) as error:
            print(error, flush=True)
            raise session.Failed from error
        return True

    def _is_recorded(self, items: Sequence[pytest.Item]) -> bool:
        """Name the files and tests without a record; return whether judging may begin."""
        missing = self._recorder.missing(items)
        rest = [item for item in items if file_of(item.nodeid) not in missing]
        self.unrecorded = unrecorded(rest, self._recorder.read(rest))
        for file, count in sorted(self.unrecorded.items()):
            print(f"{count} tests without a record: {file}", flush=True)
        for file in sorted(missing):
            print(f"no record: {file}", flush=True)
        if missing and not self._options.incomplete:
            print(
                f"{len(missing)} files have no record: --record-first, or --incomplete", flush=True
            )
            return False
        self.unrecorded.update({file: len(tests) for file, tests in missing.items()})
        return True

    def _record(self, items: Sequence[pytest.Item]) -> None:
        missing = self._recorder.missing(items)
        count = sum(len(tests) for tests in missing.values())
        print(
            f"{len(items)} tests; {len(missing)} files to record, {count} tests of them", flush=True
        )
        for number, (file, tests) in enumerate(missing.items(), 1):
            begun = time.monotonic()
            ended = self._recorder.record(file, tests)
            took = time.monotonic() - begun
            print(f"{number}/{len(missing)} {file}: {took:.0f} s {ended}", flush=True)

    def _judge(self, items: Sequence[pytest.Item]) -> None:
        record = self._recorder.read(items)
        by_name = {item.nodeid: item for item in items}
        mutants = drawn(self._options)
        file = self._options.sample
        killers = {} if file is None else read_sample(file, root=ROOT).killers
        for mutant in mutants:
            self._tree.check()
            killer = killers.get(mutant, "")
            verdict = self._known_verdict(mutant, killer, by_name) or self._verdict(
                mutant, record, by_name, budget_seconds=self._options.budget
            )
            self.verdicts.append(verdict)
            tell(len(self.verdicts), verdict)
        if self._options.first_pass_only:
            return
        for index, verdict in enumerate(self.verdicts):
            if not verdict.killed_by and not is_equivalent(verdict):
                self._tree.check()
                self.verdicts[index] = self._judge_again(verdict, record, by_name)
                tell(index + 1, self.verdicts[index])

    def _known_verdict(
        self, mutant: Mutant, killer: str, items: dict[str, pytest.Item]
    ) -> Verdict | None:
        """Judge a mutant with the test that killed it before; None if it does not now."""
        if not killer.count("::"):
            return None
        source = (ROOT / mutant.path).read_text("utf-8")
        item = items.get(killer)
        if item is None or not mutant.function or not _WIDER.isdisjoint(self._marks[killer]):
            seconds = self._options.survivor_seconds
            of_ci = not _WIDER.isdisjoint(self._marks.get(killer, ()))
            killed = bool(judge_wider(mutant, source, [killer], seconds=seconds, of_ci=of_ci))
        else:
            known: Record = {killer: (_KNOWN_SECONDS, [])}
            verdict = judge(
                mutant, source, [killer], known, items, budget_seconds=self._options.budget
            )
            if verdict.killed_by == killer and killer not in self._sound:
                if failure_of(item):
                    return None
                self._sound.add(killer)
            killed = verdict.killed_by == killer
        return Verdict(mutant=mutant, killed_by=killer, tried=1, reaching=1) if killed else None

    def _judge_again(
        self, verdict: Verdict, record: Record, items: dict[str, pytest.Item]
    ) -> Verdict:
        """Judge a survivor with the tests that did not run yet, and with those of CI."""
        mutant = verdict.mutant
        source = (ROOT / mutant.path).read_text("utf-8")
        seconds = self._options.survivor_seconds
        files = nearest_files(mutant, self._marks)
        killed_by = judge_wider(mutant, source, files, seconds=seconds, of_ci=False)
        if killed_by:
            return replace(verdict, killed_by=killed_by)
        again = verdict
        if verdict.tried < verdict.reaching:
            rest = {test: known for test, known in record.items() if test not in verdict.ran}
            budget = self._options.survivor_budget
            again = self._verdict(mutant, rest, items, budget_seconds=budget)
            again = replace(again, tried=again.tried + len(verdict.ran), reaching=verdict.reaching)
        if again.killed_by:
            return again
        if mutant.function:
            reaching = tests_reaching(mutant, source, record)
        else:
            reaching = tests_mentioning(name_at(source, mutant.line), mutant, record)
        tests = wider_tests(mutant, reaching, self._marks, record)
        killed_by = judge_wider(mutant, source, tests, seconds=seconds, of_ci=True)
        return replace(again, killed_by=killed_by)

    def _verdict(
        self,
        mutant: Mutant,
        record: Record,
        items: dict[str, pytest.Item],
        *,
        budget_seconds: float,
    ) -> Verdict:
        """Judge a mutant with tests that pass without it."""
        source = (ROOT / mutant.path).read_text("utf-8")
        while True:
            if mutant.function:
                tests = tests_reaching(mutant, source, record)
                verdict = judge(mutant, source, tests, record, items, budget_seconds=budget_seconds)
            else:
                verdict = judge_module(mutant, source, record, budget_seconds=budget_seconds)
            test = verdict.killed_by
            if test not in record or test in self._sound:
                return verdict
            reason = failure_of(items[test])
            if not reason:
                self._sound.add(test)
                return verdict
            self._tree.check()
            print(f"fails without a mutant: {test}\n{reason}", flush=True)
            del record[test]


def tell(number: int, verdict: Verdict) -> None:
    """Print a verdict, and what there is to know of a survivor."""
    mutant = verdict.mutant
    outcome = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
    print(f"{number} {mutant.path}:{mutant.line} ({mutant.kind}): {outcome}", flush=True)
    if not verdict.killed_by:
        print(described(verdict), flush=True)


def is_equivalent(verdict: Verdict) -> bool:
    """Return whether a mutant is explained as one that changes no behaviour."""
    return bool(reason_for(verdict.mutant, (ROOT / verdict.mutant.path).read_text("utf-8")))


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """Return the sample that the options ask for."""
    if options.sample is not None and options.sample.exists():
        sample = read_sample(options.sample, root=ROOT)
        mutants = sample.mutants
        for each in sample.gone:
            print(f"changed since, and left out: {each}", flush=True)
    else:
        mutants = draw(ROOT, AREAS, seed=options.seed, count=options.count)
        if options.sample is not None:
            save_sample(options.sample, mutants, root=ROOT)
    part, _, parts = options.part.partition("/")
    mine = mutants[int(part) - 1 :: int(parts)]
    places = options.only or [""]
    return [
        mutant
        for mutant in mine
        if any(place in f"{mutant.path}:{mutant.line}" for place in places)
    ]


def described(verdict: Verdict) -> str:
    """Return a survivor as lines of text."""
    mutant = verdict.mutant
    source = (ROOT / mutant.path).read_text("utf-8")
    tests = f"{verdict.tried} of {verdict.reaching} tests that reach it were run"
    if not verdict.reaching:
        tests = "no test reaches it"
    reason = reason_for(mutant, source)
    lines = [f"{mutant.path}:{mutant.line}  {mutant.kind}; {tests}", mutant.diff(source)]
    return "\n".join(lines + [f"equivalent: {reason}"] * bool(reason)) + "\n"


def report(verdicts: Sequence[Verdict]) -> float:
    """Print the survivors and both ratios; return the share without equivalent mutants."""
    survivors = [verdict for verdict in verdicts if not verdict.killed_by]
    equal = [verdict for verdict in survivors if is_equivalent(verdict)]
    print("\n=== survivors ===\n")
    for verdict in survivors:
        print(described(verdict))
    killed = len(verdicts) - len(survivors)
    judged = len(verdicts) - len(equal)
    raw = killed / max(1, len(verdicts))
    share = killed / max(1, judged)
    limits = sum(not verdict.killed_by.count("::") for verdict in verdicts if verdict.killed_by)
    print(f"killed: {killed} of {len(verdicts)} ({raw:.1%}), {limits} of them by a limit of time")
    print(f"without {len(equal)} equivalent: {killed} of {judged} ({share:.1%})")
    return share


def main(arguments: Sequence[str]) -> int:
    """Read the options and do what they say."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument(
        "--sample", type=Path, help="judge the mutants of this file; draw and write them if missing"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of CPU for a mutant")
    parser.add_argument(
        "--survivor-budget", type=float, default=300.0, help="seconds of CPU for a survivor"
    )
    parser.add_argument(
        "--survivor-seconds",
        type=float,
        default=900.0,
        help="seconds for the properties and cluster runs of a survivor",
    )
    parser.add_argument(
        "--first-pass-only", action="store_true", help="do not judge survivors again"
    )
    parser.add_argument("--goal", type=float, default=95.0, help="per cent that must be killed")
    parser.add_argument(
        "--only",
        action="append",
        help="judge those whose PATH:LINE contains this, or another one given so",
    )
    parser.add_argument(
        "--part", default="1/1", help="K/N: judge this one of N parts of the sample"
    )
    parser.add_argument("--record", action="store_true", help="record what the tests reach")
    parser.add_argument(
        "--record-first", action="store_true", help="record what is missing, then judge"
    )
    parser.add_argument(
        "--incomplete", action="store_true", help="judge without files that have no record"
    )
    parser.add_argument(
        "--stale-records",
        action="store_true",
        help="choose tests by records of functions that have changed since, too",
    )
    parser.add_argument("--with-cluster-runs", action="store_true", help="record cluster runs too")
    parser.add_argument("--draw-only", action="store_true", help="print the sample")
    parser.add_argument("tests", nargs="*", help="test files or folders (all)")
    options = parser.parse_args(arguments)
    print(f"the same mutants again with --seed {options.seed}", flush=True)
    if options.draw_only:
        for mutant in drawn(options):
            source = (ROOT / mutant.path).read_text("utf-8")
            print(f"{mutant.path}:{mutant.line} ({mutant.kind})\n{mutant.diff(source)}")
        return 0
    session, code = collect_and_run(options)
    if code or options.record:
        return code
    if not session.verdicts:
        print("no mutant was judged", flush=True)
        return 1
    share = report(session.verdicts)
    if options.sample is not None:
        killers = {each.mutant: each.killed_by for each in session.verdicts}
        note_killers(options.sample, killers, root=ROOT)
    lost = session.unrecorded
    if lost:
        print(f"{sum(lost.values())} tests of {len(lost)} files had no record and judged nothing")
    return int(share * 100 < options.goal)


def collect_and_run(options: argparse.Namespace) -> tuple[Session, int]:
    """Collect all tests with marks in the product, hand them to a session; add pytest's code."""
    blocks = Blocks()

    def compiled(source: str, path: str):
        relative = str(Path(path).resolve().relative_to(ROOT))
        return compile(blocks.instrument(source, relative), path, "exec", dont_inherit=True)

    hook = Hook([ROOT / area for area in AREAS], compiled)
    hook.globals[MARKS] = blocks.hits
    hook.install()
    os.environ["KARPENTER_PROPERTY_EXAMPLES"] = _QUICK_EXAMPLES
    session = Session(blocks, options)
    left_out = [f"--ignore={path}" for path in NOT_JUDGES]
    left_out += [
        "-m",
        "not e2e and not upstream and not charts and not images and not browser and not developer_tools",
    ]
    # A busy machine is no mutant; one that hangs in a loop ends at its limit of CPU.
    limits = ["-o", "timeout=300"]
    usual = [
        "-q",
        "-s",
        "--assert=plain",
        "--tb=native",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--hypothesis-seed=0",
    ]
    with tempfile.TemporaryDirectory() as folder:
        # Not the folder that all pytest processes of a user share, and of which they clear the oldest.
        own = f"--basetemp={folder}/base"
        arguments = [*usual, *limits, own, *left_out, *(options.tests or TESTS)]
        return session, int(pytest.main(arguments, plugins=[session]))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
