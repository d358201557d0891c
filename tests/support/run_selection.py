"""Selects which variants of an expensive test `make test` plays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["others_as_cluster_runs"]


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
