"""What holds for every plan of every problem.

`KARPENTER_PROPERTY_EXAMPLES` sets how many problems each property is tried on.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter_core.scheduling.problem import MinValuesPolicy, Packing, SolveOptions
from karpenter_core.scheduling.solve import solve, solve_steps
from karpenter_core.testing.builders import node_pool, standard_catalogue
from karpenter_core.testing.strategies import problems
from tests.verifier import hosts_alone, violations

EXAMPLES = int(os.environ.get("KARPENTER_PROPERTY_EXAMPLES", "300"))
FEWER = max(EXAMPLES // 6, 1)

thorough = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
brief = settings(thorough, max_examples=FEWER)

FIRST_FIT = SolveOptions(packing=Packing.FIRST_FIT)


def written(plan):
    """Write a plan down to the last byte, in the order in which it comes."""
    claims = [
        (
            claim.pool,
            [pod.uid for pod in claim.pods],
            [str(requirement) for requirement in claim.requirements],
            claim.instance_types,
            sorted(claim.requests.items()),
            claim.cheapest,
            sorted(claim.labels.items()),
            sorted(claim.capacity_max.items()),
        )
        for claim in plan.claims
    ]
    existing = [(name, [pod.uid for pod in pods]) for name, pods in plan.existing.items()]
    return repr((claims, existing, list(plan.unschedulable.items()), plan.cost)).encode()


@given(problems())
@thorough
def test_every_plan_passes_the_verifier(problem):
    """Both packings: capacity of every listed type, labels, taints, ports, limits, prices."""
    assert violations(problem, solve(problem)) == []
    assert violations(problem, solve(problem, FIRST_FIT)) == []


@given(problems())
@brief
def test_best_effort_plans_pass_the_verifier(problem):
    """The same when minValues may be missed."""
    plan = solve(problem, SolveOptions(min_values=MinValuesPolicy.BEST_EFFORT))

    assert violations(problem, plan, strict_min_values=False) == []


@given(problems())
@brief
def test_a_plan_is_never_dearer_and_never_leaves_more_than_first_fit(problem):
    """For every problem: lexicographic, pods left before price."""
    value, first_fit = solve(problem), solve(problem, FIRST_FIT)

    assert len(value.unschedulable) <= len(first_fit.unschedulable)
    if len(value.unschedulable) == len(first_fit.unschedulable):
        assert value.cost.hourly <= first_fit.cost.hourly + 1e-9
    assert value.cost.first_fit == first_fit.cost.hourly


@given(problems(), st.randoms(use_true_random=False))
@brief
def test_the_order_of_the_input_does_not_matter(problem, random):
    """Shuffled pods, pools, types, nodes and daemons: the same bytes."""

    def shuffled(items):
        items = list(items)
        random.shuffle(items)
        return tuple(items)

    other = replace(
        problem,
        pods=shuffled(problem.pods),
        pools=shuffled(problem.pools),
        nodes=shuffled(problem.nodes),
        daemons=shuffled(problem.daemons),
        catalogues={
            name: replace(catalogue, instance_types=shuffled(catalogue.instance_types))
            for name, catalogue in problem.catalogues.items()
        },
    )

    assert written(solve(other)) == written(solve(problem))


@given(problems())
@brief
def test_solving_twice_gives_the_same_bytes_and_changes_nothing(problem):
    """The problem is as it was, and so is the plan."""
    before = repr(problem)

    first, second = written(solve(problem)), written(solve(problem))

    assert first == second
    assert repr(problem) == before


@given(problems())
@brief
def test_an_unrelated_pool_never_unschedules_a_pod(problem):
    """A pool that no pod tolerates and that daemons do not care about changes no placement."""
    unrelated = node_pool("unrelated", weight=100, taints=["nobody=wants:NoSchedule"])
    everybody = {pod.uid for pod in problem.pods if any(not t.key for t in pod.shape.tolerations)}
    more = replace(
        problem,
        pods=tuple(pod for pod in problem.pods if pod.uid not in everybody),
        pools=(*problem.pools, unrelated),
        catalogues={**problem.catalogues, "unrelated": standard_catalogue()},
    )
    less = replace(more, pools=problem.pools, catalogues=problem.catalogues)

    assert set(solve(more).unschedulable) == set(solve(less).unschedulable)
    assert violations(more, solve(more)) == []


def _without_limits(problem):
    """Leave only what a pod alone decides: no limits, minValues, daemons or nodes."""
    pools = []
    for pool in problem.pools:
        spec = pool.spec.template.spec
        kept = tuple(r for r in spec.requirements if r.min_values is None)
        template = pool.spec.template.model_copy(
            update={"spec": spec.model_copy(update={"requirements": kept})}
        )
        pools.append(
            pool.model_copy(
                update={"spec": pool.spec.model_copy(update={"template": template, "limits": {}})}
            )
        )
    return replace(problem, pools=tuple(pools), daemons=(), nodes=(), pool_usage={})


@pytest.mark.parametrize("options", [SolveOptions(), FIRST_FIT], ids=["value", "first-fit"])
@given(problem=problems())
@brief
def test_pods_stay_pending_exactly_when_no_machine_could_host_them(problem, options):
    """Against brute force over every type, offering and label value."""
    problem = _without_limits(problem)
    plan = solve(problem, options)
    by_uid = {pod.uid: pod for pod in problem.pods}

    for uid, reason in plan.unschedulable.items():
        pod = by_uid[uid]
        assert hosts_alone(problem, pod) is None, reason.message
        assert set(reason.pools) == {pool.name for pool in problem.pools}


@given(problems())
@brief
def test_solving_in_steps_yields_work_units(problem):
    """Each step is a positive number, and the plan is the same as in one go."""
    steps = solve_steps(problem)
    units = []
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            plan = end.value
            break

    assert all(unit > 0 for unit in units)
    assert written(plan) == written(solve(problem))
