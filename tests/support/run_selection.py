"""Selects which variants of an expensive test `make test` plays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["others_as_cluster_runs", "telling_first"]


def others_as_cluster_runs(variants: Iterable[object], *, first: int = 1) -> list[object]:
    """Mark all but the first variants of a test as cluster runs, which `.ci/run` plays."""
    return [
        variant
        if number < first
        else pytest.param(
            *(variant if isinstance(variant, tuple) else (variant,)),
            marks=pytest.mark.cluster_runs,
        )
        for number, variant in enumerate(variants)
    ]


def telling_first(count: int, telling: Sequence[int]) -> list[object]:
    """Return the numbers of a test's batches; those that are not among the telling ones are cluster runs."""
    others = sorted(set(range(count)) - set(telling))
    return others_as_cluster_runs([*telling, *others], first=len(telling))
