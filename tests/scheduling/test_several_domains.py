"""Pods whose constraints count over several labels at once."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ON_DEMAND, SPOT, ZONE
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import catalogue, existing_node, instance_type, problem
from tests.scheduling.handmade_plans import DB, WEB, pod, spread, term
from tests.verifier import violations

ZONES = ("zone-a", "zone-b", "zone-c")
CATALOGUE = catalogue(instance_type("m-4", cpu="4", memory="16Gi", zones=ZONES))
NEITHER_NEAR = (*term(ZONE, DB), *term(CAPACITY_TYPE, DB))


@pytest.fixture(params=list(PackingPolicy), ids=lambda packing: packing.value)
def options(request):
    """Each packing in turn."""
    return SolveOptions(packing=request.param)


def planned(asked, options):
    """Solve, and have the plan judged."""
    plan = solve(asked, options)
    assert violations(asked, plan) == []
    return plan


def test_the_first_pod_of_a_kind_is_placed_on_an_existing_node(options):
    """The pod that chooses the domain for later ones prefers existing nodes."""
    first = pod("first", "db", pod_affinity=term(ZONE, DB), pod_anti_affinity=term(ARCH, DB))
    node = existing_node("old", labels={ZONE: "zone-b"})

    plan = planned(problem([first], catalogue=CATALOGUE, nodes=[node]), options)

    assert list(plan.existing) == ["old"]
    assert plan.claims == ()


def test_first_fit_lets_a_pod_that_keeps_clear_of_others_be_anywhere():
    """Another one of its kind waits until it is known where the first one went, as upstream."""
    pods = [pod(f"db-{n}", "db", pod_anti_affinity=NEITHER_NEAR) for n in range(2)]

    plan = solve(problem(pods, catalogue=CATALOGUE), SolveOptions(packing=PackingPolicy.FIRST_FIT))

    assert len(plan.claims) == len(plan.unschedulable) == 1


def test_value_packing_places_pods_that_keep_clear_of_each_other_at_once():
    pods = [pod(f"db-{n}", "db", pod_anti_affinity=NEITHER_NEAR) for n in range(2)]

    plan = planned(problem(pods, catalogue=CATALOGUE), SolveOptions())

    assert not plan.unschedulable
    assert {c.cheapest.capacity_type for c in plan.claims} == {SPOT, ON_DEMAND}
    assert len({c.cheapest.zone for c in plan.claims}) == 2


def test_pods_spread_over_one_label_and_stay_together_by_another(options):
    pods = [
        pod(
            f"db-{n}",
            "db",
            topology_spread=spread(selector=DB),
            pod_affinity=term(CAPACITY_TYPE, DB),
        )
        for n in range(6)
    ]

    plan = planned(problem(pods, catalogue=CATALOGUE), options)

    assert not plan.unschedulable
    assert sorted(c.cheapest.zone for c in plan.claims) == list(ZONES)
    assert len({c.cheapest.capacity_type for c in plan.claims}) == 1


@pytest.mark.parametrize("max_skew", [1, 2])
def test_an_existing_node_comes_before_an_empty_domain(options, max_skew):
    """A spread may do without a new node: no domain has fewer pods than the others."""
    pods = [pod("db", "db", topology_spread=spread(max_skew=max_skew, selector=DB))]
    node = existing_node("old", labels={ZONE: "zone-b"})

    plan = planned(problem(pods, catalogue=CATALOGUE, nodes=[node]), options)

    assert list(plan.existing) == ["old"]
    assert plan.claims == ()


def test_nodes_that_are_there_are_filled_no_further_than_the_skew_allows(options):
    pods = [pod(f"db-{n}", "db", topology_spread=spread(max_skew=2, selector=DB)) for n in range(4)]
    node = existing_node("old", labels={ZONE: "zone-b"})

    plan = planned(problem(pods, catalogue=CATALOGUE, nodes=[node]), options)

    assert len(plan.existing["old"]) == 2
    assert not plan.unschedulable


def test_pods_of_two_revisions_are_counted_separately(options):
    """Their templates differ in nothing but the label that the spread matches by key."""
    how = spread(selector=DB, match_label_keys=("version",))
    old, new = (
        pod(name, "db", labels={"version": name}, topology_spread=how) for name in ("v1", "v2")
    )
    running = [pod(name, "db", labels={"version": "v1"}, node_name="a") for name in ("r1", "r2")]
    nodes = [
        existing_node("a", labels={ZONE: "zone-a"}, bound=running),
        existing_node("b", labels={ZONE: "zone-b"}, available={"cpu": "0"}),
    ]
    no_claims = catalogue(instance_type("tiny", cpu="1m", zones=("zone-a",)))

    plan = planned(problem([old, new], catalogue=no_claims, nodes=nodes), options)

    assert [one.name for one in plan.existing["a"]] == ["v2"]
    assert list(plan.unschedulable) == [old.uid]


def test_a_claim_has_the_zone_that_the_spread_of_a_pod_on_it_gave_it(options):
    """Pods that must be near it are put near it in the same pass."""
    together = [
        pod(
            f"db-{n}",
            "db",
            topology_spread=spread(selector=WEB),
            pod_affinity=term(HOSTNAME, DB),
        )
        for n in range(3)
    ]
    near = [
        pod(f"near-{n}", "db", pod_affinity=term(ZONE, DB), node_selector={ZONE: "zone-a"})
        for n in range(5)
    ]

    plan = planned(problem([*together, *near], catalogue=CATALOGUE), options)

    assert not plan.unschedulable
    assert {c.cheapest.zone for c in plan.claims} == {"zone-a"}
