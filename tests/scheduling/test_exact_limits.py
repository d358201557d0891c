"""Decisions at the very value of a limit: maxSkew of pods that do not count, minValues near limits."""

from __future__ import annotations

from itertools import product

import pytest

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.problem import Packing, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    pods,
    problem,
    requirement_spec,
)
from tests.scheduling.hand_made import WEB, pod, spread
from tests.verifier import violations


@pytest.fixture(params=list(Packing), ids=lambda packing: packing.value)
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


SIZES = catalogue(*(instance_type(f"m-{n:02}", cpu=str(n), memory="64Gi") for n in (2, 4, 8, 16)))


@pytest.mark.parametrize("limit", [2, 4, 7, 8, 12, 15, 16, 20, 24, 31, 32, 40])
def test_min_values_hold_however_near_the_limits_are(limit, options):
    """A list of types that is cut to what the limits allow still has as many values as asked."""
    for wanted, count in product((2, 3, 4), (1, 4, 9)):
        several = requirement_spec(INSTANCE_TYPE, "Exists", min_values=wanted)
        pool = node_pool(requirements=[several], limits={"cpu": str(limit)})
        asked = problem(pods(count, cpu="1500m"), pools=[pool], catalogue=SIZES)

        plan = solve(asked, options)

        assert violations(asked, plan) == []
        assert all(len(planned.instance_types) >= wanted for planned in plan.claims)


@pytest.mark.parametrize(("limit", "fits"), [(7, False), (8, True)])
def test_a_limit_that_just_holds_the_types_asked_for_is_enough(limit, fits, options):
    """Three sizes are to be chosen from, of which the largest has eight cores."""
    several = requirement_spec(INSTANCE_TYPE, "Exists", min_values=3)
    pool = node_pool(requirements=[several], limits={"cpu": str(limit)})
    asked = problem(pods(1, cpu="1500m"), pools=[pool], catalogue=SIZES)

    plan = solve(asked, options)

    assert [planned.instance_types for planned in plan.claims] == (
        [("m-02", "m-04", "m-08")] if fits else []
    )
