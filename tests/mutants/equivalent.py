"""Mutants that no test can kill, with the reason: behaviour is the same, or nobody can observe it."""

from __future__ import annotations

from typing import Final

from tests.mutants.draw import Mutant

EQUIVALENT: Final[dict[tuple[str, str], str]] = {}
"""By module and the changed lines of the mutant, stripped and joined by spaces."""


def reason_for(mutant: Mutant, source: str) -> str:
    """Return why a mutant changes no behaviour, or nothing."""
    return EQUIVALENT.get((mutant.path, fragment(mutant, source)), "")


def fragment(mutant: Mutant, source: str) -> str:
    """Return the lines that a mutant adds, as one; they name it while lines move."""
    lines = [line[1:].strip() for line in mutant.diff(source).splitlines() if line[0] == "+"]
    return " ".join(line for line in lines if line)
