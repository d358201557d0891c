"""Claims wait for another process's call only while it may still launch instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.simulated.pools import InstancePool
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    ZONE_B,
    Process,
    claim_of,
    in_zone,
)

MINUTE = 60


@pytest.fixture(params=[GROUP, RUN])
def answered_short(request, cloud, clients, tmp_path, node_class):
    """A process that comes after one whose call for four claims brought two instances, and was
    answered."""
    first, second = (Process(cloud, clients, tmp_path, launch_api=request.param) for _ in range(2))
    stock = InstancePool(capacity_type="*", instance_type=LARGE, zone="*")
    cloud.capacity.stock(stock, 2)
    outcomes_by_try = first.launch(*claims(), node_class=node_class)
    assert sum(isinstance(each, LaunchedInstance) for each in outcomes_by_try) == 2
    return second


def claims():
    return [claim_of(f"n{each}", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)) for each in range(4)]


def kinds(outcomes):
    return {type(each) for each in outcomes if not isinstance(each, LaunchedInstance)}


def test_a_shortage_is_reported_before_the_launch_times_out(answered_short, node_class):
    """The launch timeout is 5 minutes from the claim, which is older than any instance for it."""
    outcomes_by_try = []
    for _ in range(5):
        outcomes_by_try.append(kinds(answered_short.launch(*claims(), node_class=node_class)))
        answered_short.clock.forward(MINUTE - 15)

    assert outcomes_by_try[0] == {CloudProviderError}
    assert outcomes_by_try[-1] == {InsufficientCapacityError}
    assert len(answered_short.cloud.held().instances) == 2


def test_claims_wait_for_no_more_instances_than_a_call_has_claims(process, restarted, node_class):
    """All instances of the call are there; one is another claim's by what that one's status says."""
    there = sorted(claims()[:2], key=lambda claim: claim.uid)
    outcomes = process.launch(*there, node_class=node_class)
    other = claim_of("other", ON_DEMAND, ONLY_LARGE)
    restarted.write_down(other, outcomes[0].provider_id)

    again = restarted.launch(*there, node_class=node_class)

    assert kinds(again) == set()
    assert len(process.cloud.held().instances) == 3


def test_an_instance_without_a_creation_time_delays_no_claim(
    answered_short, node_class, monkeypatch
):
    read = answered_short.reader.of_cluster

    def timeless():
        listing = read()
        return replace(
            listing, instances=tuple(replace(each, launched_at=None) for each in listing.instances)
        )

    monkeypatch.setattr(answered_short.reader, "of_cluster", timeless)

    assert kinds(answered_short.launch(*claims(), node_class=node_class)) == {
        InsufficientCapacityError
    }


@pytest.fixture
def restarted(cloud, clients, tmp_path):
    """A second process, which knows nothing of the first."""
    return Process(cloud, clients, tmp_path)
