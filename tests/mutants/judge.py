"""Runs tests on mutants in forked children of one process; a pytest plugin.

Collecting takes half a minute and is done once. Each child changes the code of one function where it
stands in memory, runs the tests that reach the change, and ends at the first that fails. The parent
never runs a test, so a child inherits neither threads nor loops, and no file is ever changed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest

from tests.mutants.areas import ROOT
from tests.mutants.draw import Mutant
from tests.mutants.lifetime import end_group, end_with
from tests.mutants.order import Record, most_telling_first
from tests.mutants.probes import block_of

_LEAST_CPU_SECONDS: Final = 20.0
_WALL_SECONDS: Final = 900.0
_PASSING_CPU_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of the tests on a mutant."""

    mutant: Mutant
    killed_by: str
    """A test, or a limit that was passed; empty for a survivor."""
    tried: int
    reaching: int
    ran: tuple[str, ...] = ()
    """The tests that were run; empty for a mutant of a module's body."""


def tests_reaching(mutant: Mutant, source: str, record: Record) -> list[str]:
    """Return the tests that run the block of a change, those that are likely to see it first."""
    block = f"{mutant.path}::{block_of(source, mutant.line)}"
    reaching = (test for test, (_, ran) in record.items() if block in ran)
    return most_telling_first(reaching, mutant, record)


def judge(
    mutant: Mutant,
    source: str,
    tests: Sequence[str],
    record: Record,
    items: dict[str, pytest.Item],
    *,
    budget_seconds: float,
) -> Verdict:
    """Run the tests, as many as the budget of CPU allows, until one fails."""
    chosen: list[str] = []
    expected = 0.0
    for test in tests:
        if test in items and (not chosen or expected + record[test][0] <= budget_seconds):
            chosen.append(test)
            expected += record[test][0]
    if not chosen:
        return Verdict(mutant=mutant, killed_by="", tried=0, reaching=len(tests))

    def child() -> str:
        put_into_memory(mutant, source)
        tests = run_each([items[test] for test in chosen])
        return next((test for test, _, outcome in tests if outcome is Outcome.FAILED), "")

    said, failed = in_child(child, cpu_seconds=3 * expected + _LEAST_CPU_SECONDS)
    return Verdict(
        mutant=mutant,
        killed_by=failed or said,
        tried=len(chosen),
        reaching=len(tests),
        ran=tuple(chosen),
    )


def failure_of(item: pytest.Item) -> str:
    """Return why a test fails without a mutant; empty if it passes."""

    def child() -> str:
        watch = Watch()
        tests = run_each([item], watch)
        failed = [test for test, _, outcome in tests if outcome is Outcome.FAILED]
        return watch.reason[-2000:] or "it fails" if failed else ""

    ended, reason = in_child(child, cpu_seconds=_PASSING_CPU_SECONDS)
    return ended or reason


def put_into_memory(mutant: Mutant, source: str) -> None:
    """Give the living functions of a module the code that they have in the mutant."""
    path = str(ROOT / mutant.path)
    importlib.import_module(module_name(mutant.path))  # maybe none of the tests has yet
    changed = compile(mutant.apply(source), path, "exec", dont_inherit=True)
    changed_code = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(changed)
        if f"{code.co_qualname}.".startswith(f"{mutant.function}.")
    }
    gc.unfreeze()
    done = 0
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == path:
            code = changed_code.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
            if code is not None:
                each.__code__ = with_free_variables(code, each.__code__.co_freevars)
                done += 1
    if not done:
        raise LookupError(f"no function {mutant.function} of {mutant.path} in memory")


def with_free_variables(code: CodeType, names: tuple[str, ...]) -> CodeType:
    """Return code that a function with these free variables takes, though it may use none of them.

    Without its `super()` a method has no free variable any more.
    """
    return code if code.co_freevars else code.replace(co_freevars=names)


def module_name(path: str) -> str:
    """Return the name by which a module of the product is imported."""
    parts = Path(path).with_suffix("").parts
    first = next(index for index, part in enumerate(parts) if part.startswith("karpenter_"))
    return ".".join(part for part in parts[first:] if part != "__init__")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


class Outcome(Enum):
    """Verdict of a test on the product; one that is skipped, or expected to fail, has none."""

    PASSED = auto()
    SKIPPED = auto()
    FAILED = auto()


class Watch:
    """Notes the outcome of the running test, and the last reason why one did not pass."""

    outcome = Outcome.PASSED
    reason = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test."""
        if report.failed:
            self.outcome = Outcome.FAILED
        elif report.skipped and self.outcome is Outcome.PASSED:
            self.outcome = Outcome.SKIPPED
        if not report.passed:
            self.reason = report.longreprtext


def run_each(
    items: Sequence[pytest.Item], watch: Watch | None = None
) -> Iterator[tuple[str, float, Outcome]]:
    """Run tests one by one; yield the name, the seconds of CPU, and the outcome."""
    watch = watch or Watch()
    if items:
        items[0].config.pluginmanager.register(watch)
    for index, item in enumerate(items):
        watch.outcome = Outcome.PASSED
        begun = time.process_time()
        following = items[index + 1] if index + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        yield item.nodeid, time.process_time() - begun, watch.outcome


def in_child(work: Callable[[], str], *, cpu_seconds: float) -> tuple[str, str]:
    """Do work in a forked child; return how it ended, empty if well, and what it returned."""
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _become_child(parent, reading, cpu_seconds)
        code = 3
        try:
            os.write(writing, work().encode())
            code = 0
        except BaseException as error:  # the child must end here, whatever happens
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(code)
    os.close(writing)
    os.set_blocking(reading, False)
    status, told = _wait(child, reading)
    os.close(reading)
    if status is None:
        return "time limit", told
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}", told
    if os.WEXITSTATUS(status):
        raise RuntimeError(told)
    return "", told


def _wait(child: int, pipe: int) -> tuple[int | None, str]:
    """Return the status of a child, unless it is ended for taking too long, and its output."""
    told = b""
    until = time.monotonic() + _WALL_SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(BlockingIOError):
            told += os.read(pipe, 65536)
        if done:
            end_group(child)
            return status, told.decode()
        if time.monotonic() > until:
            end_group(child)
            os.waitpid(child, 0)
            return None, told.decode()
        time.sleep(0.05)


def _become_child(parent: int, reading: int, cpu_seconds: float) -> None:
    os.setsid()
    end_with(parent)
    os.close(reading)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit = int(time.process_time() + cpu_seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
