"""Drains keep order, completeness and deadlines (cases 83, 88-91, 105)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.lifecycle.node.drain import drain_wave, latest_start, needs_force
from karpenter_core.lifecycle.node.eviction import EvictionAction, earlier_deadline, eviction_advice
from karpenter_core.state.ledger_view import LedgerView
from karpenter_core.state.pod_rules import undrained_pods
from karpenter_core.testing.builders import EPOCH, pod, toleration
from tests.properties import with_examples

MINUTES = st.integers(min_value=-30, max_value=600).map(lambda n: EPOCH + timedelta(minutes=n))
DEADLINES = st.none() | MINUTES
CRITICAL = "system-node-critical"


@st.composite
def pods(draw, name="pod"):
    """A pod of any sort, in any phase of its life."""
    built = pod(
        name,
        node_name="web",
        phase=draw(st.sampled_from(["Running", "Pending", "Failed", "Succeeded"])),
        owner_kind=draw(st.sampled_from(["ReplicaSet", "DaemonSet", "StatefulSet", "Node", ""])),
    )
    tolerates = draw(st.booleans()) and draw(st.booleans())
    shape = msgspec.structs.replace(
        built.shape,
        termination_grace_period_seconds=draw(st.none() | st.integers(0, 7200)),
        priority_class_name=draw(
            st.sampled_from(["", "high", CRITICAL, "system-cluster-critical"])
        ),
        annotations=draw(st.sampled_from([{}, {DO_NOT_DISRUPT: "true"}, {DO_NOT_DISRUPT: "1h"}])),
        tolerations=(toleration(""),) if tolerates else (),
    )
    deleted = draw(st.none() | MINUTES)
    return msgspec.structs.replace(built, shape=shape, deletion_timestamp=deleted, start_time=EPOCH)


@st.composite
def nodes(draw):
    """The pods of one node."""
    count = draw(st.integers(0, 8))
    return [draw(pods(f"pod-{number}")) for number in range(count)]


def group(item):
    is_critical = item.shape.priority_class_name in {CRITICAL, "system-cluster-critical"}
    return (is_critical, item.is_daemon)


@given(nodes(), DEADLINES, MINUTES)
@with_examples(100)
def test_a_wave_names_each_waiting_pod_once_and_is_never_empty(items, deadline, now):
    waiting = undrained_pods(items, now, LedgerView())
    wave = [result.pod for result in drain_wave(waiting, deadline=deadline, now=now)]
    assert len(wave) == len({item.name for item in wave})
    assert {item.name for item in wave} <= {item.name for item in waiting}
    assert bool(wave) == bool(waiting)


@given(nodes(), DEADLINES, MINUTES)
@with_examples(100)
def test_pods_before_their_deadline_leave_in_group_order(items, deadline, now):
    waiting = undrained_pods(items, now, LedgerView())
    wave = {result.pod.name for result in drain_wave(waiting, deadline=deadline, now=now)}
    patient = [item for item in waiting if not needs_force(item, deadline, now)]
    turn = {group(item) for item in patient if item.name in wave}
    assert len(turn) <= 1
    assert all(group(item) >= max(turn) for item in patient if turn)
    assert all(item.name in wave for item in waiting if needs_force(item, deadline, now))


@given(nodes(), DEADLINES, MINUTES)
@with_examples(100)
def test_waves_empty_the_node_in_as_many_steps_as_there_are_groups(items, deadline, now):
    left = undrained_pods(items, now, LedgerView())
    steps = 0
    while left:
        wave = {result.pod.name for result in drain_wave(left, deadline=deadline, now=now)}
        left = tuple(item for item in left if item.name not in wave)
        steps += 1
    assert steps <= 4


@given(pods(), DEADLINES, MINUTES, st.timedeltas(timedelta(), timedelta(hours=9)))
@with_examples(100)
def test_a_pod_that_needs_force_keeps_needing_it(item, deadline, now, later):
    """And a tighter deadline presses no less than a looser one."""
    if needs_force(item, deadline, now):
        assert needs_force(item, deadline, now + later)
        assert needs_force(item, deadline - later, now)


@given(pods(), DEADLINES)
@with_examples(100)
def test_a_pod_evicted_at_its_deadline_has_its_full_grace_period(item, deadline):
    latest = latest_start(item, deadline)
    if latest is None or item.deletion_timestamp is not None:
        return
    just_after = latest + timedelta(milliseconds=1)
    advice = eviction_advice(item, uid=item.uid, deadline=deadline, now=just_after)
    assert advice.action is EvictionAction.DELETE
    own = item.shape.termination_grace_period_seconds
    assert max(own - 1, 1) <= advice.grace_seconds <= max(own, 1)


@given(pods(), DEADLINES, MINUTES)
@with_examples(300)
def test_only_a_termination_deadline_overrides_the_protection_of_a_pod(item, deadline, now):
    advice = eviction_advice(item, uid=item.uid, deadline=deadline, now=now)
    if advice.action is EvictionAction.DELETE:
        assert needs_force(item, deadline, now)
        assert advice.grace_seconds >= 1
    if advice.action is EvictionAction.EVICT:
        assert item.is_active
        assert not item.is_mirror
        assert item.shape.annotations.get(DO_NOT_DISRUPT) != "true"


@given(st.lists(DEADLINES, min_size=1, max_size=6), st.randoms(use_true_random=False))
@with_examples(100)
def test_the_deadline_of_a_pod_does_not_depend_on_the_order_in_which_they_came(found, shuffled):
    def tightest(deadlines):
        kept = None
        for deadline in deadlines:
            kept = earlier_deadline(kept, deadline)
        return kept

    other = list(found)
    shuffled.shuffle(other)
    assert tightest(found) == tightest(other)
