"""Invariants of every plan of every problem.

`KARPENTER_PROPERTY_EXAMPLES` sets on how many problems each property is tried; `verify_many.py`
judges tens of thousands by seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve, solve_steps
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pods,
    problem,
)
from tests.properties import with_examples
from tests.scheduling.plan_checks import (
    BEST_EFFORT,
    FIRST_FIT,
    compared,
    differences,
    left_behind,
    shuffle,
    with_unrelated_pool,
    written,
)
from tests.scheduling.wide_checks import wide_faults
from tests.support.problems import ALL_FEATURES, ProblemFeature
from tests.support.strategies import problems
from tests.support.wide_problems import wide_options, wide_problem
from tests.verifier import hosts_alone, violations

thorough = with_examples(120)
brief = with_examples(30)
both_packings = pytest.mark.parametrize(
    "options", [SolveOptions(), FIRST_FIT], ids=["value", "first-fit"]
)

ABOUT_PODS = {ProblemFeature.SPREAD, ProblemFeature.AFFINITY, ProblemFeature.ANTI_AFFINITY}
ALONE = ALL_FEATURES - {
    *ABOUT_PODS,
    ProblemFeature.LIMITS,
    ProblemFeature.MIN_VALUES,
    ProblemFeature.DAEMONS,
    ProblemFeature.RESERVED,
}


@both_packings
@given(asked=problems())
@thorough
def test_every_plan_passes_the_verifier(asked, options):
    """Both packings, everything that the judge knows of."""
    assert violations(asked, solve(asked, options)) == []


@given(st.integers(0, 10**6))
@brief
def test_plans_of_problems_with_everything_at_once_are_valid(seed):
    """Quotas, commitments, limits of price, short lists of types; with the drawn options."""
    asked, options = wide_problem(seed), wide_options(seed)
    assert wide_faults(asked, solve(asked, options), options) == []


@pytest.mark.parametrize("seed", [302, 366, 8520, 2408, 58196])
def test_plans_are_valid_that_were_not(seed):
    """302: spot overrides under a commitment. 366: pods spread beside dropped claims. 8520: two types
    with one price but for its rounding. 2408 and 58196: pods without ResourceClaims spread beside
    nodes for pods with some, which are sold in one zone.
    """
    asked, options = wide_problem(seed), wide_options(seed)
    assert wide_faults(asked, solve(asked, options), options) == []


@given(problems())
@brief
def test_best_effort_plans_pass_the_verifier(asked):
    """The same when minValues may be missed."""
    assert violations(asked, solve(asked, BEST_EFFORT), strict_min_values=False) == []


@given(problems())
@brief
def test_no_pod_is_pending_that_a_node_would_take(asked):
    """By the default packing, where it makes a plan of its own."""
    assert list(left_behind(asked, solve(asked), solve(asked, FIRST_FIT))) == []


@given(problems())
@brief
def test_a_plan_never_costs_more_and_never_leaves_more_pods_than_first_fit(asked):
    """For every problem: lexicographic, pods left before price."""
    assert list(compared(solve(asked), solve(asked, FIRST_FIT))) == []


@both_packings
@given(asked=problems())
@brief
def test_the_order_of_the_input_does_not_matter(asked, options):
    """Shuffled pods, pools, types, nodes, what is on them, and daemons: the same plan."""
    plan = solve(asked, options)

    for seed in range(2):
        assert list(differences(plan, solve(shuffle(asked, Random(seed)), options))) == []


@given(problems())
@brief
def test_solving_twice_gives_the_same_plan_and_changes_nothing(asked):
    """The problem is as it was, and so is the plan."""
    before = repr(asked)

    first, second = written(solve(asked)), written(solve(asked))

    assert first == second
    assert repr(asked) == before


@both_packings
@given(asked=problems(ALL_FEATURES - ABOUT_PODS))
@brief
def test_an_unrelated_pool_never_unschedules_a_pod(asked, options):
    """A pool that no pod tolerates and that daemons do not care about changes no placement.

    Not with constraints over domains: a pool makes new ones, which count as empty.
    """
    less, more = with_unrelated_pool(asked)
    plan = solve(more, options)

    assert set(plan.unschedulable) == set(solve(less, options).unschedulable)
    assert violations(more, plan) == []


def _without_limits(asked):
    """Leave only what a pod alone decides: no nodes that are there already either."""
    return replace(asked, nodes=(), pool_usage={})


@both_packings
@given(asked=problems(ALONE))
@brief
def test_pods_stay_pending_exactly_when_no_node_could_host_them(asked, options):
    """Against brute force over every type, offering and label value.

    But for pods of several node affinity terms that prefer nodes, or beside pools with soft taints:
    like upstream, all terms but the last are given up before a preference is, or such a taint is
    put up with.
    """
    asked = _without_limits(asked)
    plan = solve(asked, options)
    by_uid = {pod.uid: pod for pod in asked.pods}
    is_soft = any(
        taint.effect == "PreferNoSchedule"
        for pool in asked.pools
        for taint in pool.spec.template.spec.taints
    )

    for uid, reason in plan.unschedulable.items():
        pod = by_uid[uid]
        yields = is_soft or pod.shape.preferred_node_terms
        if yields and len(pod.shape.required_node_terms) > 1:
            continue
        assert hosts_alone(asked, pod) is None, reason.message
        assert set(reason.pools) == {pool.name for pool in asked.pools}


@given(problems())
@brief
def test_solving_in_steps_yields_work_units(asked):
    """Each step is a positive number, and the plan is the same as in one go."""
    steps = solve_steps(asked, options=None)
    units = []
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            plan = end.value
            break

    assert all(unit > 0 for unit in units)
    assert written(plan) == written(solve(asked))


def test_limits_hold_for_an_offering_with_larger_capacity():
    """A claim that may become the larger one counts as that, or does not allow it."""
    larger = replace(offering(price=2.0), capacity_override={"memory": 16 * 2**30})
    types = catalogue(instance_type("small", memory="4Gi", offerings=(offering(), larger)))
    pool = node_pool(limits={"memory": "8Gi"})
    asked = problem(pods(2, cpu="3"), pools=[pool], catalogue=types)

    assert violations(asked, solve(asked)) == []
