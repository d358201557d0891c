"""The limit of new nodes: kept by every packing, fair to priorities."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.scheduling.node_limit import limit_nodes_steps
from karpenter_core.scheduling.problem import (
    PackingPolicy,
    PoolConstraint,
    SchedulingPlan,
    SolveOptions,
    UnschedulablePod,
)
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    problem,
)
from tests.properties import with_examples
from tests.verifier import violations

SMALL = instance_type("small", cpu="2", memory="8Gi", overhead={}, offerings=[offering(price=0.1)])
LARGE = instance_type("large", cpu="8", memory="32Gi", overhead={}, offerings=[offering(price=0.9)])
TYPES = catalogue(SMALL, LARGE)


def asked(pods, most, *, pools=None):
    made = problem(pods, pools=pools, catalogue=TYPES)
    return replace(made, max_new_nodes=most)


def pods(count, *, cpu="1500m", priority=0, name="web"):
    return [pod(f"{name}-{n}", cpu=cpu, priority=priority) for n in range(count)]


def sizes(plan):
    return sorted(len(claim.pods) for claim in plan.claims)


def test_pods_that_fit_on_fewer_nodes_are_placed_there():
    """Though many small ones are cheaper: no place at all is worse."""
    cheap, bounded = solve(asked(pods(5), None)), solve(asked(pods(5), 1))

    assert (len(cheap.claims), sizes(bounded)) == (5, [5])
    assert bounded.unschedulable == {}
    assert bounded.cost.hourly > cheap.cost.hourly


def test_an_unreached_node_limit_changes_nothing():
    """The plan is as good as without it."""
    free, bounded = solve(asked(pods(5), None)), solve(asked(pods(5), 5))

    assert bounded.cost == free.cost
    assert sizes(bounded) == sizes(free)


def test_pending_pods_name_the_limiting_setting():
    """Under the constraint of limits, in every pool."""
    plan = solve(asked(pods(12), 2))

    assert (len(plan.claims), len(plan.unschedulable)) == (2, 2)
    for reason in plan.unschedulable.values():
        (rejection,) = reason.pools.values()
        assert rejection.constraint is PoolConstraint.LIMIT
        assert "--max-nodes-total" in reason.message


@pytest.mark.parametrize("packing", list(PackingPolicy))
def test_pools_share_the_bound(packing):
    """One is asked after the other, and what each has launched counts for all."""
    pools = [
        node_pool("first", weight=10, limits={"nodes": "1"}), node_pool("second", weight=5)
    ]  # fmt: skip
    plan = solve(asked(pods(20), 2, pools=pools), SolveOptions(packing=packing))

    assert sorted(claim.pool for claim in plan.claims) == ["first", "second"]
    assert len(plan.unschedulable) == 10


def test_a_limit_of_zero_launches_nothing():
    """All are left."""
    assert (sizes(plan := solve(asked(pods(2), 0))), len(plan.unschedulable)) == ([], 2)


class TestPriorities:
    def test_no_pod_is_skipped_for_one_of_lower_priority(self):
        """By size alone the large ones would come first."""
        everyone = [*pods(2, cpu="7"), *pods(2, cpu="1", priority=5, name="urgent")]
        plan = solve(asked(everyone, 1))

        placed = {pod.name for claim in plan.claims for pod in claim.pods}
        assert {"urgent-0", "urgent-1"} <= placed
        assert {uid.rpartition("-")[0][-3:] for uid in plan.unschedulable} == {"web"}
        assert all("--max-nodes-total" in why.message for why in plan.unschedulable.values())

    def test_the_most_important_go_first_even_when_they_do_not_all_fit(self):
        """Then there is nothing for the other pods."""
        everyone = [
            *pods(4, cpu="7"), *pods(3, cpu="6", priority=5, name="urgent"),
            *pods(3, cpu="5", priority=9, name="vital"),
        ]  # fmt: skip
        plan = solve(asked(everyone, 2))

        assert {pod.name.split("-")[0] for claim in plan.claims for pod in claim.pods} == {"vital"}
        assert len(plan.unschedulable) == 8

    def test_as_many_ranks_are_served_as_fit(self):
        """Three nodes: one for each of the two higher ranks, and one of the next."""
        everyone = [
            *pods(3, cpu="7"), *pods(1, cpu="6", priority=5, name="urgent"),
            *pods(1, cpu="5", priority=9, name="vital"),
        ]  # fmt: skip
        plan = solve(asked(everyone, 2))

        placed = {pod.name for claim in plan.claims for pod in claim.pods}
        assert placed == {"urgent-0", "vital-0"}


class TestTime:
    """A plan that was cut short has hardly anything on it: the next pass would fare no better."""

    def test_without_time_for_a_bounded_plan_the_unbounded_one_is_used(self):
        """Claims beyond the limit are not created."""
        free = solve(asked(pods(5), None))

        assert run_steps(limit_nodes_steps(asked(pods(5), 1), free, planner())) is free

    def test_without_time_for_fairness_the_bounded_plan_is_used(self):
        everyone = [*pods(1, cpu="7"), *pods(1, cpu="7", priority=5, name="urgent")]
        passing_over = replace(
            solve(asked(everyone[:1], 1)),
            unschedulable={everyone[1].uid: UnschedulablePod(message="no room")},
        )
        free = solve(asked(everyone, None))

        plan = run_steps(limit_nodes_steps(asked(everyone, 1), free, planner(passing_over)))
        assert (plan.claims, plan.unschedulable) == (
            passing_over.claims, passing_over.unschedulable,
        )  # fmt: skip


def planner(*plans):
    """Return a planner that has time for these plans and no more."""
    left = iter(plans)

    def plan_steps(_):
        yield 1
        return next(left, SchedulingPlan(partial=True))

    return plan_steps


@with_examples(60)
@given(
    kinds=st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["300m", "1", "1500m", "3", "7"]),
                  st.sampled_from([0, 5, 9])),
        min_size=1, max_size=5,
    ),
    most=st.integers(0, 6),
    limited=st.booleans(),
    packing=st.sampled_from(list(PackingPolicy)),
)  # fmt: skip
def test_no_plan_exceeds_the_bound(kinds, most, limited, packing):
    """For every problem; the plan is valid, and covers every pod."""
    everyone = [
        each
        for number, (count, cpu, priority) in enumerate(kinds)
        for each in pods(count, cpu=cpu, priority=priority, name=f"k{number}")
    ]
    pools = [
        node_pool("a", weight=10, limits={"nodes": "2"} if limited else None),
        node_pool("b", weight=10),
    ]
    question = asked(everyone, most, pools=pools)
    plan = solve(question, SolveOptions(packing=packing))

    assert len(plan.claims) <= most
    placed = [pod.uid for claim in plan.claims for pod in claim.pods]
    assert sorted([*placed, *plan.unschedulable]) == sorted(pod.uid for pod in everyone)
    priorities = {pod.uid: pod.shape.priority for pod in everyone}
    left = [priorities[uid] for uid in plan.unschedulable]
    if left and placed:
        assert max(left) <= min(map(priorities.get, placed)) or most == 0
    checked = replace(question, pods=tuple(p for p in everyone if p.uid in set(placed)))
    assert violations(checked, replace(plan, unschedulable={})) == []
