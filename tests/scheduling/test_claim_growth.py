"""Planned claims grow where that is cheaper than one more claim."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from karpenter_core.api.labels import HOSTNAME, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.records import AffinityTerm, LabelSelector, TopologySpread
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
)
from tests.verifier import violations

ONE_PLAN = SolveOptions(work_units=0)
SLOT = {"example.com/slot": "1"}


def types(resources=None, **price_of_cpu):
    return catalogue(
        *(
            instance_type(
                name,
                cpu=name[1:],
                memory="64Gi",
                price=price,
                capacity_types=(ON_DEMAND,),
                resources=resources,
            )
            for name, price in price_of_cpu.items()
        )
    )


def lonely(count, **options):
    """Pods that have no other of their kind beside them."""
    apart = AffinityTerm(
        topology_key=HOSTNAME, selector=LabelSelector(match_labels={"app": "lonely"})
    )
    shape = replace(
        pod_shape(labels={"app": "lonely"}, cpu="1", **options), pod_anti_affinity=(apart,)
    )
    return [pod(f"lonely-{number}", shape=shape) for number in range(count)]


def loosely_spread(count):
    """Pods that hardly mind where they are, but are counted by zone."""
    rule = TopologySpread(
        topology_key=ZONE,
        max_skew=count,
        when_unsatisfiable="DoNotSchedule",
        selector=LabelSelector(match_labels={"app": "web"}),
    )
    shape = replace(pod_shape(labels={"app": "web"}, cpu="1500m"), topology_spread=(rule,))
    return [pod(f"web-{number}", shape=shape) for number in range(count)]


def test_needed_nodes_grow_for_flexible_pods():
    asked = problem([*lonely(10), *loosely_spread(10)], catalogue=types(c2=0.02, c4=0.03))
    plan = solve(asked, ONE_PLAN)

    grown = [claim for claim in plan.claims if len({pod.shape for pod in claim.pods}) > 1]
    assert len(grown) >= 6
    assert {claim.cheapest.instance_type for claim in grown} == {"c4"}
    assert plan.cost.hourly < 10 * 0.02 + 5 * 0.03
    assert violations(asked, plan) == []


def test_nodes_grow_when_unrequested_resources_are_exhausted():
    """The one slot of each is taken; the pods that come need none."""
    asked = problem(
        [*lonely(10, requests=SLOT), *loosely_spread(10)],
        catalogue=types(resources=SLOT, c2=0.02, c4=0.03),
    )
    plan = solve(asked, ONE_PLAN)

    grown = [claim for claim in plan.claims if len({pod.shape for pod in claim.pods}) > 1]
    assert len(grown) >= 6
    assert violations(asked, plan) == []


def test_nodes_stay_small_where_another_one_is_cheaper():
    asked = problem([*lonely(10), *loosely_spread(10)], catalogue=types(c2=0.02, c4=0.06))
    plan = solve(asked, ONE_PLAN)

    assert {claim.cheapest.instance_type for claim in plan.claims} == {"c2"}
    assert len(plan.claims) == 20
    assert violations(asked, plan) == []


def test_nodes_grow_within_the_limits_of_the_pool():
    """Ten nodes of two cores leave the pool six: three of them can grow."""
    asked = problem(
        [*lonely(10), *loosely_spread(10)],
        pools=[node_pool("default", limits={"cpu": "26"})],
        catalogue=types(c2=0.02, c4=0.03),
    )
    plan = solve(asked, ONE_PLAN)

    assert sum(claim.capacity_max["cpu"] for claim in plan.claims) <= 26_000
    assert violations(asked, plan) == []


@pytest.mark.parametrize(("limit", "claims"), [("4", 2), ("5", 2), ("6", 3), ("7", 3)])
def test_a_claim_that_was_given_up_does_not_grow_again(limit, claims):
    """Its part of the limits has gone to another one by then."""
    offered = (
        ("large", "16Gi", "58", "zone-a", 0.05171),
        ("elsewhere", "15616Mi", "58", "zone-c", 0.02954),
        ("micro", "1Gi", "8", "zone-a", 0.00331),
        ("small", "2Gi", "17", "zone-a", 0.00579),
        ("medium", "4Gi", "35", "zone-a", 0.01176),
    )
    asked = problem(
        [pod(f"p{number}", cpu="1500m", memory="3Gi") for number in range(4)],
        pools=[node_pool(limits={"cpu": limit})],
        catalogue=catalogue(
            *(
                instance_type(
                    name, cpu="2", memory=memory, pods=pods, offerings=[offering(zone, SPOT, price)]
                )
                for name, memory, pods, zone, price in offered
            )
        ),
    )

    plan = solve(asked)

    assert violations(asked, plan) == []
    assert (len(plan.claims), len(plan.unschedulable)) == (claims, 4 - claims)
