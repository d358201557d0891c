"""Marks the lives of users' mistakes, of which only a few are part of `make test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from karpenter_core.testing.user_mistakes import UserMistake

__all__ = ["as_lives"]


def as_lives(cases: Sequence[UserMistake[Any]], *, but: Collection[str]) -> list[Any]:
    """Return a parameter for each case, all with the marker `lives` but those with these names.

    Raises:
        ValueError: no case has one of the names.
    """
    if unknown := set(but) - {case.name for case in cases}:
        raise ValueError(f"no case is named {', '.join(sorted(unknown))}")
    lives = (pytest.mark.lives,)
    return [
        pytest.param(case, id=case.name, marks=() if case.name in but else lives) for case in cases
    ]
