"""What holds launches back."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state.brakes import (
    Allowance,
    Brake,
    Brakes,
    held_pools,
    nodes_to_spare,
    nodes_total,
)
from karpenter_core.state.events import RegistrationSettled, Tick
from karpenter_core.state.leaving import leaving_problem
from karpenter_core.state.problem import Framing, scheduling_problem
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.machines import machine, node, node_claim, state
from tests.properties import tried

POOL = node_pool()


def allowance(*objects, in_flight=None, now=EPOCH, builder=None, **brakes):
    snapshot = (builder or state(POOL, *objects)).snapshot()
    return Allowance(snapshot, Brakes(**brakes), now=now, in_flight=in_flight)


def granted(given_allowance, wanted=10, pool=POOL):
    return sum(given_allowance.take(pool) is None for _ in range(wanted))


def old(name, **options):
    """A claim that was not created within the last minute."""
    return node_claim(name, created=EPOCH - timedelta(hours=1), **options)


def test_without_brakes_anything_goes():
    """0 is no limit."""
    assert granted(allowance(*machine("a"), *machine("b"))) == 10


def test_every_node_counts_once_and_a_claim_without_one_counts_too():
    """Also those that somebody else made, and those on their way out."""
    going = old("going", stage="Initialized", deleted=EPOCH)
    objects = [
        *machine("ours"),
        going,
        node("going", claim=going),
        old("booting", stage="Launched"),
        old("ordered"),
        node("foreign", provider_id="elsewhere://1"),
    ]

    assert nodes_total(state(*objects).snapshot()) == 5


def test_a_claim_that_only_a_foreign_finalizer_holds_is_no_machine():
    """Its instance is gone, for that is when our own finalizer goes."""
    held = old("held", stage="Initialized", deleted=EPOCH, finalizers=("example.com/audit",))

    assert nodes_total(state(held, *machine("ours")).snapshot()) == 1


def test_the_cluster_grows_to_its_limit_and_not_beyond():
    """Claims that are on their way to the API server are in it already."""
    nodes = [*machine("a"), *machine("b")]

    assert granted(allowance(*nodes, max_nodes_total=5)) == 3
    assert granted(allowance(*nodes, max_nodes_total=5, in_flight={"other": 2})) == 1
    assert granted(allowance(*nodes, max_nodes_total=1)) == 0


def test_a_plan_is_asked_for_no_more_nodes_than_there_is_room_for():
    """Never for less than none; for any number where nothing bounds them."""
    snapshot = state(*machine("a"), *machine("b")).snapshot()
    room = [nodes_to_spare(snapshot, Brakes(max_nodes_total=most)) for most in (5, 2, 1, 0)]

    assert room == [3, 0, 0, None]
    assert nodes_to_spare(snapshot, None) is None
    framing = Framing(brakes=Brakes(max_nodes_total=5))
    assert scheduling_problem(snapshot, now=EPOCH, framing=framing).problem.max_new_nodes == 3
    assert leaving_problem(snapshot, now=EPOCH, framing=framing)[0].max_new_nodes == 3


def test_a_refusal_names_the_brake_and_the_setting():
    """It becomes an Event on pods."""
    refusal = allowance(*machine("a"), max_nodes_total=1).take(POOL)

    assert refusal is not None
    assert refusal.brake is Brake.MAX_NODES_TOTAL
    assert "1 nodes (--max-nodes-total)" in refusal.why


def test_each_pool_has_its_own_launches_a_minute():
    """Claims of the last minute count, and those in flight."""
    web = node_pool("web")
    recent = [node_claim("a"), node_claim("b", pool="web"), old("c")]
    given_allowance = allowance(web, *recent, launches_per_minute=3, in_flight={"web": 1})

    assert granted(given_allowance) == 2
    assert granted(given_allowance, pool=web) == 1
    refusal = given_allowance.take(web)
    assert refusal is not None
    assert refusal.brake is Brake.LAUNCHES_PER_MINUTE


def test_after_a_minute_the_next_ones_have_their_turn():
    """Nothing is lost by waiting."""
    builder = state(POOL, node_claim("a"), node_claim("b"))
    assert granted(allowance(builder=builder, launches_per_minute=2)) == 0

    builder.fold(Tick(EPOCH + timedelta(minutes=1)))

    assert granted(allowance(builder=builder, launches_per_minute=2)) == 2


def failing(*objects, failures=2):
    builder = state(POOL, *objects)
    for _ in range(failures):
        builder.fold(RegistrationSettled(pool_uid=POOL.uid, succeeded=False))
    return builder


def test_a_pool_that_keeps_failing_is_left_alone_and_then_tried_with_one_machine():
    """One that registers opens it again."""
    builder = failing()
    later = EPOCH + timedelta(minutes=1)

    refusal = allowance(builder=builder).take(POOL)
    assert refusal is not None
    assert refusal.brake is Brake.REGISTRATION_FAILURES
    assert "2 nodes" in refusal.why
    assert "2026-01-01T00:01:00Z" in refusal.why
    assert granted(allowance(builder=builder, now=later)) == 1

    builder.fold(RegistrationSettled(pool_uid=POOL.uid, succeeded=True))
    assert granted(allowance(builder=builder, now=later)) == 10


def test_while_one_machine_is_tried_no_other_is():
    """Whether it boots or is on its way to the API server."""
    later = EPOCH + timedelta(minutes=1)

    assert granted(allowance(builder=failing(old("a", stage="Launched")), now=later)) == 0
    assert granted(allowance(builder=failing(), now=later, in_flight={"default": 1})) == 0
    assert granted(allowance(builder=failing(*machine("a")), now=later)) == 1


def test_a_pool_on_hold_is_not_planned_with():
    """While it is paused, and while its trial boots; not once the trial may begin."""
    later = EPOCH + timedelta(minutes=1)
    booting = failing(old("a", stage="Launched")).snapshot()

    assert set(held_pools(failing().snapshot(), now=EPOCH)) == {"default"}
    assert held_pools(failing().snapshot(), now=later) == {}
    assert set(held_pools(booting, now=later)) == {"default"}
    assert held_pools(failing(failures=1).snapshot(), now=EPOCH) == {}


@pytest.mark.parametrize("brake", ["max_nodes_total", "launches_per_minute"])
@given(
    limit=st.integers(1, 12),
    present=st.integers(0, 6),
    batches=st.lists(st.integers(0, 6), max_size=5),
)
@tried(100)
def test_batches_that_overlap_never_exceed_a_limit_together(brake, limit, present, batches):
    """Each is granted before any of them has reached the API server."""
    snapshot = state(POOL, *(node_claim(f"c{i}") for i in range(present))).snapshot()
    in_flight: Counter[str] = Counter()

    for wanted in batches:
        one = Allowance(snapshot, Brakes(**{brake: limit}), now=EPOCH, in_flight=in_flight)
        in_flight[POOL.name] += granted(one, wanted)

    assert in_flight[POOL.name] == min(max(limit - present, 0), sum(batches))


def test_no_pool_is_planned_with_while_the_cluster_is_as_large_as_it_may_be():
    """A plan whose claims would all be refused helps nobody."""
    web = node_pool("web")
    full = state(POOL, web, *machine("a"), *machine("b")).snapshot()

    held = held_pools(full, now=EPOCH, brakes=Brakes(max_nodes_total=2))

    assert {name: each.brake for name, each in held.items()} == {
        "default": Brake.MAX_NODES_TOTAL,
        "web": Brake.MAX_NODES_TOTAL,
    }
    assert held_pools(full, now=EPOCH, brakes=Brakes(max_nodes_total=3)) == {}
    assert held_pools(full, now=EPOCH, brakes=Brakes()) == {}
