"""Claims whose list of types, cut to its maximum, misses `minValues` are in no plan.

Pods that are where they are because of others on such claims are not left behind by them.
"""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.records import AffinityTerm, LabelSelector, TopologySpread
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
    requirement_spec,
)
from tests.verifier import violations

WEB = LabelSelector(match_labels={"app": "web"})
SPREAD = TopologySpread(
    topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=WEB
)
NEAR = AffinityTerm(topology_key=ZONE, selector=WEB)


def constrained(name, **constraints):
    """Make a pod of 2.5 cores, of `web` if it is spread."""
    selector = constraints.pop("node_selector", {})
    labels = {"app": "web"} if "topology_spread" in constraints else {}
    shape = pod_shape(cpu="2500m", labels=labels, node_selector=selector)
    return pod(name, shape=msgspec.structs.replace(shape, **constraints))


def kind(name, *zones):
    return instance_type(
        name, cpu="4", memory="8Gi", offerings=[offering(zone, price=0.1) for zone in zones]
    )


def plan_of(pods, packing):
    """Plan with a preferred pool of zone-c that has too few types, and one of the other zones."""
    picky = node_pool(
        "picky", weight=10, requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=2)]
    )
    asked = problem(
        pods,
        pools=[picky, node_pool("plain")],
        catalogues={
            "picky": catalogue(kind("small", "zone-c"), kind("large", "zone-c")),
            "plain": catalogue(kind("usual", "zone-a", "zone-b", "zone-c")),
        },
    )
    plan = solve(asked, SolveOptions(packing=packing, max_instance_types=1))
    assert violations(asked, plan) == []
    return plan


@pytest.mark.parametrize("packing", PackingPolicy)
def test_pods_are_spread_without_those_of_dropped_claims(packing):
    """The pods in zone-c have no node: so zone-c has none, and no other zone may have two."""
    pods = [constrained(f"web-{n}", topology_spread=(SPREAD,)) for n in range(6)]

    plan = plan_of(pods, packing)

    assert [claim.pool for claim in plan.claims] == ["plain", "plain"]
    assert len(plan.unschedulable) == 4


@pytest.mark.parametrize("packing", PackingPolicy)
def test_no_pod_is_placed_near_one_of_a_dropped_claim(packing):
    """The pod of the preferred pool is left, and with it the one that has to be in its zone."""
    plain = {NODE_POOL: "plain"}
    pods = [
        pod("web", cpu="3", labels={"app": "web"}, node_selector={NODE_POOL: "picky"}),
        constrained("near", pod_affinity=(NEAR,), node_selector=plain),
        pod("other", cpu="1", node_selector=plain),
    ]

    plan = plan_of(pods, packing)

    assert [one.name for claim in plan.claims for one in claim.pods] == ["other"]
