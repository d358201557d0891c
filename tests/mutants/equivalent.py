"""Mutants that no test can kill, with the reason."""

from __future__ import annotations

from typing import Final

from tests.mutants.draw import Mutant

EQUIVALENT: Final[dict[tuple[str, str], str]] = {
    (
        "karpenter_core/controllers/observability/node_series.py",
        "if (snapshot is not None or snapshot is not self._rendered):",
    ): "texts of state nodes that did not change are taken over: rendered again they are the same",
    (
        "karpenter_core/controllers/node/health.py",
        "if census is not None:",
    ): "the census of a state is taken again by `repair`, with the same counts",
    (
        "karpenter_core/controllers/nodeclaim/drift.py",
        "if (asked or node_class is not None):",
    ): "without a NodeClass nothing is left to ask, and a question about no claims reaches no plug-in",
}
"""By module and the changed lines of the mutant, stripped and joined by spaces."""


def reason_for(mutant: Mutant, source: str) -> str:
    """Return why a mutant changes no behaviour, or nothing."""
    return EQUIVALENT.get((mutant.path, fragment(mutant, source)), "")


def fragment(mutant: Mutant, source: str) -> str:
    """Return the lines that a mutant adds, as one; they name it while lines move."""
    lines = [line[1:].strip() for line in mutant.diff(source).splitlines() if line[0] == "+"]
    return " ".join(line for line in lines if line)
