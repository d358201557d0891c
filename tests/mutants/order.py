"""Orders tests by how likely they are to see a change, in how little time."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from tests.mutants.areas import ROOT
from tests.mutants.draw import Mutant

Record = dict[str, tuple[float, list[str]]]
"""For each test the seconds of CPU that it took, and the blocks that it ran."""

_OVERHEAD_SECONDS: Final = 0.02
_POWER_OF_TIME: Final = 2.0
"""More than one, so that most of the tests that reach a change are run before the long ones."""
_POWER_OF_RANK: Final = 0.25
"""The weight against a test of the tests before it in its file."""

_OF_AN_IMPORT: Final = 3.0
_OF_A_MENTION: Final = 2.0
_OF_A_NAMESAKE: Final = 3.0
"""The chance of tests whose file imports the module, mentions the function or has their name."""

_OF_A_COMPARISON: Final = 4.0
"""The chance of tests whose whole outcome is compared with a recorded one."""
_COMPARED: Final = re.compile(r"/test_recorded_")

_CALL: Final = re.compile(r"\b([A-Za-z_]\w+)\(")
_WORD: Final = re.compile(r"[a-z0-9]{3,}")
_COMMON_WORDS: Final = frozenset({"test", "tests", "karpenter", "core", "provider", "providers"})


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def most_telling_first(
    tests: Iterable[str], mutant: Mutant, record: Record, *, root: Path = ROOT
) -> list[str]:
    """Order tests by how likely they are to see a change, for the time that they take.

    A test is likely to where the module is much of what it runs, and where its file is about the
    module; and the more so the fewer of its file, and the fewer cases of the same test, come before
    it. Most of all short tests come first: hundreds of them take as long as one life of a controller.
    Of a change around calls of other functions, tests that are about these see it as soon.
    """
    tests = list(tests)
    chances = _chances(tests, mutant, record, root)
    for called in called_functions(mutant, (record[test][1] for test in tests), root=root):
        for test, chance in _chances(tests, called, record, root).items():
            chances[test] = max(chance, chances[test])
    return sorted(chances, key=lambda test: (chances[test], test), reverse=True)


def called_functions(
    mutant: Mutant, blocks: Iterable[Iterable[str]], *, root: Path = ROOT
) -> list[Mutant]:
    """Return a change of each function that the changed text calls, if its name tells which it is."""
    file = root / mutant.path
    text = file.read_bytes()[mutant.start : mutant.end].decode() if file.exists() else ""
    names = set(_CALL.findall(text))
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for block in set[str]().union(*blocks) if names else ():
        path, _, function = block.rpartition("#")[0].partition("::")
        if (name := function.rpartition(".")[2]) in names:
            found[name].add((path, function))
    return [
        replace(mutant, path=path, function=function)
        for places in found.values()
        if len(places) == 1
        for path, function in places
    ]


def _chances(tests: Iterable[str], mutant: Mutant, record: Record, root: Path) -> dict[str, float]:
    """Return how likely each test is to see a change, for the time that it takes."""
    module = f"{mutant.path}::"
    by_file: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for test in tests:
        took, blocks = record[test]
        share = sum(each.startswith(module) for each in blocks) / len(blocks)
        by_file[file_of(test)].append((share / (took + _OVERHEAD_SECONDS) ** _POWER_OF_TIME, test))
    chances: dict[str, float] = {}
    for file, scored in by_file.items():
        near = nearness(file, _text(root / file), mutant)
        cases: Counter[str] = Counter()
        for rank, (score, test) in enumerate(sorted(scored, reverse=True)):
            function = test.partition("[")[0]
            chance = near * score / (1 + rank) ** _POWER_OF_RANK / (1 + cases[function])
            chances[test] = chance * _OF_A_COMPARISON if _COMPARED.search(file) else chance
            cases[function] += 1
    return chances


def nearness(file: str, text: str, mutant: Mutant) -> float:
    """Return how much a test file is about the place of a change; 1 if nothing tells that it is."""
    near = 1.0
    folder, _, stem = mutant.path.removesuffix(".py").rpartition("/")
    parent = folder.rpartition("/")[2]
    if re.search(rf"\b{parent}(?:\.| import (?:[^#\n]*\W)?){stem}\b", text):
        near *= _OF_AN_IMPORT
    function = mutant.function.rpartition(".")[2]
    if function and re.search(rf"\b{function}\b", text):
        near *= _OF_A_MENTION
    own, theirs = _words(f"{parent}/{stem}"), _words(file)
    return near * (1 + (_OF_A_NAMESAKE - 1) * len(own & theirs) / max(1, len(own)))


def _words(path: str) -> frozenset[str]:
    """Return the words of a path's last two parts, without the plural."""
    parts = "/".join(path.removesuffix(".py").split("/")[-2:])
    return frozenset(word.rstrip("s") for word in _WORD.findall(parts)) - _COMMON_WORDS


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")
