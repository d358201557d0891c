"""The purchase mix asks the LP for what the pods need: totals, shares of some shapes, fewest nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ON_DEMAND, PODS, RESERVED, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    TopologySpread,
    WeightedAffinityTerm,
)
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.portfolio.plan_portfolio import first_fit_steps
from karpenter_core.scheduling.portfolio.purchase_mix import (
    find_purchase_mix,
    guidance_problem,
    list_pool_shapes,
    minimum_nodes,
)
from karpenter_core.scheduling.problem import ReservationPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    offering,
    pod_shape,
    pods,
    problem,
)

RESERVATION = "example.com/reservation"
APP = {"app": "web"}
SELECTOR = LabelSelector(match_labels=APP)
BESIDE_NONE = AffinityTerm(topology_key=HOSTNAME, selector=SELECTOR)
TYPES = catalogue(
    instance_type("intel", cpu="4", memory="16Gi", arch="amd64", price=0.2),
    instance_type("arm", cpu="8", memory="16Gi", arch="arm64", price=0.3),
)


def compiled(asked, **options):
    return run_steps(compile_steps(asked, SolveOptions(**options), CatalogueCache()))


def demands_of(compiled_problem):
    return {index: len(each.members) for index, each in enumerate(compiled_problem.classes)}


def web(count, **changes):
    return pods(count, "web", shape=replace(pod_shape(labels=APP, cpu="1"), **changes))


def spread(key, *, max_skew=1):
    return TopologySpread(
        topology_key=key, max_skew=max_skew, when_unsatisfiable="DoNotSchedule", selector=SELECTOR
    )


def stated(asked, **options):
    """Return the LP of all pods of a problem."""
    made = compiled(asked)
    shapes = list_pool_shapes(made, range(len(made.pools)), robust=False)
    return made, shapes, guidance_problem(made, demands_of(made), shapes, 0.0, **options)


@pytest.mark.parametrize(
    ("changes", "at_most", "surely"),
    [
        ({}, 0, 0),
        ({"pod_anti_affinity": (BESIDE_NONE,)}, 7, 7),
        (
            {"preferred_pod_anti_affinity": (WeightedAffinityTerm(weight=1, term=BESIDE_NONE),)},
            7,
            0,
        ),
        ({"topology_spread": (spread(HOSTNAME, max_skew=1),)}, 7, 7),
        ({"topology_spread": (spread(HOSTNAME, max_skew=3),)}, 3, 3),
        ({"topology_spread": (spread(ZONE),)}, 0, 0),
        ({"pod_affinity": (BESIDE_NONE,)}, 0, 0),
    ],
    ids=["alone", "anti-affinity", "wish", "spread-1", "spread-3", "by-zone", "affinity"],
)
def test_pods_that_avoid_each_other_need_as_many_nodes(changes, at_most, surely):
    """Wishes count where nodes are guessed, and do not where a bound must hold."""
    made = compiled(problem(web(7, **changes), catalogue=TYPES))
    found = [minimum_nodes(made, demands_of(made), surely=each) for each in (False, True)]
    assert found == [at_most, surely]


def test_the_first_constraint_covers_all_pods_with_all_shapes():
    made, shapes, lp = stated(problem(web(5), catalogue=TYPES))
    lines = dict(zip(made.resources, lp.demand[0].tolist(), strict=True))
    assert (lines["cpu"], lines["memory"], lines[PODS]) == (5000, 500 * 2**20, 5)
    assert lp.usable[0].all()
    assert len(lp.price) == sum(len(each.shapes.row) for each in shapes)


def test_pods_of_one_architecture_use_shapes_of_that_architecture():
    asked = (
        *web(5),
        *pods(2, "arm", shape=pod_shape(cpu="3", node_selector={ARCH: "arm64"})),
    )
    made, shapes, lp = stated(problem(asked, catalogue=TYPES))
    (arm,) = (line for line in range(len(lp.demand)) if not lp.usable[line].all())
    of_shapes = [
        made.pools[each.pool].catalogue.names[row] == "arm"
        for each in shapes
        for row in each.shapes.row
    ]
    assert lp.usable[arm].tolist() == of_shapes
    assert lp.demand[arm, made.resources.index("cpu")] == 6000


def test_a_spread_over_zones_demands_an_equal_part_of_each_zone():
    made, _shapes, lp = stated(problem(web(9, topology_spread=(spread(ZONE),)), catalogue=TYPES))
    by_zone = lp.demand[1:, made.resources.index("cpu")].tolist()
    assert by_zone == [3000] * 3
    assert (lp.usable[1:].sum(axis=0) == 1).all()


def test_a_spread_over_hosts_and_zones_demands_equal_parts_of_the_zones():
    """The constraints of hosts are in another part of the LP."""
    both = (spread(HOSTNAME), spread(ZONE))
    made, _shapes, lp = stated(problem(web(9, topology_spread=both), catalogue=TYPES))
    by_zone = lp.demand[1:, made.resources.index("cpu")].tolist()
    assert by_zone == [3000] * 3


def test_a_bound_subtracts_existing_nodes_and_their_free_capacity():
    nodes = [existing_node(f"there-{number}") for number in range(3)]
    made = compiled(problem(web(7, pod_anti_affinity=(BESIDE_NONE,)), catalogue=TYPES, nodes=nodes))
    shapes = list_pool_shapes(made, range(len(made.pools)), robust=False)
    there = np.zeros(len(made.resources), dtype=np.int64)
    there[made.resources.index("cpu")] = 6000
    there[made.resources.index("memory")] = 2**40
    lp = guidance_problem(made, demands_of(made), shapes, 0.0, there)
    assert lp.nodes[0] == 4
    lines = dict(zip(made.resources, lp.demand[0].tolist(), strict=True))
    assert (lines["cpu"], lines["memory"], lines[PODS]) == (1000, 0, 7)


def partly_reserved(name, *, price, **amounts):
    """Make a type with one reserved instance."""
    held = Requirement.of(RESERVATION, "In", (name,))
    paid = offering("zone-a", RESERVED, price=price / 1000)
    free = offering("zone-a", ON_DEMAND, price=price)
    absent = Requirement.of(RESERVATION, "DoesNotExist")
    made = instance_type(
        name,
        offerings=(
            dataclasses.replace(free, requirements=free.requirements.add(absent)),
            dataclasses.replace(
                paid, requirements=paid.requirements.add(held), reservation_capacity=1
            ),
        ),
        **amounts,
    )
    return dataclasses.replace(made, requirements=made.requirements.add(held))


def test_a_mix_is_for_the_pools_that_launch_nodes_as_weights_and_limits_decide():
    """The first pool has reservations for two nodes, the second may launch one."""
    pools = (
        node_pool("held", weight=100, requirements=[(CAPACITY_TYPE, "In", RESERVED)]),
        node_pool("small", weight=50, requirements=[(ARCH, "In", "amd64")], limits={"cpu": "4"}),
        node_pool("large", weight=10),
    )
    types = catalogue(
        partly_reserved("intel", cpu="4", memory="16Gi", arch="amd64", price=0.2),
        partly_reserved("arm", cpu="8", memory="16Gi", arch="arm64", price=0.3),
    )
    asked = problem(web(24), pools=pools, catalogue=types, well_known=[RESERVATION])
    made = compiled(asked, reservations=ReservationPolicy.FALLBACK)
    first_fit = run_steps(first_fit_steps(made, halt=None))

    mix = find_purchase_mix(made, first_fit.engine, fee_share=1.0)

    assert mix is not None
    assert mix.has_several_pools
    cpu = made.resources.index("cpu")
    bought, start = {}, 0
    for one in mix.pool_shapes:
        counts = mix.guidance.counts[start : start + len(one.shapes.row)]
        bought[made.pools[one.pool].name] = float(counts @ one.shapes.capacity[cpu])
        start += len(one.shapes.row)
    asked = {"small": 0, "large": 0}
    for one in first_fit.sized_claims.values():
        if one.claim.pool.name in asked:
            asked[one.claim.pool.name] += int(one.used[cpu])
    assert asked["small"] > 0
    assert bought == pytest.approx(asked)
