"""Nodes come and go although controller and API server clocks differ."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, LEASES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.kubelets import KubeletTimes
from karpenter_core.sim.registry import parse_time
from tests.controllers.cluster_runs import watch_invariants
from tests.controllers.injected_faults import ControllerClock, InjectedFaults, faulty_cloud
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.invariants import Invariants
from tests.support.run_selection import others_as_cluster_runs

HOURS = others_as_cluster_runs([5, -5])


@pytest.mark.parametrize("hours", HOURS)
def test_nodes_register_and_end_despite_clock_changes(tmp_path, hours):
    """The API server dates the creation of a claim, the controller counts the time limits."""

    async def scenario(scene):
        (tmp_path / "faults.json").write_text("[]")
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene)
        made = set()
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda change: made.add(change.stored.uid)
        )
        with faulty_cloud(
            InjectedFaults(scene, tmp_path, random.Random(1), clock=clock, watch=watch)
        ):
            mortal = node_pool(template={"expireAfter": "1h"})
            scene.cluster.apply([NODE_CLASS, mortal, deployment("web", 1)])
            scene.start("--kwok-registration-delay=90s", faults=watch.note_write, clock=clock)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=300)
            assert len(made) == 1
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.claims(), seconds=600)
        assert watch.breaches == []

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"])


@pytest.mark.parametrize("hours", HOURS)
def test_an_unregistered_claim_is_deleted_in_time_despite_clock_changes(tmp_path, hours):
    """After a launch by a clock that was ahead, the limit runs from that time."""

    async def scenario(scene):
        (tmp_path / "faults.json").write_text('[{"fault": "failed-node", "count": 1}]')
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene)
        with faulty_cloud(
            InjectedFaults(scene, tmp_path, random.Random(1), clock=clock, watch=watch)
        ):
            scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
            scene.start(clock=clock)
            await scene.settle(
                lambda: any("providerID" in c.get("status", {}) for c in scene.claims())
            )
            (failed,) = scene.claims()
            await scene.cluster.clock.sleep(60)
            assert [c["metadata"]["uid"] for c in scene.claims()] == [failed["metadata"]["uid"]]
            if hours > 0:
                clock.lead = timedelta()
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=1800)

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"])


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_evicted_pod_has_its_grace_period_despite_clock_changes(tmp_path, is_killed):
    """The API server dates its end; by a clock that is ahead its deletion would have hung."""
    ended = []

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        with watch_invariants(scene) as watch:
            patient = deployment("web", 2, terminationGracePeriodSeconds=120)
            scene.cluster.apply([NODE_CLASS, node_pool(), patient])
            running = scene.start(faults=watch.note_write, clock=clock)
            await scene.settle(lambda: len(scene.pods("Running")) == 2)
            clock.lead = timedelta(minutes=20)
            first = {node["metadata"]["name"] for node in scene.nodes()}
            for name in first:
                scene.cluster.delete(NODE_CLAIMS, name)
            deleted = clock.monotonic()
            if is_killed:
                await scene.cluster.clock.sleep(30)
                await running.kill()
                scene.start(faults=watch.note_write, clock=clock)
            await scene.settle(lambda: not first & {n["metadata"]["name"] for n in scene.nodes()})
            ended.append(clock.monotonic() - deleted)
        assert watch.breaches == []

    run_controller(tmp_path, scenario, times=KubeletTimes(pod_stop_seconds=60))
    assert 60 < ended[0] < 400


@pytest.mark.parametrize("minutes", others_as_cluster_runs([5, -5]))
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_protected_pod_stays_until_the_deadline_by_the_clock_of_the_api_server(
    tmp_path, minutes, is_killed
):
    """The API server dates the deletion of the claim, from which `terminationGracePeriod` runs."""
    stayed = []

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        with watch_invariants(scene) as watch:
            protected = deployment("web", 1, terminationGracePeriodSeconds=60)
            annotations = {"karpenter.sh/do-not-disrupt": "true"}
            protected["spec"]["template"]["metadata"]["annotations"] = annotations
            pool = node_pool(template={"terminationGracePeriod": "20m"})
            scene.cluster.apply([NODE_CLASS, pool, protected])
            running = scene.start(faults=watch.note_write, clock=clock)
            await scene.settle(lambda: len(scene.pods("Running")) == 1)
            (first,), (claim,) = scene.pods(), scene.claims()
            clock.lead = timedelta(minutes=minutes)
            scene.cluster.delete(NODE_CLAIMS, claim["metadata"]["name"])
            deleted = scene.cluster.clock.monotonic()
            if is_killed:
                await scene.cluster.clock.sleep(30)
                await running.kill()
                scene.start(faults=watch.note_write, clock=clock)
            await scene.settle(lambda: is_leaving(scene, first), seconds=3600)
            stayed.append(scene.cluster.clock.monotonic() - deleted)
        assert watch.breaches == []

    run_controller(tmp_path, scenario)
    assert 19 * 60 - 1 <= stayed[0] < 19 * 60 + 15


def is_leaving(scene, pod):
    """Whether a pod is gone or its deletion has started."""
    uid = pod["metadata"]["uid"]
    return not any(
        each["metadata"]["uid"] == uid and "deletionTimestamp" not in each["metadata"]
        for each in scene.pods()
    )


@pytest.mark.parametrize(
    ("before", "after"),
    others_as_cluster_runs([(0, 5), (-5, 0), (-5, 5), (5, 0), (0, -5)], first=2),
)
def test_an_empty_node_stays_for_consolidate_after_despite_clock_changes(tmp_path, before, after):
    """The clock is set, from one lead in minutes to another, after the last pod has left."""
    stayed = []

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(minutes=before)
        quiet = {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "10m",
            "budgets": [{"nodes": "100%"}],
        }
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=quiet), deployment("web", 1)])
        scene.start(clock=clock)
        await scene.settle(lambda: len(scene.pods("Running")) == 1)
        await scene.cluster.clock.sleep(60)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.pods())
        left = scene.cluster.clock.monotonic()
        await scene.cluster.clock.sleep(30)
        clock.lead = timedelta(minutes=after)
        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"weight": 7}})  # claims are looked at
        await scene.settle(lambda: not scene.nodes(), seconds=3600)
        stayed.append(scene.cluster.clock.monotonic() - left)

    run_controller(tmp_path, scenario)
    assert 590 <= stayed[0] <= 690


@pytest.mark.parametrize("hours", HOURS)
def test_a_node_expires_at_its_age_despite_clock_changes(tmp_path, hours):
    """The API server dates its creation."""
    lifetimes = []

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        mortal = node_pool(template={"expireAfter": "1h"})
        scene.cluster.apply([NODE_CLASS, mortal, deployment("web", 1)])
        scene.start(clock=clock)
        await scene.settle(lambda: len(scene.pods("Running")) == 1)
        (claim,) = scene.claims()
        created = parse_time(claim["metadata"]["creationTimestamp"])

        def is_ending():
            return not any(
                each["metadata"]["uid"] == claim["metadata"]["uid"]
                and "deletionTimestamp" not in each["metadata"]
                for each in scene.claims()
            )

        await scene.settle(is_ending, seconds=7200)
        lifetimes.append((scene.cluster.clock.now() - created).total_seconds())

    run_controller(tmp_path, scenario)
    assert 3600 <= lifetimes[0] < 3660


def test_the_cluster_of_the_claims_sets_the_clock(tmp_path):
    async def scenario(scene):
        elsewhere, clock = (ControllerClock(scene.cluster.clock) for _ in range(2))
        elsewhere.lead, clock.lead = timedelta(hours=1), timedelta(minutes=5)
        scene.workload.server.clock = elsewhere
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.workload.apply([deployment("web", 1)])
        process = scene.start(clock=clock).process
        await scene.settle(lambda: len(scene.pods("Running")) == 1)
        await scene.cluster.clock.sleep(60)
        behind = scene.cluster.clock.now() - process.runtime.clock.now()
        assert timedelta() <= behind < timedelta(seconds=1)

    run_controller(tmp_path, scenario, split=True)


@pytest.mark.parametrize(("arguments", "minutes"), [((), 60), (("elsewhere",), 0)])
def test_renewals_of_a_lease_that_another_cluster_keeps_tell_no_time(tmp_path, arguments, minutes):
    """The first request is for the lease; its API server's clock is an hour ahead."""

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=-1)
        flags = (f"--leader-election-kubeconfig={each}" for each in arguments)
        process = scene.start(*flags, clock=clock).process
        await process.clients.for_lease().list_page(LEASES)
        lead = process.clock.now() - clock.now()
        assert timedelta(minutes=minutes, seconds=-1) <= lead <= timedelta(minutes=minutes)

    run_controller(tmp_path, scenario)
