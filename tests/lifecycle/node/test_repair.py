"""Unhealthy Nodes are repaired within limits (acceptance cases 114-120)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import DO_NOT_DISRUPT, TERMINATION_TIMESTAMP
from karpenter_core.api.records import NodeConditionView
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.node.repair import (
    BLOCKED_RETRY,
    SMALL_POOL,
    RepairAction,
    UnhealthyLimit,
    find_unhealthy_condition,
    repair,
)
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.properties import with_examples

NONE, WAIT = RepairAction.NONE, RepairAction.WAIT
BLOCKED, REPAIR = RepairAction.BLOCKED, RepairAction.REPAIR


@dataclass
class Policy:
    condition_type: str = "BadNode"
    condition_status: str = "False"
    toleration: timedelta = timedelta(minutes=30)


def after(**delta: float):
    return EPOCH + timedelta(**delta)


def with_state(view, condition_type="BadNode", status="False", *, since=EPOCH):
    condition = NodeConditionView(type=condition_type, status=status, last_transition_time=since)
    return msgspec.structs.replace(view, conditions=(*view.conditions, condition))


def pair(name, *, pool="default", broken=True, stage="Initialized", deleted=None, **options):
    claim = node_claim(name, pool=pool, stage=stage, deleted=deleted, **options)
    view = node(name, claim=claim)
    return claim, with_state(view) if broken else view


def pool_of(count, *, broken, pool="default"):
    """A pool of so many nodes; the first of them are unhealthy."""
    return [item for i in range(count) for item in pair(f"node-{i}", pool=pool, broken=i < broken)]


BAD_NODE = (Policy(),)


def step_of(*objects, name="node-0", now=None, policies=BAD_NODE, **options):
    snapshot = synced_state(*objects).snapshot()
    return repair(snapshot, snapshot.nodes[name], policies, now=now or after(hours=1), **options)


def test_a_node_that_was_broken_for_long_enough_loses_its_claim():
    """Case 114."""
    assert step_of(*pair("node-0")).action is REPAIR


@pytest.mark.parametrize(
    ("condition_type", "status", "minutes", "expected"),
    [("Other", "False", 60, NONE), ("BadNode", "True", 60, NONE), ("BadNode", "False", 20, WAIT)],
)
def test_another_condition_or_too_short_a_time_leaves_a_node_alone(
    condition_type, status, minutes, expected
):
    """Case 114."""
    claim, view = pair("node-0", broken=False)
    broken = with_state(view, condition_type, status)

    assert step_of(claim, broken, now=after(minutes=minutes)).action is expected


def test_the_claim_is_given_a_deadline_that_has_come():
    """Case 115."""
    step = step_of(*pair("node-0"))

    assert step.claim is not None
    assert step.claim.metadata.annotations[TERMINATION_TIMESTAMP] == "2026-01-01T01:00:00Z"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("2026-01-02T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("2026-01-01T00:30:00Z", "2026-01-01T00:30:00Z"),
        ("soon", "2026-01-01T01:00:00Z"),
    ],
)
def test_later_deadline_is_replaced_and_earlier_one_stays(before, expected):
    """Case 115."""
    step = step_of(*pair("node-0", annotations={TERMINATION_TIMESTAMP: before}))

    assert step.claim is not None
    assert expected == step.claim.metadata.annotations[TERMINATION_TIMESTAMP]


def test_of_several_unhealthy_conditions_the_first_due_counts():
    """Case 116."""
    claim, view = pair("node-0")
    policies = (
        Policy(toleration=timedelta(minutes=60)),
        Policy(condition_type="WorseNode", toleration=timedelta(minutes=30)),
    )

    step = step_of(claim, with_state(view, "WorseNode"), now=after(minutes=27), policies=policies)

    assert step.action is WAIT
    assert step.requeue_after == timedelta(minutes=3)
    assert step.unhealthy_condition is not None
    assert step.unhealthy_condition.condition_type == "WorseNode"


def test_do_not_disrupt_and_a_grace_period_do_not_save_a_broken_node():
    """Case 117."""
    claim = node_claim(
        "node-0",
        stage="Initialized",
        annotations={DO_NOT_DISRUPT: "true"},
        termination_grace_period="1h",
    )
    view = with_state(node("node-0", claim=claim, annotations={DO_NOT_DISRUPT: "true"}))

    assert step_of(claim, view).action is REPAIR


@pytest.mark.parametrize(("broken", "expected"), [(2, REPAIR), (3, BLOCKED)])
def test_a_fifth_of_a_pool_may_be_broken_and_no_more(broken, expected):
    """Case 118."""
    assert step_of(*pool_of(10, broken=broken)).action is expected


def test_too_many_unhealthy_nodes_are_requeued_with_events():
    """Case 118; the Events are about the Node, its claim and its pool, each once."""
    pool = node_pool()
    step = step_of(pool, *pool_of(10, broken=3))

    assert step.requeue_after == BLOCKED_RETRY
    assert [notice.regarding.kind for notice in step.notices] == ["Node", "NodeClaim", "NodePool"]
    assert len({notice.dedupe for notice in step.notices}) == 3
    (message,) = {notice.message for notice in step.notices}
    assert message == "more than 20% nodes are unhealthy in the nodepool"


def test_without_a_pool_the_whole_cluster_counts():
    """Case 118."""
    claim, view = pair("alone", pool="")
    others = pool_of(9, broken=2)

    step = step_of(claim, view, *others, name="alone")

    assert step.action is BLOCKED
    assert [notice.regarding.kind for notice in step.notices] == ["Node", "NodeClaim"]
    assert step_of(claim, view, *pool_of(9, broken=1), name="alone").action is REPAIR


def test_other_pools_do_not_count():
    """Nor do their broken nodes."""
    others = [item for i in range(9) for item in pair(f"web-{i}", pool="web")]

    assert step_of(*pair("node-0"), *others).action is REPAIR


def test_one_of_three_is_repaired():
    """Case 119."""
    assert step_of(*pool_of(3, broken=1)).action is REPAIR


@pytest.mark.parametrize("limit", ["20%", "50%", "3", "99%"])
@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_in_a_pool_without_a_healthy_node_nothing_is_repaired(count, limit):
    """At every size: the cause is not in the nodes, and replacements would break as well."""
    objects = pool_of(count, broken=count)

    results = [
        step_of(*objects, name=f"node-{i}", limit=UnhealthyLimit.parse(limit)) for i in range(count)
    ]

    assert {each.action for each in results} == {BLOCKED}


def test_a_pool_without_a_healthy_node_says_so():
    """The share is not what holds repair back."""
    step = step_of(node_pool(), *pool_of(3, broken=3))

    assert {notice.message for notice in step.notices} == {"no node of the nodepool is healthy"}
    claim, view = pair("alone", pool="")
    alone = step_of(claim, view, *pair("other", pool=""), name="alone")
    assert {notice.message for notice in alone.notices} == {"no node of the cluster is healthy"}


def test_all_nodes_are_repaired_with_a_limit_of_100_percent():
    """A limit of 100 % allows it."""
    assert step_of(*pool_of(3, broken=3), limit=UnhealthyLimit.parse("100%")).action is REPAIR


def test_the_only_node_of_a_pool_is_repaired():
    """It has no neighbours that could say whether the cause is elsewhere."""
    assert step_of(*pool_of(1, broken=1)).action is REPAIR


@pytest.mark.parametrize(("count", "broken"), [(3, 2), (4, 2), (4, 3)])
def test_in_a_small_pool_broken_nodes_are_repaired_one_after_the_other(count, broken):
    """A share of so few nodes is one, which would hold them all for ever."""
    objects = pool_of(count, broken=broken)

    actions = [step_of(*objects, name=f"node-{i}").action for i in range(broken)]

    assert actions == [REPAIR, *[WAIT] * (broken - 1)]


def test_in_a_small_pool_the_next_waits_until_the_one_before_is_gone():
    """And there is nothing deleting."""
    rest = [*pair("node-1"), *pair("node-2"), *pair("well", broken=False)]

    assert step_of(*pair("node-0", deleted=EPOCH), *rest, name="node-1").action is WAIT
    assert step_of(*rest, name="node-1").action is REPAIR


def test_in_a_small_pool_a_claim_that_a_foreign_finalizer_holds_is_not_waited_for():
    """Its instance is gone, and the finalizer may stay for ever."""
    held = node_claim(
        "node-0", stage="Initialized", deleted=EPOCH, finalizers=("example.com/audit",)
    )

    rest = [*pair("node-1"), *pair("node-2"), *pair("well", broken=False)]

    assert step_of(held, *rest, name="node-1").action is REPAIR


def test_in_a_small_pool_the_next_waits_until_the_stand_in_is_initialised():
    """A stand-in that breaks as well would make it a loop."""
    rest = [*pair("node-1"), *pair("node-2"), *pair("well", broken=False)]
    booting = node_claim("node-3", stage="Launched")

    assert step_of(booting, *rest, name="node-1").action is WAIT
    assert step_of(*pair("node-3", broken=False), *rest, name="node-1").action is REPAIR


def test_a_small_pool_with_uninitialized_broken_nodes_is_repaired():
    """They are not stand-ins that one could wait for."""
    objects = [*pair("node-0", stage="Registered"), *pair("node-1", stage="Registered")]
    objects += pair("well", broken=False)

    assert step_of(*objects).action is REPAIR


@pytest.mark.parametrize(
    ("text", "nodes", "expected"),
    [("20%", 3, 1), ("20%", 10, 2), ("0%", 10, 0), ("100%", 7, 7), ("3", 10, 3), ("0", 5, 0)],
)
def test_a_limit_is_a_number_or_a_share_that_is_rounded_up(text, nodes, expected):
    """Shares are those of a PodDisruptionBudget."""
    limit = UnhealthyLimit.parse(text)

    assert limit.allowed_of(nodes) == expected
    assert str(limit) == text


@pytest.mark.parametrize("text", ["", "many", "-1", "101%", "2.5", "20 %"])
def test_any_other_limit_is_refused(text):
    """With the text in the message."""
    with pytest.raises(BadInputError, match="neither a number"):
        UnhealthyLimit.parse(text)


def test_a_number_takes_the_place_of_the_share():
    """And the Events say so."""
    step = step_of(*pool_of(10, broken=3), limit=UnhealthyLimit.parse("2"))

    assert step.action is BLOCKED
    assert step.notices[0].message == "more than 2 nodes are unhealthy in the nodepool"
    assert step_of(*pool_of(10, broken=3), limit=UnhealthyLimit.parse("3")).action is REPAIR


def test_a_limit_of_nothing_repairs_nothing():
    """Not even in a small pool."""
    assert step_of(*pool_of(2, broken=1), limit=UnhealthyLimit.parse("0")).action is BLOCKED


def test_repair_is_counted():
    """Case 120: the claim, its pods that come back elsewhere, and the condition."""
    claim, view = pair("node-0", capacity_type="spot")
    bound = pod("web-0", node_name="node-0", phase="Running")

    step = step_of(claim, view, bound)

    metric_updates = {metric_update.metric: metric_update for metric_update in step.metric_updates}
    assert metric_updates["nodeclaims_disrupted"].labels["reason"] == "unhealthy"
    assert metric_updates["pods_disruption_initiated"].value == 1
    labels = metric_updates["nodeclaims_unhealthy_disrupted"].labels
    assert labels["condition"] == "bad_node"
    assert (labels["nodepool"], labels["capacity_type"]) == ("default", "spot")


@pytest.mark.parametrize("claims", [0, 2])
def test_a_node_without_exactly_one_claim_is_ignored(claims):
    """It cannot be known whose it is."""
    owners = [
        node_claim(f"claim-{i}", stage="Initialized", provider_id="kwok://x") for i in range(claims)
    ]
    view = with_state(node("node-0", provider_id="kwok://x"))

    assert step_of(view, *owners).action is NONE


def test_deleted_claim_is_not_deleted_again():
    """Its termination has its own course."""
    assert step_of(*pair("node-0", deleted=EPOCH)).action is NONE


def test_a_condition_that_does_not_say_since_when_counts_from_the_nodes_creation():
    """Some agents leave the time out."""
    _, view = pair("node-0", broken=False)
    broken = with_state(view, since=None)

    unhealthy_condition = find_unhealthy_condition(broken, [Policy()])

    assert unhealthy_condition is not None
    assert unhealthy_condition.repair_at == EPOCH + timedelta(minutes=30)


@given(
    count=st.integers(1, 12),
    broken=st.integers(0, 12),
    limit=st.sampled_from(["20%", "50%", "1", "3", "0"]),
)
@with_examples(100)
def test_never_are_more_nodes_repaired_at_once_than_may_be_broken(count, broken, limit):
    """In any order of reconciling; in a small pool never two."""
    allowed = UnhealthyLimit.parse(limit)
    gone: list[str] = []
    for name in [f"node-{i}" for i in range(count)]:
        objects = []
        for number in range(count):
            each = f"node-{number}"
            deleted = EPOCH if each in gone else None
            objects += pair(each, broken=number < broken, deleted=deleted)
        if step_of(*objects, name=name, limit=allowed).action is REPAIR:
            gone.append(name)

    serial = 0 < allowed.allowed_of(count) < min(broken, count) and count < SMALL_POOL
    hopeless = 1 < count <= broken
    assert len(gone) <= (0 if hopeless else 1 if serial else allowed.allowed_of(count))
    if not hopeless and (0 < min(broken, count) <= allowed.allowed_of(count) or serial):
        assert gone
