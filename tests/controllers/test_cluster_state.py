"""The cluster state follows changes of both clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.controllers.reconciling.workqueue import EARLY_SECONDS
from karpenter_core.errors import OfferingKey
from karpenter_core.state.events import (
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    OfferingsUnavailable,
    PodsDecided,
)
from karpenter_core.state.placements import valid_placement
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import (
    node_and_claim,
    ready_node_pool,
    synced_state,
    with_claim_conditions,
)
from tests.controllers.clocks import TwoClocks

OUT = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")


@pytest.fixture
def clock():
    return TwoClocks()


@pytest.fixture
def cluster_state(clock):
    cluster_state = ClusterState(
        synced_state(ready_node_pool(node_pool()), *node_and_claim("web")), clock
    )
    cluster_state.tick()
    return cluster_state


def is_sold(cluster_state):
    types = cluster_state.snapshot().catalogues["default"].instance_types
    return any(
        offering.available
        for item in types
        if item.name == OUT.instance_type
        for offering in item.offerings
        if (offering.zone, offering.capacity_type) == (OUT.zone, OUT.capacity_type)
    )


@pytest.mark.parametrize("hours", [6, -6])
def test_a_clock_jump_does_not_change_the_end_of_a_stock_out(cluster_state, clock, hours):
    """There and back."""
    assert is_sold(cluster_state)
    cluster_state.fold(OfferingsUnavailable(offerings=(OUT,), provider="kwok", at=clock.now()))
    clock.passes(60)
    clock.is_set(hours=hours)
    cluster_state.tick()
    assert not is_sold(cluster_state)

    clock.passes(60)
    clock.is_set(hours=-hours)
    cluster_state.tick()
    assert not is_sold(cluster_state)

    clock.passes(61)
    cluster_state.tick()
    assert is_sold(cluster_state)


@pytest.mark.parametrize("hours", [6, -6])
def test_a_nomination_lasts_as_long_as_it_was_made_for(cluster_state, clock, hours):
    """Seen by the snapshot at once, without a tick, and by the wall clock as it is now."""
    cluster_state.fold(NodesNominated(names=("web",), until=clock.now() + timedelta(seconds=20)))
    clock.is_set(hours=hours)
    (web,) = cluster_state.snapshot().state_nodes
    assert web.is_nominated(clock.now())

    clock.passes(21)
    cluster_state.tick()
    (web,) = cluster_state.snapshot().state_nodes
    assert not web.is_nominated(clock.now())


def test_the_sweep_continues_after_the_clock_is_set_back(cluster_state, clock):
    """Entries made while the clock is ahead expire in time."""
    clock.is_set(hours=6)
    cluster_state.tick()
    cluster_state.fold(OfferingsUnavailable(offerings=(OUT,), provider="kwok", at=clock.now()))
    cluster_state.fold(ObjectRemoved(pod("gone")))
    clock.is_set(hours=-6)
    clock.passes(6 * 60 + 1)
    cluster_state.tick()

    assert is_sold(cluster_state)
    assert not cluster_state.snapshot().ledger.unavailable_offerings
    clock.passes(600)
    cluster_state.tick()
    assert not cluster_state._builder._tombstones


def test_a_drifting_server_clock_is_followed(cluster_state, clock):
    """Second by second; what is less than one is not noticed."""
    cluster_state.fold(NodesNominated(names=("web",), until=clock.now() + timedelta(seconds=20)))
    before = dict(cluster_state.snapshot().ledger.nominations)
    clock.is_set(seconds=0.7)
    assert dict(cluster_state.snapshot().ledger.nominations) == before

    clock.is_set(seconds=0.7)
    (until,) = cluster_state.snapshot().ledger.nominations.values()
    assert (until - before["web"]).total_seconds() == pytest.approx(1.4)


@pytest.mark.parametrize("hours", [6, -6])
def test_the_monotonic_clock_ignores_wall_clock_jumps(clock, hours):
    """Differences of its instants are real time."""
    steady = SteadyClock(clock)
    assert steady.now() == EPOCH
    clock.is_set(hours=hours)
    clock.passes(30)

    assert steady.now() == EPOCH + timedelta(seconds=30)


@pytest.mark.parametrize("hours", [6, -6])
def test_a_nomination_expires_in_time_despite_the_clock_of_the_node(cluster_state, clock, hours):
    """The node says it was initialised hours from now, or hours ago."""
    its_node, claim = node_and_claim("late")
    claim = with_claim_conditions(claim, INITIALIZED, now=clock.now() + timedelta(hours=hours))
    waiting = pod("waiting")
    for item in (its_node, claim, waiting):
        cluster_state.fold(ObjectObserved(item))
    cluster_state.fold(PodsDecided(placed={waiting.uid: "late"}, at=clock.now()))

    assert valid_placement(cluster_state.snapshot(), waiting, now=clock.now()) is not None
    clock.passes(21)
    assert valid_placement(cluster_state.snapshot(), waiting, now=clock.now()) is None


@pytest.mark.parametrize("early", [0.0, EARLY_SECONDS])
async def test_a_wait_for_a_state_that_never_comes_ends_with_its_time(cluster_state, clock, early):
    """A timer that ends a moment too early does not begin another wait."""
    waits = []

    async def wait_for(self, clock, seconds):
        waits.append(seconds)
        assert len(waits) < 3
        clock.passes(seconds - early)

    clock.seconds = 0.0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WakeSignal, "wait_for", wait_for)
        assert not await cluster_state.wait_until(lambda _: False, seconds=2 * EARLY_SECONDS)
    assert waits == [2 * EARLY_SECONDS]
