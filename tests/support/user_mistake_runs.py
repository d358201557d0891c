"""Marks the cluster runs of users' mistakes, of which only a few are part of `make test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from karpenter_core.testing.user_mistakes import UserMistake

__all__ = ["as_cluster_runs"]


def as_cluster_runs(cases: Sequence[UserMistake[Any]], *, but: Collection[str]) -> list[Any]:
    """Return a parameter for each case, all with the marker `cluster_runs` but those with these names.

    Raises:
        ValueError: no case has one of the names.
    """
    if unknown := set(but) - {case.name for case in cases}:
        raise ValueError(f"no case is named {', '.join(sorted(unknown))}")
    marks = (pytest.mark.cluster_runs,)
    return [
        pytest.param(case, id=case.name, marks=() if case.name in but else marks) for case in cases
    ]
