"""Runs tests on mutants in forked children of one process; a pytest plugin.

Collecting takes half a minute and is done once. Each child changes the code of one function where it
stands in memory, runs the tests that reach the change, and ends at the first that fails. The parent
never runs a test, so a child inherits neither threads nor loops, and no file is ever changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import gzip
import hashlib
import importlib
import json
import os
import resource
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest

from tests.mutants.areas import ROOT
from tests.mutants.draw import Mutant
from tests.mutants.order import Record, file_of, most_telling_first
from tests.mutants.probes import Blocks, block_of

CACHE: Final = Path.home() / ".cache/karpenter-core/mutants"
_LEAST_CPU_SECONDS: Final = 20.0
_WALL_SECONDS: Final = 900.0
_RECORDING_CPU_SECONDS: Final = 300.0
"""Of each file; the tests of it that would come later have no record, which judging tells."""
_SAVING_CPU_SECONDS: Final = 5.0
"""A limit of time loses no more of a record than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of the tests on a mutant."""

    mutant: Mutant
    killed_by: str
    """A test, or a limit that was passed; empty for a survivor."""
    tried: int
    reaching: int


class RecordingError(Exception):
    """Two processes must not record at once: they would do everything twice."""


class Recorder:
    """Keeps, outside of the repository, which blocks each test of a file runs."""

    def __init__(self, blocks: Blocks, root: Path = ROOT, cache: Path = CACHE) -> None:
        self._blocks = blocks
        self._root = root
        self._cache = cache

    def place(self, file: str) -> Path:
        """Return where the record of a test file is: a changed file has another place."""
        content = (self._root / file).read_bytes()
        return self._cache / f"{hashlib.sha256(file.encode() + content).hexdigest()[:24]}.json.gz"

    def missing(self, items: Sequence[pytest.Item]) -> dict[str, list[pytest.Item]]:
        """Return the tests of each file without a record, files with few tests first."""
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[file_of(item.nodeid)].append(item)
        unjudged = {file: each for file, each in files.items() if not self.place(file).exists()}
        return dict(sorted(unjudged.items(), key=lambda pair: len(pair[1])))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from recording; raise RecordingError where one does."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with (self._cache / "recording.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordingError(f"another process records into {self._cache}") from None
            yield

    def record(self, file: str, items: Sequence[pytest.Item]) -> str:
        """Run the tests of a file and keep the blocks of each; in a child."""
        place = self.place(file)
        partial = place.with_suffix(".partial")
        _save(partial, {})

        def child() -> str:
            result: Record = {}
            saved = 0.0
            spent = 0.0
            self._blocks.taken()
            for test, took, passed in run_each(items):
                names = [self._blocks.names[each] for each in self._blocks.taken()]
                spent += took
                if passed:
                    result[test] = (took, names)
                if spent >= saved + _SAVING_CPU_SECONDS:
                    saved = spent
                    _save(partial, result)
            _save(partial, result)
            return ""

        ended = in_child(child, cpu_seconds=_RECORDING_CPU_SECONDS)[0]
        partial.rename(place)  # what is known when a limit ends the child, too
        return ended

    def read(self, items: Sequence[pytest.Item]) -> Record:
        """Return all records that there are; `missing` and `unrecorded` tell what they lack."""
        result: Record = {}
        for file in sorted({file_of(item.nodeid) for item in items}):
            place = self.place(file)
            if place.exists():
                result.update(json.loads(gzip.decompress(place.read_bytes())))
        return result


def unrecorded(items: Sequence[pytest.Item], record: Record) -> dict[str, int]:
    """Return how many tests of each file no record tells of: they failed, or came too late."""
    return dict(Counter(file_of(item.nodeid) for item in items if item.nodeid not in record))


def _save(place: Path, record: Record) -> None:
    """Write a record whole or not at all: a limit may end this process here."""
    new = place.with_suffix(".new")
    new.write_bytes(gzip.compress(json.dumps(record).encode(), 4))
    new.rename(place)


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
        return next((test for test, _, passed in tests if not passed), "")

    said, failed = in_child(child, cpu_seconds=3 * expected + _LEAST_CPU_SECONDS)
    killed_by = failed or said
    return Verdict(mutant=mutant, killed_by=killed_by, tried=len(chosen), reaching=len(tests))


def passes(item: pytest.Item) -> bool:
    """Return whether a test passes without a mutant."""

    def child() -> str:
        return "".join(test for test, _, passed in run_each([item]) if not passed)

    return in_child(child, cpu_seconds=_RECORDING_CPU_SECONDS) == ("", "")


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
                each.__code__ = code
                done += 1
    if not done:
        raise LookupError(f"no function {mutant.function} of {mutant.path} in memory")


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


def run_each(items: Sequence[pytest.Item]) -> Iterator[tuple[str, float, bool]]:
    """Run tests one by one; yield the name, the seconds of CPU, and whether it passed."""
    watch = _Watch()
    if items:
        items[0].config.pluginmanager.register(watch)
    for index, item in enumerate(items):
        watch.passed = True
        begun = time.process_time()
        following = items[index + 1] if index + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        yield item.nodeid, time.process_time() - begun, watch.passed


class _Watch:
    passed = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed = self.passed and report.passed


def in_child(work: Callable[[], str], *, cpu_seconds: float) -> tuple[str, str]:
    """Do work in a forked child; return how it ended, empty if well, and what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _become_child(reading, cpu_seconds)
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
            _end_group(child)
            return status, told.decode()
        if time.monotonic() > until:
            _end_group(child)
            os.waitpid(child, 0)
            return None, told.decode()
        time.sleep(0.05)


def _end_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _become_child(reading: int, cpu_seconds: float) -> None:
    os.setsid()
    os.close(reading)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit = int(time.process_time() + cpu_seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
