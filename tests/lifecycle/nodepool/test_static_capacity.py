"""Static NodePools with fewer nodes than replicas get a condition and an Event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import ALIASES
from karpenter_core.lifecycle.nodepool.static_capacity import (
    REPLICAS_HELD_BACK,
    REPLICAS_IGNORED,
    replicas_notices,
    replicas_problem,
    with_replicas_conditions,
)
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.disruption_pause import replacement_pause_reason
from karpenter_core.testing.builders import EPOCH, catalogue, node_pool
from karpenter_core.testing.state_builders import node_claim, synced_state

NOW = EPOCH + timedelta(minutes=1)


def problem(pool, *claims, gate=True, **options):
    return replicas_problem(
        synced_state(pool, *claims, **options).snapshot(),
        pool,
        static_capacity=gate,
        aliases=ALIASES,
        well_known=frozenset(),
        solve=SolveOptions(),
    )


@pytest.mark.parametrize("replicas", [0, 3])
def test_with_the_gate_off_replicas_are_ignored(replicas):
    """Also those of a pool that asks for no nodes at all."""
    pool = node_pool(replicas=replicas)

    reported_pool = with_replicas_conditions(pool, problem(pool, gate=False), now=NOW)

    condition = find_condition(reported_pool.status.conditions, REPLICAS_IGNORED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "StaticCapacityDisabled")
    assert "feature gate StaticCapacity is off" in condition.message
    (notice,) = replicas_notices(reported_pool)
    assert (notice.type, notice.reason, notice.message) == (
        "Warning",
        "ReplicasIgnored",
        condition.message,
    )
    later = NOW + timedelta(hours=1)
    again = with_replicas_conditions(reported_pool, problem(pool, gate=False), now=later)
    assert again is reported_pool


@pytest.mark.parametrize("gate", [True, False])
def test_a_dynamic_pool_has_no_condition(gate):
    pool = node_pool()

    assert problem(pool, gate=gate) is None
    assert with_replicas_conditions(pool, None, now=NOW) is pool
    assert replicas_notices(pool) == ()


def test_a_limit_that_keeps_replicas_back_is_named():
    pool = node_pool(replicas=3, limits={"nodes": "2"})

    found = problem(pool, node_claim("a"), node_claim("b", deleted=EPOCH))

    assert (found.condition, found.reason) == (REPLICAS_HELD_BACK, "NodeLimitReached")
    assert found.message.startswith("2 of 3 replica(s) are missing: limits.nodes is 2")


def test_a_template_that_nothing_fits_keeps_replicas_back():
    found = problem(node_pool(replicas=1), catalogues={"default": catalogue()})

    assert (found.condition, found.reason) == (REPLICAS_HELD_BACK, "NoInstanceTypeAvailable")


def test_nothing_is_said_before_instance_types_are_listed():
    assert problem(node_pool(replicas=1), catalogues={}) is None


def test_replicas_that_exist_or_are_about_to_be_launched_are_no_problem():
    pool = node_pool(replicas=2)

    assert problem(pool, node_claim("a")) is None
    assert problem(pool, node_claim("a"), node_claim("b")) is None


def test_a_condition_is_removed_with_its_cause():
    """Also when the gate is switched on, and one condition replaces the other."""
    pool = node_pool(replicas=3, limits={"nodes": "0"})
    ignored = with_replicas_conditions(pool, problem(pool, gate=False), now=NOW)

    held = with_replicas_conditions(ignored, problem(pool), now=NOW)
    settled = with_replicas_conditions(held, None, now=NOW)

    types = [condition.type for condition in held.status.conditions]
    assert REPLICAS_HELD_BACK in types
    assert REPLICAS_IGNORED not in types
    assert find_condition(settled.status.conditions, REPLICAS_HELD_BACK) is None


def pause(pool, *, gate, paused=False):
    return replacement_pause_reason(pool, is_paused_globally=paused, static_capacity=gate)


def test_claims_are_kept_in_static_pools_without_the_gate_and_in_paused_ones():
    assert "gate StaticCapacity is off" in pause(node_pool(replicas=0), gate=False)
    assert pause(node_pool(replicas=0), gate=True) == ""
    assert "is paused" in pause(node_pool(replicas=0), gate=True, paused=True)
    assert "is paused" in pause(node_pool(), gate=False, paused=True)
    assert pause(node_pool(), gate=False) == ""
    assert pause(None, gate=False) == ""
