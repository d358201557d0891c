"""NodePools that can launch no node for any pod."""

from __future__ import annotations

from dataclasses import replace

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.problem import MinValuesPolicy, PoolConstraint, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    problem,
    requirement_spec,
)


def excluded_pools(pool, *, types=None, options=None):
    asked = problem([pod("web-0")], pools=[node_pool("good"), pool])
    listed = {"good": asked.catalogues["good"], pool.name: types or asked.catalogues[pool.name]}
    return dict(solve(replace(asked, catalogues=listed), options).unusable_pools)


def test_requirements_that_no_type_meets_are_reported():
    """The other pool is as good as ever."""
    pool = node_pool("bad", requirements=[requirement_spec(ZONE, "In", "nowhere")])

    assert excluded_pools(pool) == {"bad": PoolConstraint.REQUIREMENT}


def test_types_that_cannot_be_had_do_not_count():
    """Sold out, in the one capacity type that the pool wants."""
    spot = [requirement_spec(CAPACITY_TYPE, "In", "spot")]
    sold = [offering(capacity_type="spot", available=False), offering(capacity_type="on-demand")]
    types = catalogue(instance_type("small", offerings=sold))

    assert excluded_pools(node_pool("spot", requirements=spot), types=types) == {
        "spot": PoolConstraint.REQUIREMENT
    }
    assert excluded_pools(node_pool("any"), types=types) == {}


def test_too_few_values_have_their_own_reason():
    """Unless `minValues` is only a wish."""
    pool = node_pool(
        "choosy", requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=3)]
    )
    types = catalogue(instance_type("large", cpu="16"), instance_type("small", cpu="2"))

    assert excluded_pools(pool, types=types) == {"choosy": PoolConstraint.MIN_VALUES}
    wish = SolveOptions(min_values=MinValuesPolicy.BEST_EFFORT)
    assert excluded_pools(pool, types=types, options=wish) == {}


def test_a_pool_without_a_catalogue_is_left_out():
    """Its NodeClass is not resolved yet: the other pools are planned for."""
    asked = problem([pod("web-0")], pools=[node_pool("good"), node_pool("later", weight=10)])
    listed = {"good": asked.catalogues["good"]}

    (made,) = solve(replace(asked, catalogues=listed)).claims
    assert made.pool == "good"
