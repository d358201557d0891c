"""Machines come up and go where the controller's clock is hours from the API server's."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from tests.controllers.obstacles import ControllerClock, Obstacles, shaken_cloud
from tests.controllers.scenes import NODE_CLASS, deployment, node_pool, play
from tests.support.invariants import Invariants

HOURS = (5, -5)


@pytest.mark.parametrize("hours", HOURS)
def test_machines_register_and_end_whatever_the_clock_shows(tmp_path, hours):
    """The API server dates the creation of a claim, the controller counts the time limits."""

    async def story(scene):
        (tmp_path / "faults.json").write_text("[]")
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene, now=clock.now)
        made = set()
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda change: made.add(change.stored.uid)
        )
        with shaken_cloud(Obstacles(scene, tmp_path, random.Random(1), clock=clock, watch=watch)):
            mortal = node_pool(template={"expireAfter": "1h"})
            scene.cluster.apply([NODE_CLASS, mortal, deployment("web", 1)])
            scene.start("--kwok-registration-delay=90s", faults=watch.note_write, clock=clock)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=300)
            assert len(made) == 1
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.claims(), seconds=600)
        assert watch.breaches == []

    play(tmp_path, story, arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"])


@pytest.mark.parametrize("hours", HOURS)
def test_a_machine_that_never_registers_is_given_up_whatever_the_clock_shows(tmp_path, hours):
    """Where the clock was ahead when the instance was launched, its limit runs from then on."""

    async def story(scene):
        (tmp_path / "faults.json").write_text('[{"fault": "failed-node", "count": 1}]')
        clock = ControllerClock(scene.cluster.clock)
        clock.lead = timedelta(hours=hours)
        watch = Invariants(scene, now=clock.now)
        with shaken_cloud(Obstacles(scene, tmp_path, random.Random(1), clock=clock, watch=watch)):
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

    play(tmp_path, story, arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"])
