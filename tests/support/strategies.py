"""Hypothesis strategies: random scheduling problems, small enough to shrink, nasty on purpose.

Public: whoever writes another packing or provider can draw from them. What may be in a problem is
told in `tests.support.problems`, which also makes the same kind of problem from a seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.support.problems import ALL_FEATURES, random_problem

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.scheduling.problem import Problem
    from tests.support.problem_choices import Feature

__all__ = ["problems"]


def problems(
    features: Collection[Feature] = ALL_FEATURES, *, most_pods: int = 24
) -> st.SearchStrategy[Problem]:
    """Draw a whole problem with these features."""
    return st.randoms(use_true_random=False).map(
        lambda random: random_problem(random, features, most_pods=most_pods)
    )
