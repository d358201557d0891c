"""Keeps a sample of mutants in a file, to judge the same ones again after changes.

A seed draws other mutants as soon as the product changes. In a file, each is named by its function and its
changed lines, so it is found again wherever these lines are now. The test that killed it stands beside it,
and is the first to judge it the next time.
"""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.areas import AREAS, sources
from tests.mutants.draw import Mutant, enum_members, mutants_of

Name = tuple[str, str, str, str]
"""Path, function, kind and diff."""


def save_sample(
    file: Path, mutants: Iterable[Mutant], *, root: Path, killers: Mapping[Mutant, str] = {}
) -> None:
    """Write mutants to a file, one a line, each with the test that killed it."""
    wanted = set(mutants)
    lines: list[str] = []
    members = enum_members(root, sources(root, tuple(AREAS)))
    for path in sorted({mutant.path for mutant in wanted}):
        for mutant, name, number in _named(path, root, members):
            if mutant in wanted:
                lines.append(json.dumps([*name, number, killers.get(mutant, "")]))
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The mutants of a file."""

    mutants: list[Mutant]
    """In the order of their places."""
    killers: dict[Mutant, str]
    gone: list[str]
    """Names of those whose lines have changed since."""


def read_sample(file: Path, *, root: Path) -> Sample:
    """Find the mutants of a file in the product as it is now."""
    wanted: dict[str, dict[tuple[Name, int], str]] = {}
    for line in file.read_text("utf-8").splitlines():
        *name, number, killer = json.loads(line)
        wanted.setdefault(name[0], {})[tuple(name), number] = killer
    killers: dict[Mutant, str] = {}
    gone: list[str] = []
    members = enum_members(root, sources(root, tuple(AREAS)))
    for path, names in sorted(wanted.items()):
        present = {(name, number): mutant for mutant, name, number in _named(path, root, members)}
        killers.update({present[each]: names[each] for each in names if each in present})
        gone += [f"{path} {name[1]}: {name[3]}" for name, n in names if (name, n) not in present]
    mutants = sorted(killers, key=lambda mutant: (mutant.path, mutant.line))
    return Sample(mutants=mutants, killers=killers, gone=gone)


def note_killers(file: Path, killers: Mapping[Mutant, str], *, root: Path) -> None:
    """Write the tests that killed mutants beside them; several processes may do so at once."""
    with file.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sample = read_sample(file, root=root)
        if not sample.gone:
            save_sample(file, sample.mutants, root=root, killers={**sample.killers, **killers})


def _named(
    path: str, root: Path, members: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Mutant, Name, int]]:
    """Yield the mutants of a module with their names; equal names are numbered."""
    if not (root / path).exists():
        return
    source = (root / path).read_text("utf-8")
    numbers: Counter[Name] = Counter()
    for mutant in mutants_of(path, source, members):
        name = (path, mutant.function, mutant.kind, mutant.diff(source))
        yield mutant, name, numbers[name]
        numbers[name] += 1
