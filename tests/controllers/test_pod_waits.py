"""Series of pod waits are computed from the state alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
from prometheus_client import generate_latest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.declarations import NAMESPACE
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.pod_waits import PodWaitMetrics
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, PodsDecided
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import synced_state
from tests.controllers.clocks import TwoClocks

NOW = EPOCH + timedelta(seconds=60)
PREFIX = f"{NAMESPACE}_pods_"
UNBOUND, UNSTARTED = "unbound_time_seconds", "unstarted_time_seconds"
UNDECIDED = "provisioning_scheduling_undecided_time_seconds"


def at(seconds):
    return EPOCH + timedelta(seconds=seconds)


class Waits:
    """Pod waits over a state that tests change."""

    def __init__(self, *, started_at=EPOCH):
        self.metrics = Metrics()
        self.builder = synced_state()
        self.cluster_state = ClusterState(self.builder, TwoClocks())
        self.pod_waits = PodWaitMetrics(self.cluster_state, self.metrics, started_at=started_at)

    def see(self, *pods):
        for each in pods:
            self.cluster_state.fold(ObjectObserved(each))

    def decide(self, each, *, placed, seconds):
        names = {"placed": {each.uid: "claim"}} if placed else {"failed": frozenset({each.uid})}
        self.cluster_state.fold(PodsDecided(at=at(seconds), **names))

    def shown(self, now=NOW):
        """Return what a scrape shows of pods: gauges by pod, sums and counts of histograms."""
        asyncio.run(self.pod_waits.update(self.builder.snapshot(), now))
        result = {}
        for line in generate_latest(self.metrics.registry).decode().splitlines():
            name, _, value = line.rpartition(" ")
            if not name.startswith(PREFIX) or "_bucket" in name or "_created" in name:
                continue
            series, _, labels = name.removeprefix(PREFIX).partition("{")
            if labels:
                result.setdefault(series, {})[labels.split('"')[1]] = float(value)
            elif float(value):
                result[series] = float(value)
        return result


def waiting(name="web", **changes):
    return msgspec.structs.replace(pod(name), created=EPOCH, **changes)


def test_an_undecided_pod_is_counted_in_three_wait_series():
    waits = Waits()
    waits.see(waiting())
    waits.builder.apply_event(ObjectObserved(waiting("seen")))
    shown = waits.shown()
    assert shown[UNBOUND] == shown[UNSTARTED] == {"web": 60.0}
    assert shown[UNDECIDED] == {"web": 60.0, "seen": 60.0}
    assert f"provisioning_{UNBOUND}" not in shown
    assert f"provisioning_{UNSTARTED}" not in shown


def test_a_pod_with_a_place_also_waits_since_it_has_one():
    waits = Waits()
    web = waiting()
    waits.see(web, waiting("other"))
    waits.decide(web, placed=True, seconds=20)
    shown = waits.shown()
    assert shown[UNBOUND] == {"web": 60.0, "other": 60.0}
    assert shown[f"provisioning_{UNBOUND}"] == {"web": 40.0}
    assert shown[f"provisioning_{UNSTARTED}"] == {"web": 40.0}
    assert shown[UNDECIDED] == {"other": 60.0}


def test_a_pod_without_a_place_is_decided_about_and_has_nothing_to_wait_for():
    waits = Waits()
    web = waiting()
    waits.see(web)
    waits.decide(web, placed=False, seconds=20)
    shown = waits.shown()
    assert shown[UNBOUND] == {"web": 60.0}
    assert f"provisioning_{UNBOUND}" not in shown
    assert UNDECIDED not in shown


def test_a_bound_pod_waits_to_start_only():
    waits = Waits()
    web = waiting()
    waits.see(web)
    waits.decide(web, placed=True, seconds=20)
    waits.see(waiting(node_name="node", scheduled_time=at(30)))
    shown = waits.shown()
    assert UNBOUND not in shown
    assert shown[UNSTARTED] == {"web": 60.0}
    assert (shown["bound_duration_seconds_count"], shown["bound_duration_seconds_sum"]) == (1, 30)
    assert shown["provisioning_bound_duration_seconds_sum"] == 10
    assert "startup_duration_seconds_count" not in shown


def test_a_ready_pod_is_measured_once_and_waits_for_nothing():
    waits = Waits()
    web = waiting()
    waits.see(web)
    waits.decide(web, placed=True, seconds=20)
    ready = waiting(node_name="node", scheduled_time=at(30), ready_time=at(50), ready=True)
    waits.see(ready)
    for _ in range(2):
        shown = waits.shown()
        waits.see(msgspec.structs.replace(ready, resource_version=7))
    assert UNSTARTED not in shown
    assert shown["startup_duration_seconds_count"] == 1
    assert shown["startup_duration_seconds_sum"] == 50
    assert shown["provisioning_startup_duration_seconds_sum"] == 30


def test_a_nomination_after_the_bind_counts_as_no_wait():
    waits = Waits()
    web = waiting()
    waits.see(web)
    waits.decide(web, placed=True, seconds=40)
    waits.see(waiting(node_name="n", scheduled_time=at(30), ready_time=at(35), ready=True))
    shown = waits.shown()
    for end in ("bound", "startup"):
        assert shown[f"provisioning_{end}_duration_seconds_count"] == 1
        assert f"provisioning_{end}_duration_seconds_sum" not in shown


def test_waits_that_ended_before_the_start_are_not_measured():
    """Kubernetes has whole seconds: an end within the second of the beginning counts."""
    for started_at, counted in ((at(30.9), True), (at(31), False)):
        waits = Waits(started_at=started_at)
        waits.see(waiting(node_name="n", scheduled_time=at(30), ready_time=at(30), ready=True))
        shown = waits.shown()
        assert ("bound_duration_seconds_count" in shown) is counted
        assert ("startup_duration_seconds_count" in shown) is counted


def test_an_ended_pod_has_no_series_and_one_of_its_uid_restarts():
    waits = Waits()
    waits.see(waiting(), waiting("done"))
    waits.shown()
    waits.see(waiting("done", phase="Succeeded"))
    waits.cluster_state.fold(ObjectRemoved(waiting()))
    shown = waits.shown()
    assert UNBOUND not in shown
    assert UNSTARTED not in shown


def test_a_pod_that_runs_and_is_not_ready_waits_no_more_and_its_start_is_measured_once_ready():
    """Its containers have started: a readiness probe that fails is no wait for a node."""
    waits = Waits()
    running = waiting(node_name="node", scheduled_time=at(10), phase="Running", ready=False)
    waits.see(running)
    assert UNSTARTED not in waits.shown()
    waits.see(msgspec.structs.replace(running, ready=True, ready_time=at(40), resource_version=7))
    assert waits.shown()["startup_duration_seconds_sum"] == 40
