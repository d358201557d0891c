"""Keeps a sample of mutants in a file, to judge the same ones again after changes.

A seed draws other mutants as soon as the product changes. In a file, each is named by its function and its
changed lines, so it is found again wherever these lines are now.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.mutants.areas import AREAS, sources
from tests.mutants.draw import Mutant, enum_members, mutants_of

Name = tuple[str, str, str, str]
"""Path, function, kind and diff."""


def save_sample(file: Path, mutants: Iterable[Mutant], *, root: Path) -> None:
    """Write mutants to a file, one a line."""
    wanted = set(mutants)
    lines: list[str] = []
    members = enum_members(root, sources(root, tuple(AREAS)))
    for path in sorted({mutant.path for mutant in wanted}):
        for mutant, name, number in _named(path, root, members):
            if mutant in wanted:
                lines.append(json.dumps([*name, number]))
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def read_sample(file: Path, *, root: Path) -> tuple[list[Mutant], list[str]]:
    """Return the mutants of a file in the order of their places, and the names of those that are gone."""
    wanted: dict[str, list[tuple[Name, int]]] = {}
    for line in file.read_text("utf-8").splitlines():
        *name, number = json.loads(line)
        wanted.setdefault(name[0], []).append((tuple(name), number))
    found: list[Mutant] = []
    gone: list[str] = []
    members = enum_members(root, sources(root, tuple(AREAS)))
    for path, names in sorted(wanted.items()):
        present = {(name, number): mutant for mutant, name, number in _named(path, root, members)}
        found += [present[each] for each in names if each in present]
        gone += [f"{path} {name[1]}: {name[3]}" for name, n in names if (name, n) not in present]
    return sorted(found, key=lambda mutant: (mutant.path, mutant.line)), gone


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
