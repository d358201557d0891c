"""Tells when the tree changes while mutants are judged.

Tests import modules late. A process that collected one revision and loads parts of another one sees every
test fail, which says nothing about mutants.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_FOLDERS = ("karpenter_core", "providers", "tests")


class TreeChangedError(Exception):
    """Verdicts until now hold; a new process must judge the rest."""


class FrozenTree:
    """Remembers when each file of the product and of its tests was written."""

    def __init__(self, root: Path, folders: Sequence[str] = _FOLDERS) -> None:
        self._root = root
        self._folders = folders
        self._written = self._times()

    def check(self) -> None:
        """Raise TreeChangedError where a file is new, gone or changed since."""
        now = self._times()
        if now != self._written:
            changed = sorted(path for path, _ in now.items() ^ self._written.items())
            raise TreeChangedError(
                f"{changed[0]} and {len(set(changed)) - 1} more files changed while mutants were judged: "
                "judge in a worktree in which nothing is edited"
            )

    def _times(self) -> dict[str, int]:
        return {
            str(path.relative_to(self._root)): path.stat().st_mtime_ns
            for folder in self._folders
            for path in (self._root / folder).rglob("*.py")
        }
