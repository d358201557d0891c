"""What the feed makes of the two clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.feed import Feed
from karpenter_core.errors import OfferingKey
from karpenter_core.state.events import (
    Nominated,
    Observed,
    OfferingsExhausted,
    PodsDecided,
    Removed,
)
from karpenter_core.state.placements import standing_place
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.machines import machine, ready, state, with_claim_conditions
from tests.controllers.clocks import TwoClocks

OUT = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="spot")


@pytest.fixture
def clock():
    return TwoClocks()


@pytest.fixture
def feed(clock):
    feed = Feed(state(ready(node_pool()), *machine("web")), clock)
    feed.tick()
    return feed


def is_sold(feed):
    types = feed.snapshot().catalogues["default"].instance_types
    return any(
        offering.available
        for item in types
        if item.name == OUT.instance_type
        for offering in item.offerings
        if (offering.zone, offering.capacity_type) == (OUT.zone, OUT.capacity_type)
    )


@pytest.mark.parametrize("hours", [6, -6])
def test_a_wall_clock_that_jumps_lifts_no_stock_out_and_keeps_none(feed, clock, hours):
    """There and back."""
    assert is_sold(feed)
    feed.fold(OfferingsExhausted(offerings=(OUT,), provider="kwok", at=clock.now()))
    clock.passes(60)
    clock.is_set(hours=hours)
    feed.tick()
    assert not is_sold(feed)

    clock.passes(60)
    clock.is_set(hours=-hours)
    feed.tick()
    assert not is_sold(feed)

    clock.passes(61)
    feed.tick()
    assert is_sold(feed)


@pytest.mark.parametrize("hours", [6, -6])
def test_a_nomination_lasts_as_long_as_it_was_made_for(feed, clock, hours):
    """Seen by the snapshot at once, without a tick, and by the wall clock as it is now."""
    feed.fold(Nominated(names=("web",), until=clock.now() + timedelta(seconds=20)))
    clock.is_set(hours=hours)
    (web,) = feed.snapshot().state_nodes
    assert web.is_nominated(clock.now())

    clock.passes(21)
    feed.tick()
    (web,) = feed.snapshot().state_nodes
    assert not web.is_nominated(clock.now())


def test_the_sweep_goes_on_after_the_clock_went_back(feed, clock):
    """What is noted while the clock is ahead ends in its time."""
    clock.is_set(hours=6)
    feed.tick()
    feed.fold(OfferingsExhausted(offerings=(OUT,), provider="kwok", at=clock.now()))
    feed.fold(Removed(pod("gone")))
    clock.is_set(hours=-6)
    clock.passes(6 * 60 + 1)
    feed.tick()

    assert is_sold(feed)
    assert not feed.snapshot().ledger.exhausted
    clock.passes(600)
    feed.tick()
    assert not feed._builder._tombstones


def test_a_clock_that_drifts_is_followed_too(feed, clock):
    """Second by second; what is less than one is not noticed."""
    feed.fold(Nominated(names=("web",), until=clock.now() + timedelta(seconds=20)))
    before = dict(feed.snapshot().ledger.nominations)
    clock.is_set(seconds=0.7)
    assert dict(feed.snapshot().ledger.nominations) == before

    clock.is_set(seconds=0.7)
    (until,) = feed.snapshot().ledger.nominations.values()
    assert (until - before["web"]).total_seconds() == pytest.approx(1.4)


@pytest.mark.parametrize("hours", [6, -6])
def test_a_steady_clock_goes_on_where_the_wall_clock_jumps(clock, hours):
    """Differences of its instants are real time."""
    steady = SteadyClock(clock)
    assert steady.now() == EPOCH
    clock.is_set(hours=hours)
    clock.passes(30)

    assert steady.now() == EPOCH + timedelta(seconds=30)


@pytest.mark.parametrize("hours", [6, -6])
def test_a_place_is_void_in_time_though_its_machine_came_up_by_another_clock(feed, clock, hours):
    """The machine says it was initialised hours from now, or hours ago."""
    its_node, claim = machine("late")
    claim = with_claim_conditions(claim, INITIALIZED, now=clock.now() + timedelta(hours=hours))
    waiting = pod("waiting")
    for item in (its_node, claim, waiting):
        feed.fold(Observed(item))
    feed.fold(PodsDecided(placed={waiting.uid: "late"}, at=clock.now()))

    assert standing_place(feed.snapshot(), waiting, now=clock.now()) is not None
    clock.passes(21)
    assert standing_place(feed.snapshot(), waiting, now=clock.now()) is None
