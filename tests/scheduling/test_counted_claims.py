"""Claims that a spread constraint may count are decided when pods wait."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.records import LabelSelector
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import catalogue, instance_type, problem
from tests.scheduling.handmade_plans import DB, pod, spread
from tests.verifier import violations

ZONES = ("zone-a", "zone-b", "zone-c")
CATALOGUE = catalogue(instance_type("m-4", cpu="4", memory="16Gi", zones=ZONES))
IN_ONE_ZONE = {ZONE: "zone-a"}


@pytest.fixture(params=list(PackingPolicy), ids=lambda packing: packing.value)
def options(request):
    """Each packing in turn."""
    return SolveOptions(packing=request.param)


def bystanders(count=4):
    """Pods that the owners' constraint selects; each is alone of its kind on a node of one zone."""
    alone = spread(HOSTNAME, selector=LabelSelector(match_labels={"tier": "by"}))
    return [
        pod(
            f"by-{n}",
            "db",
            labels={"tier": "by"},
            node_selector=IN_ONE_ZONE,
            topology_spread=alone,
        )
        for n in range(count)
    ]


def owners(count=3, kind=ON_DEMAND):
    """Pods of which no zone may have two more than another; only nodes like theirs count."""
    return [
        pod(
            f"own-{n}",
            "db",
            node_selector={CAPACITY_TYPE: kind},
            topology_spread=spread(selector=DB),
        )
        for n in range(count)
    ]


def zones_of(plan, prefix):
    return sorted(
        claim.cheapest.zone
        for claim in plan.claims
        for each in claim.pods
        if each.name.startswith(prefix)
    )


def test_owners_are_placed_beside_claims_that_may_become_uncounted_nodes(options):
    asked = problem([*bystanders(), *owners()], catalogue=CATALOGUE)

    plan = solve(asked, options)

    assert violations(asked, plan) == []
    assert not plan.unschedulable
    assert zones_of(plan, "own-") == list(ZONES)


def test_a_counted_claim_gets_its_cheapest_capacity_type(options):
    asked = problem([*bystanders(), *owners()], catalogue=CATALOGUE)

    plan = solve(asked, options)

    alone = [c for c in plan.claims if all(p.name.startswith("by-") for p in c.pods)]
    assert {claim.cheapest.capacity_type for claim in alone} == {SPOT}


def test_claims_stay_open_while_no_pod_depends_on_them(options):
    asked = problem(bystanders(), catalogue=CATALOGUE)

    plan = solve(asked, options)

    for claim in plan.claims:
        kinds = [r for r in claim.requirements if r.key == CAPACITY_TYPE]
        assert all(r.has(SPOT) and r.has(ON_DEMAND) for r in kinds)
