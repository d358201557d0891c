"""Records which blocks of the product each test runs, and finds the records that a change made stale.

A record is kept outside of the repository, by the content of the test file, with a digest of every function
that the tests of the file ran. A test runs the same blocks as long as it and those functions stay as they
are, so after a change of the product only the tests that ran a changed function are recorded again. A
constant that changes which functions run is not noticed: remove the folder after large moves of code.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.areas import ROOT
from tests.mutants.judge import Outcome, in_child, run_each
from tests.mutants.order import Record, file_of
from tests.mutants.probes import Blocks, functions_of

CACHE: Final = Path.home() / ".cache/karpenter-core/mutants"
_RECORDING_CPU_SECONDS: Final = 300.0
"""Of each file; the tests of it that would come later have no record, which judging tells."""
_SAVING_CPU_SECONDS: Final = 5.0
"""A limit of time loses no more of a record than this."""


class RecordingError(Exception):
    """Two processes must not record at once: they would do everything twice."""


class FunctionDigests:
    """Computes a digest of the text of each function of the product."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._by_module: Final[dict[str, Mapping[str, str]]] = {}

    def of(self, function: str) -> str:
        """Return the digest of `PATH::NAME`; empty where there is no such function."""
        path, _, name = function.partition("::")
        if path not in self._by_module:
            self._by_module[path] = self._module(self._root / path)
        return self._by_module[path].get(name, "")

    def _module(self, file: Path) -> Mapping[str, str]:
        if not file.exists():
            return {}
        source = file.read_text("utf-8")
        texts: dict[str, list[str]] = defaultdict(list)
        lines = source.splitlines()
        for name, node in functions_of(ast.parse(source)):
            # Overloads and the parts of a property share their name.
            texts[name] += lines[node.lineno - 1 : node.end_lineno]
        return {
            name: hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]
            for name, text in texts.items()
        }


class Recorder:
    """Keeps, outside of the repository, which blocks each test of a file runs."""

    def __init__(
        self,
        blocks: Blocks,
        root: Path = ROOT,
        cache: Path | None = None,
        *,
        keeps_stale: bool = False,
    ) -> None:
        self._blocks = blocks
        self._keeps_stale = keeps_stale
        self._root = root
        self._cache = cache or CACHE
        self._digests = FunctionDigests(root)

    def place(self, file: str) -> Path:
        """Return where the record of a test file is: a changed file has another place."""
        content = (self._root / file).read_bytes()
        return self._cache / f"{hashlib.sha256(file.encode() + content).hexdigest()[:24]}.json.gz"

    def missing(self, items: Sequence[pytest.Item]) -> dict[str, list[pytest.Item]]:
        """Return the tests of each file that have no record or a stale one, small files first."""
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[file_of(item.nodeid)].append(item)
        result: dict[str, list[pytest.Item]] = {}
        for file, tests in files.items():
            if not self.place(file).exists():
                result[file] = tests
            elif stale := self._stale(file):
                result[file] = [item for item in tests if item.nodeid in stale]
        result = {file: tests for file, tests in result.items() if tests}
        return dict(sorted(result.items(), key=lambda pair: len(pair[1])))

    def _stale(self, file: str) -> set[str]:
        """Return the tests of a file that ran a function that has changed since."""
        if self._keeps_stale:
            return set()
        kept = _load(self.place(file))
        changed = {
            function
            for function, digest in kept["functions"].items()
            if self._digests.of(function) != digest
        }
        return {
            test
            for test, (_, blocks) in kept["tests"].items()
            if changed and not changed.isdisjoint(map(_function_of, blocks))
        }

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
        """Run tests of a file and keep the blocks of each beside what is known; in a child."""
        place = self.place(file)
        partial = place.with_suffix(".partial")
        known: Record = _load(place)["tests"] if place.exists() else {}
        for item in items:
            known.pop(item.nodeid, None)
        self._save(partial, known)

        def child() -> str:
            result = dict(known)
            saved = 0.0
            spent = 0.0
            self._blocks.taken()
            for test, took, outcome in run_each(items):
                names = [self._blocks.names[each] for each in self._blocks.taken()]
                spent += took
                if outcome is Outcome.PASSED:
                    result[test] = (took, names)
                if spent >= saved + _SAVING_CPU_SECONDS:
                    saved = spent
                    self._save(partial, result)
            self._save(partial, result)
            return ""

        ended = in_child(child, cpu_seconds=_RECORDING_CPU_SECONDS)[0]
        partial.rename(place)  # what is known when a limit ends the child, too
        return ended

    def read(self, items: Sequence[pytest.Item]) -> Record:
        """Return all records that hold; `missing` and `unrecorded` tell what they lack."""
        result: Record = {}
        for file in sorted({file_of(item.nodeid) for item in items}):
            place = self.place(file)
            if place.exists():
                stale = self._stale(file)
                tests = _load(place)["tests"]
                result.update({test: known for test, known in tests.items() if test not in stale})
        return result

    def _save(self, place: Path, tests: Record) -> None:
        """Write a record whole or not at all: a limit may end this process here."""
        functions = {_function_of(block) for _, blocks in tests.values() for block in blocks}
        content = {
            "tests": tests,
            "functions": {function: self._digests.of(function) for function in sorted(functions)},
        }
        new = place.with_suffix(".new")
        new.write_bytes(gzip.compress(json.dumps(content).encode(), 4))
        new.rename(place)


def unrecorded(items: Sequence[pytest.Item], record: Record) -> dict[str, int]:
    """Return how many tests of each file no record tells of: they failed, or came too late."""
    return dict(Counter(file_of(item.nodeid) for item in items if item.nodeid not in record))


def _function_of(block: str) -> str:
    return block.rpartition("#")[0]


def _load(place: Path) -> dict:
    return json.loads(gzip.decompress(place.read_bytes()))
