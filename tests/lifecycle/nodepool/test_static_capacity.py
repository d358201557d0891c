"""Static NodePools get a condition and an Event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.lifecycle.nodepool.static_capacity import (
    static_notices,
    with_replicas_ignored,
)
from karpenter_core.state.disruption_pause import replacement_pause_reason
from karpenter_core.testing.builders import EPOCH, node_pool

NOW = EPOCH + timedelta(minutes=1)


@pytest.mark.parametrize("replicas", [0, 3])
def test_a_static_pool_has_the_condition_and_an_event(replicas):
    """Also one that asks for no nodes at all."""
    pool = node_pool(replicas=replicas)

    reported_pool = with_replicas_ignored(pool, now=NOW)

    condition = find_condition(reported_pool.status.conditions, "ReplicasIgnored")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "StaticCapacityNotBuilt")
    (notice,) = static_notices(pool)
    assert (notice.reason, notice.message) == (condition.reason, condition.message)
    assert with_replicas_ignored(reported_pool, now=NOW + timedelta(hours=1)) is reported_pool


def test_a_dynamic_pool_has_neither():
    pool = node_pool()

    assert with_replicas_ignored(pool, now=NOW) is pool
    assert static_notices(pool) == ()


def test_a_condition_of_a_static_pool_goes_with_its_replicas():
    """After the pool was made anew, or by a release that has static pools."""
    reported_pool = with_replicas_ignored(node_pool(replicas=1), now=NOW)
    spec = reported_pool.spec.model_copy(update={"replicas": None})

    cleared = with_replicas_ignored(reported_pool.model_copy(update={"spec": spec}), now=NOW)

    assert not is_true(cleared.status.conditions, "ReplicasIgnored")
    assert find_condition(cleared.status.conditions, "ReplicasIgnored") is None


def test_claims_are_kept_in_static_pools_and_paused_ones():
    assert "is static" in replacement_pause_reason(node_pool(replicas=0), is_paused_globally=False)
    assert "is paused" in replacement_pause_reason(node_pool(), is_paused_globally=True)
    assert replacement_pause_reason(node_pool(), is_paused_globally=False) == ""
    assert replacement_pause_reason(None, is_paused_globally=False) == ""
