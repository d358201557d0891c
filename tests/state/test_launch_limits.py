"""Limits on launches: cluster size, launches a minute, failing NodePools."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import (
    ObjectObserved,
    PodsDecided,
    RegistrationSettled,
    TimePassed,
)
from karpenter_core.state.launch_limits import (
    LaunchAllowance,
    LaunchLimit,
    LaunchLimits,
    nodes_total,
    refused_pools,
    remaining_node_count,
)
from karpenter_core.state.paused_pods import demands_of
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import node, node_and_claim, node_claim, synced_state
from tests.properties import with_examples

POOL = node_pool()


def allowance(*objects, in_flight=None, now=EPOCH, builder=None, **launch_limits):
    snapshot = (builder or synced_state(POOL, *objects)).snapshot()
    return LaunchAllowance(snapshot, LaunchLimits(**launch_limits), now=now, in_flight=in_flight)


def granted(launch_allowance, attempts=10, pool=POOL):
    return sum(launch_allowance.grant(pool) is None for _ in range(attempts))


def old(name, **options):
    """A claim that was not created within the last minute."""
    return node_claim(name, created=EPOCH - timedelta(hours=1), **options)


def test_without_limits_every_launch_is_granted():
    """0 is no limit."""
    assert granted(allowance(*node_and_claim("a"), *node_and_claim("b"))) == 10


def test_every_node_counts_once_and_a_claim_without_one_counts_too():
    """Also foreign nodes, and terminating ones."""
    going = old("going", stage="Initialized", deleted=EPOCH)
    objects = [
        *node_and_claim("ours"),
        going,
        node("going", claim=going),
        old("booting", stage="Launched"),
        old("ordered"),
        node("foreign", provider_id="elsewhere://1"),
    ]

    assert nodes_total(synced_state(*objects).snapshot()) == 5


def test_a_claim_held_by_a_foreign_finalizer_alone_does_not_count():
    """Its instance is gone, for that is when our own finalizer goes."""
    held = old("held", stage="Initialized", deleted=EPOCH, finalizers=("example.com/audit",))

    assert nodes_total(synced_state(held, *node_and_claim("ours")).snapshot()) == 1


def test_cluster_grows_to_its_limit_and_not_beyond():
    """Claims that are on their way to the API server are in it already."""
    nodes = [*node_and_claim("a"), *node_and_claim("b")]

    assert granted(allowance(*nodes, max_nodes_total=5)) == 3
    assert granted(allowance(*nodes, max_nodes_total=5, in_flight={"other": 2})) == 1
    assert granted(allowance(*nodes, max_nodes_total=1)) == 0


def test_a_plan_is_bounded_by_the_remaining_launch_limit():
    """Never for less than none; for any number where nothing bounds them."""
    snapshot = synced_state(*node_and_claim("a"), *node_and_claim("b")).snapshot()
    room = [
        remaining_node_count(snapshot, LaunchLimits(max_nodes_total=most)) for most in (5, 2, 1, 0)
    ]

    assert room == [3, 0, 0, None]
    assert remaining_node_count(snapshot, None) is None
    problem_settings = ProblemSettings(launch_limits=LaunchLimits(max_nodes_total=5))
    assert (
        build_provisioning_input(
            snapshot, now=EPOCH, problem_settings=problem_settings
        ).problem.max_new_nodes
        == 3
    )
    assert (
        build_disruption_problem(snapshot, now=EPOCH, problem_settings=problem_settings)[
            0
        ].max_new_nodes
        == 3
    )


def test_a_refusal_names_the_limit_and_the_setting():
    """It becomes an Event on pods."""
    refusal = allowance(*node_and_claim("a"), max_nodes_total=1).grant(POOL)

    assert refusal is not None
    assert refusal.limit is LaunchLimit.MAX_NODES_TOTAL
    assert "1 nodes (--max-nodes-total)" in refusal.message


def test_each_pool_has_its_own_launches_a_minute():
    """Claims of the last minute count, and those in flight."""
    web = node_pool("web")
    recent = [node_claim("a"), node_claim("b", pool="web"), old("c")]
    given_allowance = allowance(web, *recent, launches_per_minute=3, in_flight={"web": 1})

    assert granted(given_allowance) == 2
    assert granted(given_allowance, pool=web) == 1
    refusal = given_allowance.grant(web)
    assert refusal is not None
    assert refusal.limit is LaunchLimit.LAUNCHES_PER_MINUTE


def test_launches_are_granted_again_after_a_minute():
    """Nothing is lost by waiting."""
    builder = synced_state(POOL, node_claim("a"), node_claim("b"))
    assert granted(allowance(builder=builder, launches_per_minute=2)) == 0

    builder.apply_event(TimePassed(EPOCH + timedelta(minutes=1)))

    assert granted(allowance(builder=builder, launches_per_minute=2)) == 2


def failing(*objects, failures=2):
    builder = synced_state(POOL, *objects)
    for _ in range(failures):
        builder.apply_event(RegistrationSettled(pool_uid=POOL.uid, succeeded=False))
    return builder


def test_a_trial_for_pods_whose_nodes_failed_before_leaves_the_pool_its_own_trial():
    """It may take a quarter of an hour to fail again, and says nothing of other pods."""
    web, batch = pod("web"), pod("batch", cpu="2")
    builder = failing(web, batch)
    for _ in range(2):
        failure = RegistrationSettled(
            pool_uid=POOL.uid, succeeded=False, demands=demands_of(iter([web]))
        )
        builder.apply_event(failure)
    trial, other = node_claim("trial"), node_claim("other")
    later = EPOCH + timedelta(minutes=1)
    builder.apply_event(ObjectObserved(trial))
    builder.apply_event(PodsDecided(placed={web.uid: "trial"}, at=EPOCH))

    assert granted(allowance(builder=builder, now=later)) == 1
    builder.apply_event(ObjectObserved(other))
    builder.apply_event(PodsDecided(placed={batch.uid: "other"}, at=EPOCH))
    assert granted(allowance(builder=builder, now=later)) == 0


def test_the_refusal_of_a_failing_pool_has_the_last_cause():
    """Nodes that were never launched did not register either, which alone would mislead."""
    builder = failing()
    said = (
        'nodes of nodepool "default" in a row did not register in time, or did not fit their pods'
    )
    refusal = allowance(builder=builder).grant(POOL)
    assert f"2 {said}, one node" in refusal.message
    builder.apply_event(
        RegistrationSettled(
            pool_uid=POOL.uid, succeeded=False, reason="Throttled", message="too many requests"
        )
    )
    refusal = allowance(builder=builder).grant(POOL)
    assert f"3 {said} (the last one: too many requests), one node" in refusal.message


def test_failing_pool_is_paused_and_then_tried_with_one_claim():
    """One that registers opens it again."""
    builder = failing()
    later = EPOCH + timedelta(minutes=1)

    refusal = allowance(builder=builder).grant(POOL)
    assert refusal is not None
    assert refusal.limit is LaunchLimit.REGISTRATION_FAILURES
    assert "2 nodes" in refusal.message
    assert "2026-01-01T00:01:00Z" in refusal.message
    assert granted(allowance(builder=builder, now=later)) == 1

    builder.apply_event(RegistrationSettled(pool_uid=POOL.uid, succeeded=True))
    assert granted(allowance(builder=builder, now=later)) == 10


def test_trial_claim_blocks_further_launches():
    """Whether it boots or is on its way to the API server."""
    later = EPOCH + timedelta(minutes=1)

    assert granted(allowance(builder=failing(old("a", stage="Launched")), now=later)) == 0
    assert granted(allowance(builder=failing(), now=later, in_flight={"default": 1})) == 0
    assert granted(allowance(builder=failing(*node_and_claim("a")), now=later)) == 1


def test_paused_pool_is_left_out_of_plans():
    """While it is paused, and while its trial boots; not once the trial may begin."""
    later = EPOCH + timedelta(minutes=1)
    booting = failing(old("a", stage="Launched")).snapshot()

    assert set(refused_pools(failing().snapshot(), now=EPOCH, launch_limits=None)) == {"default"}
    assert refused_pools(failing().snapshot(), now=later, launch_limits=None) == {}
    assert set(refused_pools(booting, now=later, launch_limits=None)) == {"default"}
    assert refused_pools(failing(failures=1).snapshot(), now=EPOCH, launch_limits=None) == {}


@pytest.mark.parametrize("setting", ["max_nodes_total", "launches_per_minute"])
@given(
    limit=st.integers(1, 12),
    present=st.integers(0, 6),
    batches=st.lists(st.integers(0, 6), max_size=5),
)
@with_examples(100)
def test_overlapping_batches_never_exceed_a_limit_together(setting, limit, present, batches):
    """Each is granted before any of them has reached the API server."""
    snapshot = synced_state(POOL, *(node_claim(f"c{i}") for i in range(present))).snapshot()
    in_flight: Counter[str] = Counter()

    for attempts in batches:
        one = LaunchAllowance(
            snapshot, LaunchLimits(**{setting: limit}), now=EPOCH, in_flight=in_flight
        )
        in_flight[POOL.name] += granted(one, attempts)

    assert in_flight[POOL.name] == min(max(limit - present, 0), sum(batches))


def test_full_cluster_leaves_every_pool_out_of_plans():
    """A plan whose claims would all be refused is useless."""
    web = node_pool("web")
    full = synced_state(POOL, web, *node_and_claim("a"), *node_and_claim("b")).snapshot()

    held = refused_pools(full, now=EPOCH, launch_limits=LaunchLimits(max_nodes_total=2))

    assert {name: each.limit for name, each in held.items()} == {
        "default": LaunchLimit.MAX_NODES_TOTAL,
        "web": LaunchLimit.MAX_NODES_TOTAL,
    }
    assert refused_pools(full, now=EPOCH, launch_limits=LaunchLimits(max_nodes_total=3)) == {}
    assert refused_pools(full, now=EPOCH, launch_limits=LaunchLimits()) == {}
