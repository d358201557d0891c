"""Nodes come and go although controller and API server clocks differ."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.kubelets import KubeletTimes
from tests.controllers.cluster_runs import watch_invariants
from tests.controllers.injected_faults import ControllerClock, InjectedFaults, faulty_cloud
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.invariants import Invariants

HOURS = (5, -5)


@pytest.mark.parametrize("hours", HOURS)
def test_nodes_register_and_end_whatever_the_clock_shows(tmp_path, hours):
    """The API server dates the creation of a claim, the controller counts the time limits."""

    async def scenario(scene):
        (tmp_path / "faults.json").write_text("[]")
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene, now=clock.now)
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
def test_node_that_never_registers_is_given_up_whatever_the_clock_shows(tmp_path, hours):
    """After a launch by a clock that was ahead, the limit runs from that time."""

    async def scenario(scene):
        (tmp_path / "faults.json").write_text('[{"fault": "failed-node", "count": 1}]')
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene, now=clock.now)
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
def test_an_evicted_pod_has_its_grace_period_whatever_the_clock_shows(tmp_path, is_killed):
    """The API server dates its end; by a clock that is ahead its deletion would have hung."""
    ended = []

    async def scenario(scene):
        clock = ControllerClock(scene.cluster.clock)
        with watch_invariants(scene, now=clock.now) as watch:
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
