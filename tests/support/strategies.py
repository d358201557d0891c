"""Hypothesis strategies for random scheduling problems that shrink.

Public: authors of other packings or providers can draw from them. `tests.support.problems` describes
the possible parts of a problem, and draws the same kind of problem from a seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.support.problems import ALL_FEATURES, random_problem

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.scheduling.problem import SchedulingProblem
    from tests.support.random_choices import ProblemFeature

__all__ = ["problems"]


def problems(
    features: Collection[ProblemFeature] = ALL_FEATURES, *, most_pods: int = 24
) -> st.SearchStrategy[SchedulingProblem]:
    """Draw a whole problem with these features."""
    return st.randoms(use_true_random=False).map(
        lambda random: random_problem(random, features, most_pods=most_pods)
    )
