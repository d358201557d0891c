"""The state puts NodePools in force as their windows have them, and tells who has to know."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.state.builder import StateBuilder, StateChange
from karpenter_core.state.events import (
    ClockSet,
    ObjectObserved,
    ObjectRemoved,
    RegistrationSettled,
    TimePassed,
)
from karpenter_core.state.launch_limits import LaunchLimit, refused_pools
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.pool_schedules import launch_hold
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import ready_node_pool, synced_state
from tests.controllers.clocks import TwoClocks
from tests.support.pool_windows import hours, with_windows

EIGHT = EPOCH + timedelta(hours=8)
SHUT = (StateChange(ObjectKind.NODE_POOL, ("web",)),)


def web(*windows, **options):
    return with_windows(ready_node_pool(node_pool("web", **options)), *windows)


def cpu_of(state):
    return str(state.snapshot().node_pools["web"].spec.limits.get("cpu"))


def test_window_opens_and_closes_when_time_passes_its_edges():
    """Each edge is told once, as a change of the NodePool."""
    state = synced_state(web(hours(limits={"cpu": "40"}), limits={"cpu": "10"}))
    assert cpu_of(state) == "10"
    assert state.next_schedule_edge == EIGHT

    assert state.apply_event(TimePassed(EIGHT - timedelta(seconds=1))) == ()
    assert state.apply_event(TimePassed(EIGHT)) == SHUT
    assert cpu_of(state) == "40"
    assert state.apply_event(TimePassed(EIGHT + timedelta(minutes=59))) == ()
    assert state.apply_event(TimePassed(EIGHT + timedelta(hours=1))) == SHUT
    assert cpu_of(state) == "10"
    assert state.next_schedule_edge == EIGHT + timedelta(days=1)


def test_snapshot_of_the_cluster_state_has_the_windows_of_its_time():
    """Nothing else has to happen at the edge."""
    clock = TwoClocks()
    state = synced_state(web(hours(limits={"cpu": "40"}), limits={"cpu": "10"}), now=clock.now())
    cluster_state = ClusterState(state, clock)
    assert cpu_of(cluster_state) == "10"
    clock.passes((EIGHT - clock.now()).total_seconds())
    assert cpu_of(cluster_state) == "40"


def test_snapshot_before_an_edge_keeps_its_nodepool():
    """Snapshots never change."""
    state = synced_state(web(hours(limits={"cpu": "40"})))
    before = state.snapshot()

    state.apply_event(TimePassed(EIGHT))

    assert "cpu" not in before.node_pools["web"].spec.limits
    assert before.pool_schedules["web"].open == ()
    assert state.snapshot().version > before.version


def test_pool_that_is_seen_within_a_window_is_changed_at_once():
    """Such as after a restart, or when the annotation is new."""
    state = synced_state(web(hours(limits={"cpu": "40"})), now=EIGHT)

    assert cpu_of(state) == "40"
    (opened,) = state.snapshot().pool_schedules["web"].open
    assert f"{opened}" == 'window "hours" of karpenter.sh/schedules until 2026-01-01T09:00:00Z'


def test_late_process_passes_over_several_edges_at_once():
    """Only the present counts."""
    state = synced_state(web(hours(limits={"cpu": "40"})))

    state.apply_event(TimePassed(EIGHT + timedelta(days=3, hours=2)))

    assert cpu_of(state) == "None"
    assert state.next_schedule_edge == EIGHT + timedelta(days=4)


def test_clock_that_is_set_opens_and_closes_windows():
    """Forwards into the window and back out of it."""
    state = synced_state(web(hours(limits={"cpu": "40"})))

    assert set(SHUT) <= set(state.apply_event(ClockSet(timedelta(hours=8, minutes=30))))
    assert cpu_of(state) == "40"
    assert set(SHUT) <= set(state.apply_event(ClockSet(-timedelta(hours=3))))
    assert cpu_of(state) == "None"


def test_edges_of_a_removed_pool_or_annotation_are_forgotten():
    """Nothing is left to evaluate."""
    state = synced_state(web(hours(shutdown=True)))
    state.apply_event(ObjectRemoved(state.snapshot().node_pools["web"]))
    assert state.next_schedule_edge is None
    assert state.snapshot().pool_schedules == {}

    state = synced_state(web(hours(shutdown=True)), now=EIGHT)
    plain = ready_node_pool(node_pool("web"))
    newer = plain.metadata.model_copy(update={"resource_version": "2"})
    state.apply_event(ObjectObserved(plain.model_copy(update={"metadata": newer})))
    assert state.next_schedule_edge is None
    assert "nodes" not in state.snapshot().node_pools["web"].spec.limits


def test_pool_that_is_shut_down_launches_nothing_and_the_reason_names_the_window():
    """In plans as a refusal; its limit of nodes is 0 in what-ifs and at creation too."""
    snapshot = synced_state(web(hours("night", shutdown=True)), now=EIGHT).snapshot()

    refusal = refused_pools(snapshot, now=EIGHT, launch_limits=None)["web"]

    assert refusal.limit is LaunchLimit.SCHEDULE
    assert refusal.message == (
        'nodepool "web" is shut down by window "night" of karpenter.sh/schedules until '
        "2026-01-01T09:00:00Z"
    )
    assert str(snapshot.node_pools["web"].spec.limits["nodes"]) == "0"


@pytest.mark.parametrize("at", [EPOCH, EIGHT])
def test_pool_with_unreadable_schedules_keeps_its_spec_and_launches_nothing(at):
    """It is neither without limits nor shut down."""
    state = synced_state(web("[", replicas=3), now=at)

    schedule = state.snapshot().pool_schedules["web"]

    assert state.snapshot().node_pools["web"].spec.replicas == 3
    assert schedule.shutdown is None
    assert "annotation karpenter.sh/schedules: " in launch_hold("web", schedule)
    assert state.next_schedule_edge is None


def test_a_pool_that_is_shut_down_and_paused_names_its_window():
    """The pause would end by itself, and change nothing."""
    pool = web(hours(shutdown=True))
    state = synced_state(pool, now=EIGHT)
    for _ in range(2):
        state.apply_event(RegistrationSettled(pool_uid=pool.uid, succeeded=False))
    (refusal,) = refused_pools(state.snapshot(), now=EIGHT, launch_limits=None).values()
    assert refusal.limit is LaunchLimit.SCHEDULE


def test_a_pool_launches_nothing_before_the_state_has_a_time():
    """Its windows may all be closed or open."""
    state = StateBuilder({})
    state.apply_event(ObjectObserved(web(hours(shutdown=True))))

    assert "the time is not known yet" in launch_hold("web", state.snapshot().pool_schedules["web"])

    state.apply_event(TimePassed(EPOCH))
    assert launch_hold("web", state.snapshot().pool_schedules["web"]) == ""
