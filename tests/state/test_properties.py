"""Invariants of the state for any events in any order."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, ObjectWritten
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import MANAGED_KINDS, node_and_claim, synced_state
from tests.properties import with_examples

NODES = ("a", "b", "c")

versions = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(("", *NODES)),
        st.sampled_from(("Pending", "Running", "Succeeded")),
    ),
    min_size=1,
    max_size=12,
)


def history(steps):
    """Make a history of pods: every step is the next version of one of six pods."""
    return [
        msgspec.structs.replace(
            pod(f"p{number}", cpu=f"{100 * (number + 1)}m", node_name=name, phase=phase),
            resource_version=version,
        )
        for version, (number, name, phase) in enumerate(steps, start=1)
    ]


def picture(builder: StateBuilder):
    snapshot = builder.snapshot()
    return (
        {m.name: (dict(m.requests), sorted(p.uid for p in m.pods)) for m in snapshot.state_nodes},
        sorted(snapshot.pending_pods),
        {uid: p.resource_version for uid, p in snapshot.pods.items()},
    )


def nodes_and_claims():
    return [half for name in NODES for half in node_and_claim(name)]


@given(versions, st.randoms(use_true_random=False))
@with_examples(150)
def test_order_and_repetition_of_events_do_not_matter(steps, shuffler):
    """Late, early, repeated: the newest version of each object decides."""
    pods = history(steps)
    in_order = synced_state(*nodes_and_claims())
    for item in pods:
        in_order.apply_event(ObjectObserved(item))
    mixed = [*pods, *pods]
    shuffler.shuffle(mixed)
    shuffled = synced_state(*nodes_and_claims())
    for number, item in enumerate(mixed):
        shuffled.apply_event(ObjectWritten(item) if number % 3 == 0 else ObjectObserved(item))
    assert picture(shuffled) == picture(in_order)


@given(versions)
@with_examples(100)
def test_pods_added_and_removed_leave_nothing(steps):
    """Case 147: usage returns to zero."""
    builder = synced_state(*nodes_and_claims())
    empty = picture(builder)
    pods = history(steps)
    for item in pods:
        builder.apply_event(ObjectObserved(item))
    for item in pods:
        builder.apply_event(ObjectRemoved(item))
    assert picture(builder) == empty
    assert dict(builder.snapshot().pods_by_node) == {}
    assert dict(builder.snapshot().ledger.first_seen) == {}


@given(versions)
@with_examples(100)
def test_incremental_and_fresh_states_agree(steps):
    """Taking a snapshot after every event gives what taking one at the end does."""
    pods = history(steps)
    stepwise, at_once = synced_state(*nodes_and_claims()), synced_state(*nodes_and_claims())
    for item in pods:
        stepwise.apply_event(ObjectObserved(item))
        stepwise.snapshot()
        at_once.apply_event(ObjectObserved(item))
    assert picture(stepwise) == picture(at_once)


@given(versions)
@with_examples(100)
def test_snapshots_never_change(steps):
    """The input of a decision can be read afterwards."""
    builder = synced_state(*nodes_and_claims())
    kept = []
    for item in history(steps):
        builder.apply_event(ObjectObserved(item))
        snapshot = builder.snapshot()
        kept.append((snapshot, repr(picture(builder))))
    for snapshot, before in kept:
        now = (
            {
                m.name: (dict(m.requests), sorted(p.uid for p in m.pods))
                for m in snapshot.state_nodes
            },
            sorted(snapshot.pending_pods),
            {uid: p.resource_version for uid, p in snapshot.pods.items()},
        )
        assert repr(now) == before


def test_the_cost_of_an_event_does_not_grow_with_the_cluster():
    """Only what an event touches is rebuilt: one node of two hundred."""
    builder = StateBuilder(MANAGED_KINDS)
    for number in range(200):
        for half in node_and_claim(f"n{number}"):
            builder.apply_event(ObjectObserved(half))
    old = builder.snapshot().state_nodes
    builder.apply_event(ObjectObserved(pod("p", node_name="n7")))
    new = builder.snapshot().state_nodes
    assert sum(a is not b for a, b in zip(old, new, strict=True)) == 1
