"""Zones that a NodePool excludes by another label of their offerings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.scheduling.instance_types import Offering
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, offering, problem
from tests.scheduling.handmade_plans import pod, spread
from tests.verifier import violations

SCOPE = "example.com/scope"
ZONES = ("zone-a", "zone-b")
REGIONAL = "0"


@pytest.fixture(params=list(PackingPolicy), ids=lambda packing: packing.value)
def options(request):
    """Each packing in turn."""
    return SolveOptions(packing=request.param)


def scoped(zone, *, available=True):
    """Return an offering with the label of its scope."""
    sold = offering(zone, ON_DEMAND, 1.0, available=available)
    scope = "regional" if zone == REGIONAL else "zonal"
    labels = {ZONE: zone, CAPACITY_TYPE: ON_DEMAND, SCOPE: scope}
    return Offering(
        requirements=Requirements.from_labels(labels), price=sold.price, available=sold.available
    )


def sizes(*offerings):
    """Return a catalogue of one type with these offerings."""
    it = instance_type("m-4", cpu="4", offerings=offerings)
    requirements = it.requirements.add(Requirement.of(SCOPE, "In", ["regional", "zonal"]))
    return catalogue(replace(it, requirements=requirements))


def zones_of(plan):
    """Return how many nodes are in each zone."""
    return Counter(
        Requirements.from_specs(claim.requirements).single_value(ZONE) for claim in plan.claims
    )


def planned(options, sold, *requirements):
    """Spread four large pods over zones, and have the plan judged."""
    pods = [pod(f"p{n}", requests={"cpu": 3000}, topology_spread=spread()) for n in range(4)]
    asked = problem(
        pods,
        catalogue=sold,
        pools=[node_pool(requirements=requirements)],
        well_known=[SCOPE],
    )
    plan = solve(asked, options)
    assert violations(asked, plan) == []
    return plan


def test_pods_do_not_wait_for_a_zone_that_the_pool_excludes_by_its_scope(options):
    """The zone of nodes without a zone is none to spread over for a pool of zonal nodes."""
    plan = planned(
        options,
        sizes(*map(scoped, (*ZONES, REGIONAL))),
        (SCOPE, "In", "zonal"),
    )

    assert not plan.unschedulable
    assert zones_of(plan) == {"zone-a": 2, "zone-b": 2}


def test_a_zone_that_the_pool_allows_counts(options):
    plan = planned(options, sizes(*map(scoped, (*ZONES, REGIONAL))))

    assert not plan.unschedulable
    assert set(zones_of(plan)) == {*ZONES, REGIONAL}


def test_a_zone_without_capacity_counts_as_a_domain(options):
    """Pods that must be spread wait for it, as upstream."""
    plan = planned(
        options,
        sizes(scoped("zone-a"), scoped("zone-b", available=False)),
        (CAPACITY_TYPE, "In", ON_DEMAND, SPOT),
    )

    assert len(plan.unschedulable) == 3
    assert zones_of(plan) == {"zone-a": 1}
