"""Decisions at the very value of a limit: maxSkew of pods that do not count, minValues near limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, NODES, ZONE
from karpenter_core.api.quantities import Quantity
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.placement.topology_counts import TopologyCounts
from karpenter_core.scheduling.portfolio.plan_portfolio import first_fit_steps
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    pods,
    problem,
    requirement_spec,
)
from tests.scheduling.handmade_plans import WEB, pod, spread
from tests.support.problems import seeded_problem
from tests.verifier import violations


@pytest.fixture(params=list(PackingPolicy), ids=lambda packing: packing.value)
def options(request):
    """Each packing in turn."""
    return SolveOptions(packing=request.param)


def with_web(name, zone, count, **more):
    bound = [pod(f"{name}-{n}", node_name=name) for n in range(count)]
    return existing_node(name, labels={ZONE: zone}, bound=bound, **more)


def there(key, count, options):
    """Whether a pod that spreads others, and is none of them, goes where so many are."""
    watcher = pod("watcher", "db", topology_spread=spread(key, 1, WEB))
    empty = with_web("empty", "zone-b", 0, taints=["dedicated=other:NoSchedule"])
    asked = problem([watcher], pools=[], nodes=[with_web("crowded", "zone-a", count), empty])
    plan = solve(asked, options)
    assert violations(asked, plan) == []
    return "crowded" in plan.existing


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_a_pod_that_its_spread_does_not_count_may_join_at_exactly_max_skew(key, options):
    """It makes the skew no larger, and what there is is allowed."""
    assert there(key, 1, options)


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_a_pod_that_its_spread_does_not_count_keeps_away_beyond_max_skew(key, options):
    """Although it is not to blame for the skew."""
    assert not there(key, 2, options)


@pytest.mark.parametrize(("max_skew", "places"), [(2, 2), (0, 0), (-1, 0)])
def test_a_new_node_takes_as_many_pods_as_max_skew_and_never_less_than_none(max_skew, places):
    """No API server admits a negative one."""
    spreading = pod("a", topology_spread=spread(HOSTNAME, max_skew, WEB))
    steps = compile_steps(problem([spreading]), SolveOptions(), CatalogueCache())
    compiled = run_steps(steps)
    (relaxation_steps,) = compiled.topologies
    assert TopologyCounts(compiled).host_caps(relaxation_steps[0], 0).new == places


SIZES = catalogue(*(instance_type(f"m-{n:02}", cpu=str(n), memory="64Gi") for n in (2, 4, 8, 16)))


@pytest.mark.parametrize("limit", [2, 4, 7, 8, 12, 15, 16, 20, 24, 31, 32, 40])
def test_min_values_hold_however_near_the_limits_are(limit, options):
    """A list of types that is cut to what the limits allow still has as many values as asked."""
    for min_values, count in product((2, 3, 4), (1, 4, 9)):
        several = requirement_spec(INSTANCE_TYPE, "Exists", min_values=min_values)
        pool = node_pool(requirements=[several], limits={"cpu": str(limit)})
        asked = problem(pods(count, cpu="1500m"), pools=[pool], catalogue=SIZES)

        plan = solve(asked, options)

        assert violations(asked, plan) == []
        assert all(len(planned.instance_types) >= min_values for planned in plan.claims)


@pytest.mark.parametrize(("limit", "fits"), [(7, False), (8, True)])
def test_a_limit_equal_to_the_requested_types_is_enough(limit, fits, options):
    """Three sizes are to be chosen from, of which the largest has eight cores."""
    several = requirement_spec(INSTANCE_TYPE, "Exists", min_values=3)
    pool = node_pool(requirements=[several], limits={"cpu": str(limit)})
    asked = problem(pods(1, cpu="1500m"), pools=[pool], catalogue=SIZES)

    plan = solve(asked, options)

    assert [planned.instance_types for planned in plan.claims] == (
        [("m-02", "m-04", "m-08")] if fits else []
    )


def several_types(least, **more):
    """Make a NodePool whose claims keep so many types to choose from."""
    return node_pool(
        requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=least)], **more
    )


def held(pool, waiting, types, options):
    """Return the lists of types of a plan that keeps every rule and places all pods."""
    asked = problem(waiting, pools=[pool], catalogue=types)
    plan = solve(asked, options)
    assert violations(asked, plan) == []
    assert not plan.unschedulable
    return [planned.instance_types for planned in plan.claims]


@pytest.mark.parametrize("cpu", ["500m", "1500m", "3"])
@pytest.mark.parametrize("count", [3, 12, 40])
def test_min_values_hold_for_many_pods_of_several_sizes(cpu, count, options):
    """Nodes filled to the last core would be of the largest type alone."""
    waiting = [
        *pods(count, cpu=cpu, name="even"),
        *pods(count, cpu="700m", memory="3Gi", name="lean"),
        *pods(count // 2, cpu="250m", memory="6Gi", name="wide"),
    ]

    lists = held(several_types(3), waiting, SIZES, options)

    assert all(len(types) >= 3 for types in lists)


def test_min_values_hold_in_the_zone_that_counted_pods_are_put_in(options):
    """The cheapest type is alone in its zone; the others are elsewhere."""
    lone = instance_type("a-lone", cpu="4", price=0.1, zones=["zone-b"], spot_discount=0.0)
    others = (
        instance_type(f"b-{n}", cpu="4", price=1.0 + n, zones=["zone-a"], spot_discount=0.0)
        for n in range(3)
    )
    counted = [
        pod("counted"),
        pod("watcher", "db", topology_spread=spread(ZONE, 1, WEB)),
    ]

    lists = held(several_types(3), counted, catalogue(lone, *others), options)

    assert all(len(types) >= 3 for types in lists)


def test_min_values_hold_in_the_zones_of_many_counted_pods(options):
    """A mix of whole nodes would be of the cheapest type, which is alone in its zone."""
    lone = instance_type("a-lone", cpu="8", price=0.1, zones=["zone-b"], spot_discount=0.0)
    others = (
        instance_type(f"b-{n}", cpu="8", price=1.0 + n, zones=["zone-a"], spot_discount=0.0)
        for n in range(3)
    )
    counted = [
        pod("watcher", "db", topology_spread=spread(ZONE, 50, WEB)),
        *pods(20, cpu="1500m", name="large", labels={"app": "web"}),
        *pods(20, cpu="700m", name="small", labels={"app": "web"}),
    ]

    lists = held(several_types(3), counted, catalogue(lone, *others), options)

    assert all(len(types) >= 3 for types in lists)


def test_a_truncated_type_list_that_violates_min_values_is_not_launched(options):
    """Two types are listed at most, and the cheapest two are of one family."""
    family = "example.com/family"
    types = catalogue(
        *(
            instance_type(name, cpu="4", price=price, labels={family: name[0]})
            for name, price in (("m-1", 1.0), ("m-2", 1.1), ("r-1", 2.0))
        )
    )
    pool = node_pool(requirements=[requirement_spec(family, "Exists", min_values=2)])
    asked = problem(pods(1), pools=[pool], catalogue=types)

    cut = solve(asked, replace(options, max_instance_types=2))
    whole = solve(asked, replace(options, max_instance_types=3))

    assert not cut.claims
    assert [planned.instance_types for planned in whole.claims] == [("m-1", "m-2", "r-1")]


def test_pods_of_claims_that_are_not_launched_count_against_a_plan():
    """Or the plan that buys nothing would be the best one."""
    family = "example.com/family"
    types = catalogue(
        *(
            instance_type(name, cpu="4", price=price, labels={family: name[0]})
            for name, price in (("m-1", 1.0), ("m-2", 1.1), ("r-1", 2.0))
        )
    )
    pool = node_pool(requirements=[requirement_spec(family, "Exists", min_values=2)])
    asked = problem(pods(3, cpu="3"), pools=[pool], catalogue=types)

    def finished(most):
        options = SolveOptions(max_instance_types=most)
        compiled = run_steps(compile_steps(asked, options, CatalogueCache()))
        return run_steps(first_fit_steps(compiled, halt=None))

    cut, whole = finished(2), finished(3)
    assert (cut.left, cut.score[0], cut.cost_per_hour) == ({0: 3}, 3, 0.0)
    assert (whole.left, whole.score[0]) == ({}, 0)
    assert whole.is_no_worse_than(cut)
    assert not cut.is_no_worse_than(whole)


@pytest.mark.parametrize("cores", range(2, 26, 3))
@pytest.mark.parametrize("count", [9, 30])
def test_a_spread_stays_even_where_limits_end_it(cores, count, options):
    """Not one zone filled to the limit, and the others left empty."""
    one_size = catalogue(instance_type("m-04", cpu="4", memory="64Gi"))
    two_on_a_node = {"cpu": 1500, "memory": 2**20, "pods": 1}
    pool = node_pool(limits={"cpu": str(cores)})
    waiting = [
        pod(f"web-{number}", topology_spread=spread(ZONE, 1, WEB), requests=two_on_a_node)
        for number in range(count)
    ]
    asked = problem(waiting, pools=[pool], catalogue=one_size)

    plan = solve(asked, options)

    assert violations(asked, plan) == []
    assert len(plan.claims) == min(cores // 4, -(-count // 2))


def test_nodes_that_stay_empty_give_their_part_of_a_limit_back():
    """As many nodes as a plan without limits launches hold as many pods, though others were opened."""
    unlimited = seeded_problem(5152)
    plan = solve(unlimited)
    nodes = Counter(claim.pool for claim in plan.claims)
    pools = tuple(
        pool.model_copy(
            update={
                "spec": pool.spec.model_copy(
                    update={"limits": {NODES: Quantity(str(nodes[pool.name]))}}
                )
            }
        )
        for pool in unlimited.pools
    )

    limited = solve(replace(unlimited, pools=pools))

    assert len(limited.unschedulable) == len(plan.unschedulable)
