"""What holds of the state whatever happens, in whatever order."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import Observed, Removed, Wrote
from karpenter_core.testing.builders import pod
from karpenter_core.testing.machines import MANAGED_KINDS, machine, state
from tests.properties import tried

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


def machines():
    return [half for name in NODES for half in machine(name)]


@given(versions, st.randoms(use_true_random=False))
@tried(150)
def test_order_and_repetition_of_events_do_not_matter(steps, shuffler):
    """Late, early, repeated: the newest version of each object decides."""
    pods = history(steps)
    in_order = state(*machines())
    for item in pods:
        in_order.fold(Observed(item))
    mixed = [*pods, *pods]
    shuffler.shuffle(mixed)
    shuffled = state(*machines())
    for number, item in enumerate(mixed):
        shuffled.fold(Wrote(item) if number % 3 == 0 else Observed(item))
    assert picture(shuffled) == picture(in_order)


@given(versions)
@tried(100)
def test_pods_added_and_removed_leave_nothing(steps):
    """Case 147: usage returns to zero."""
    builder = state(*machines())
    empty = picture(builder)
    pods = history(steps)
    for item in pods:
        builder.fold(Observed(item))
    for item in pods:
        builder.fold(Removed(item))
    assert picture(builder) == empty
    assert dict(builder.snapshot().pods_by_node) == {}
    assert dict(builder.snapshot().ledger.first_seen) == {}


@given(versions)
@tried(100)
def test_incremental_and_fresh_states_agree(steps):
    """Taking a snapshot after every event gives what taking one at the end does."""
    pods = history(steps)
    stepwise, at_once = state(*machines()), state(*machines())
    for item in pods:
        stepwise.fold(Observed(item))
        stepwise.snapshot()
        at_once.fold(Observed(item))
    assert picture(stepwise) == picture(at_once)


@given(versions)
@tried(100)
def test_snapshots_never_change(steps):
    """What a decision was made on can be looked at afterwards."""
    builder = state(*machines())
    kept = []
    for item in history(steps):
        builder.fold(Observed(item))
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
    """Only what an event touches is rebuilt: one machine of two hundred."""
    builder = StateBuilder(MANAGED_KINDS)
    for number in range(200):
        for half in machine(f"n{number}"):
            builder.fold(Observed(half))
    old = builder.snapshot().state_nodes
    builder.fold(Observed(pod("p", node_name="n7")))
    new = builder.snapshot().state_nodes
    assert sum(a is not b for a, b in zip(old, new, strict=True)) == 1
