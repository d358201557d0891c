"""The share of spot among the nodes of a NodePool: one node off at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, SPOT, SPOT_SHARE
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES, is_spot_due, spot_share_error
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    pod,
    problem,
    standard_catalogue,
)
from tests.properties import with_examples

TYPES = catalogue(instance_type("only", cpu="2", memory="8Gi", overhead={}, price=0.1))
PACKINGS = [PackingPolicy.VALUE, PackingPolicy.FIRST_FIT]


def shared_pool(share):
    pool = node_pool()
    metadata = pool.metadata.model_copy(update={"annotations": {SPOT_SHARE: share}})
    return pool.model_copy(update={"metadata": metadata})


def capacity_types(plan):
    """Count the claims that are spot, and those that are not; none may be both."""
    kinds = [Requirements(claim.requirements).get(CAPACITY_TYPE) for claim in plan.claims]
    assert all(kind.has(SPOT) != kind.has("on-demand") for kind in kinds)
    spot = sum(kind.has(SPOT) for kind in kinds)
    return spot, len(kinds) - spot


def plan_of(pods, share, *, spot=0, others=0, types=TYPES, packing=PackingPolicy.VALUE):
    usage = {"default": {SPOT_NODES: spot, OTHER_NODES: others}}
    asked = problem(pods, pools=[shared_pool(share)], catalogue=types, pool_usage=usage)
    return solve(asked, SolveOptions(packing=packing))


def web(count, *, cpu="1500m", **fields):
    return [pod(f"web-{n}", cpu=cpu, **fields) for n in range(count)]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    ("share", "spot"), [("0%", 0), ("50%", 5), ("70%", 7), ("100%", 10), ("25%", 2)]
)
def test_new_nodes_have_the_share_of_spot(share, spot, packing):
    """For both packings."""
    counted = capacity_types(plan_of(web(10), share, packing=packing))

    assert counted in {(spot, 10 - spot), (spot + 1, 9 - spot)}


def test_existing_nodes_count_for_the_share():
    """Four of spot are there, so the others come first."""
    assert capacity_types(plan_of(web(4), "50%", spot=4)) == (0, 4)
    assert capacity_types(plan_of(web(4), "50%", others=4)) == (4, 0)


def test_a_pod_gets_the_capacity_type_that_it_requires():
    """Nodes for others make up for it."""
    asking = [pod("asking", cpu="1500m", node_selector={CAPACITY_TYPE: "on-demand"})]

    assert capacity_types(plan_of(asking, "100%")) == (0, 1)


def test_the_other_capacity_type_is_launched_where_the_one_that_is_due_is_not_sold():
    """Pods do not wait for the share."""
    on_demand = instance_type("plain", cpu="2", overhead={}, capacity_types=("on-demand",))

    assert capacity_types(plan_of(web(3), "100%", types=catalogue(on_demand))) == (0, 3)


@pytest.mark.parametrize("text", ["70", "101%", "-1%", "most", "", "nan%"])
def test_a_share_that_cannot_be_read_is_an_error_and_launches_nothing(text):
    """The message names annotation and value."""
    assert f'"{text}" is not a percentage' in spot_share_error(shared_pool(text))
    assert plan_of(web(1), text).claims == ()


def test_a_pool_without_share_leaves_the_choice_open():
    """A claim may be either."""
    plan = solve(problem(web(1), catalogue=TYPES))
    (claim,) = plan.claims

    assert {SPOT, "on-demand"} == set(Requirements(claim.requirements).get(CAPACITY_TYPE).values)


@with_examples(20)
@given(
    share=st.integers(0, 100),
    sizes=st.lists(st.sampled_from(("300m", "1500m", "3", "7")), min_size=1, max_size=25),
    packing=st.sampled_from(PACKINGS),
)
def test_the_share_is_one_node_off_at_most(share, sizes, packing):
    """However many nodes a plan has."""
    pods = [pod(f"p-{n}", cpu=cpu) for n, cpu in enumerate(sizes)]
    plan = plan_of(pods, f"{share}%", types=standard_catalogue(), packing=packing)
    spot, others = capacity_types(plan)

    assert abs(spot - share / 100 * (spot + others)) <= 1
    assert not plan.unschedulable


@given(share=st.floats(0, 1), count=st.integers(1, 60))
def test_the_rule_is_half_a_node_off_at_most(share, count):
    """After each node."""
    spot = 0
    for others in range(count):
        spot += is_spot_due(share, spot=spot, others=others - spot)
        assert abs(spot - share * (others + 1)) <= 0.5 + 1e-9
