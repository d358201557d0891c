"""A pass records Events, state events and metrics for every pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from prometheus_client import generate_latest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.controllers.provisioning.pass_recorder import (
    PassRecorder,
    nominated_notice,
    with_closed_pools,
    with_held_pools,
)
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.problem import (
    PoolConstraint,
    PoolRejection,
    SchedulingPlan,
    UnschedulablePod,
)
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.events import PodsDecided
from karpenter_core.state.ignored_pods import IgnoredPod
from karpenter_core.state.launch_limits import LaunchLimit, LaunchRefusal
from karpenter_core.testing.builders import node_pool, pod, problem
from karpenter_core.testing.state_builders import synced_state

UNSCHEDULABLE = 'karpenter_scheduler_unschedulable_pods_count{controller="provisioner"}'


class RecorderFixture:
    """A recorder, with what it says and counts."""

    def __init__(self, *objects):
        metrics, clock = Metrics(), SystemClock()
        self.cluster_state = ClusterState(synced_state(*objects), clock)
        self.said = []
        writer = ObjectWriter(
            kube_writer=None,
            cluster_state=self.cluster_state,
            publish=self.said.append,
            metrics=metrics,
            owns_nodes=True,
        )
        runtime = ControllerRuntime(clock=clock, new_id=map(str, count()).__next__, metrics=metrics)
        self.recorder = PassRecorder(
            writer=writer, runtime=runtime, nomination_window=timedelta(seconds=20)
        )
        self._registry = metrics.registry

    def value(self, series):
        rows = generate_latest(self._registry).decode().splitlines()
        return next(float(row.rpartition(" ")[2]) for row in rows if row.startswith(f"{series} "))

    def record(self, **unschedulable):
        plan = SchedulingPlan(
            unschedulable={f"uid-default-{name}": why for name, why in unschedulable.items()}
        )
        self.recorder.record_plan(plan, (), self.cluster_state.snapshot(), quiet=False)


def refused(constraint):
    rejection = PoolRejection(constraint=constraint, detail="x")
    return UnschedulablePod(message="no place", pools={"default": rejection})


def test_a_pod_that_waits_for_a_reservation_has_not_failed():
    """Section 10.4: silent, not in the number of unschedulable pods, but decided about."""
    fixture = RecorderFixture(pod("a"), pod("b"))
    fixture.record(a=refused(PoolConstraint.RESERVATION), b=refused(PoolConstraint.RESOURCE))
    assert [notice.regarding.name for notice in fixture.said] == ["b"]
    assert fixture.value(UNSCHEDULABLE) == 1
    assert set(fixture.cluster_state.snapshot().ledger.decisions) == {
        "uid-default-a",
        "uid-default-b",
    }


def test_a_pod_that_opted_out_gets_no_event_and_others_get_the_reason():
    """Neither an Event nor the metric; but its first decision has been made."""
    quiet, loud = pod("quiet"), pod("loud")
    fixture = RecorderFixture(quiet, loud)
    ignored = [
        IgnoredPod(pod=quiet, reason="the pod asks for a node of no NodePool", silent=True),
        IgnoredPod(pod=loud, reason="a volume claim is missing"),
    ]
    fixture.recorder.report_ignored(ignored, fixture.cluster_state.snapshot())

    assert [(notice.regarding.name, notice.reason) for notice in fixture.said] == [
        ("loud", "FailedScheduling")
    ]
    assert "a volume claim is missing" in fixture.said[0].message
    assert fixture.value("karpenter_scheduler_ignored_pods_count") == 1


def test_a_pod_that_is_ignored_from_now_on_has_no_place_any_more():
    """Unless its group is paused: the place shows that its nomination is over."""
    changed, paused = pod("changed"), pod("paused")
    fixture = RecorderFixture(changed, paused)
    now = datetime(2026, 5, 4, 12, tzinfo=UTC)
    places = {each.uid: "node-a" for each in (changed, paused)}
    fixture.cluster_state.fold(PodsDecided(placed=places, at=now))
    ignored = [
        IgnoredPod(pod=changed, reason="a volume claim is missing"),
        IgnoredPod(pod=paused, reason="its group is paused", paused=True),
    ]
    fixture.recorder.report_ignored(ignored, fixture.cluster_state.snapshot())

    assert set(fixture.cluster_state.snapshot().ledger.placements) == {paused.uid}


def test_empty_pass_resets_the_metrics():
    fixture = RecorderFixture(pod("a"))
    fixture.record(a=refused(PoolConstraint.RESOURCE))
    assert fixture.value(UNSCHEDULABLE) == 1
    fixture.recorder.clear_unplaced()
    assert fixture.value(UNSCHEDULABLE) == 0


def test_pods_of_a_refused_claim_get_the_reason():
    """They are without a place like the others."""
    pending_pod = pod("a", cpu="3")
    fixture = RecorderFixture(pending_pod)
    plan = solve(problem([pending_pod]))

    fixture.recorder.record_plan(
        plan,
        (None,),
        fixture.cluster_state.snapshot(),
        quiet=False,
        refused={0: "it waits for its turn"},
    )

    (notice,) = fixture.said
    assert (notice.reason, notice.regarding.name) == ("FailedScheduling", "a")
    assert notice.message == "Failed to schedule pod, it waits for its turn"
    assert fixture.value(UNSCHEDULABLE) == 1


def test_pools_that_are_held_back_are_among_the_reasons():
    """Alone when no other pool could be asked."""
    held = {
        "web": LaunchRefusal(
            limit=LaunchLimit.REGISTRATION_FAILURES, message="2 nodes did not register"
        )
    }
    nowhere = UnschedulablePod(message="no dynamic nodepools found")
    plan = SchedulingPlan(unschedulable={"a": refused(PoolConstraint.TAINT), "b": nowhere})

    said = with_held_pools(plan, held).unschedulable

    assert said["a"].message == "no place; limit: 2 nodes did not register"
    assert set(said["a"].pools) == {"default", "web"}
    assert said["b"].message == "limit: 2 nodes did not register"
    assert with_held_pools(plan, {}) is plan


def test_pools_that_are_closed_to_a_pod_are_among_its_reasons():
    plan = SchedulingPlan(unschedulable={"a": refused(PoolConstraint.TAINT), "b": refused("x")})

    said = with_closed_pools(plan, {"a": {"web": "its nodes failed the pod"}}).unschedulable

    assert said["a"].message == "limit: its nodes failed the pod; no place"
    assert {name: rejection.detail for name, rejection in said["a"].pools.items()} == {
        "default": "x",
        "web": "its nodes failed the pod",
    }
    assert said["b"] is plan.unschedulable["b"]
    assert with_closed_pools(plan, {"c": {"web": "x"}}) is plan


def test_pools_without_compatible_types_get_an_event():
    """Once a minute for each, with the cause."""
    fixture = RecorderFixture(node_pool("zones"), node_pool("choosy"))
    plan = SchedulingPlan(
        unusable_pools={
            "zones": PoolConstraint.REQUIREMENT,
            "choosy": PoolConstraint.MIN_VALUES,
            "gone": PoolConstraint.REQUIREMENT,
        }
    )
    fixture.recorder.record_plan(plan, (), fixture.cluster_state.snapshot(), quiet=False)

    filtered = "NodePool requirements filtered out all compatible available instance types"
    assert [(item.regarding.kind, item.regarding.name, item.message) for item in fixture.said] == [
        ("NodePool", "zones", filtered),
        ("NodePool", "choosy", f"{filtered} due to minValues incompatibility"),
    ]
    assert {(item.type, item.reason, item.window) for item in fixture.said} == {
        ("Warning", "NoCompatibleInstanceTypes", timedelta(minutes=1))
    }
    assert [item.dedupe for item in fixture.said] == [
        (item.regarding.uid,) for item in fixture.said
    ]


@pytest.mark.parametrize(
    ("planned", "targets"),
    [
        ({"claim": "general-a", "node": ""}, "nodeclaim/general-a"),
        ({"claim": "", "node": "node-a"}, "node/node-a"),
        ({"claim": "general-a", "node": "node-a"}, "nodeclaim/general-a, node/node-a"),
    ],
)
def test_the_event_of_a_nomination_names_what_is_planned(planned, targets):
    assert nominated_notice(pod("web"), **planned).message == f"Pod should schedule on: {targets}"
