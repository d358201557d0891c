"""Obstacles of random histories take effect until they are removed."""

from __future__ import annotations

import json
import random
from contextlib import closing
from datetime import timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.kube.writer import WriteAttempt
from karpenter_core.sim.registry import render_time
from karpenter_provider_kwok.dump import dump_file
from tests.controllers.histories import History
from tests.controllers.injected_faults import ControllerClock, InjectedFaults, faulty_cloud
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.invariants import Invariants
from tests.support.run_selection import others_as_cluster_runs


class Scripted(random.Random):
    """A source of chance that chooses what the test wants, wherever that is to be had."""

    def __init__(self, *preferred):
        super().__init__(1)
        self.preferred = preferred

    def choice(self, seq):
        return next((each for each in self.preferred if each in seq), None) or super().choice(seq)


@pytest.fixture
def staged(tmp_path):
    """Return a function that injects faults into a controller whose pods all run."""

    def stage(scenario, *preferred, pool=None):
        async def observed_scenario(scene):
            (tmp_path / "faults.json").write_text("[]")
            clock = ControllerClock(scene.cluster.clock)
            watch = Invariants(scene)
            injected_faults = InjectedFaults(
                scene, tmp_path, Scripted(*preferred), clock=clock, watch=watch
            )
            with faulty_cloud(injected_faults):
                scene.cluster.apply([NODE_CLASS, pool or node_pool(), deployment("web", 2)])
                running = scene.start(clock=clock)
                await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
                await scenario(scene, injected_faults, running)

        run_controller(
            tmp_path,
            observed_scenario,
            arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"],
        )

    return stage


async def passes(scene, injected_faults, seconds):
    for _ in range(seconds // 30):
        await scene.cluster.clock.sleep(30)
        injected_faults.advance()


@pytest.mark.parametrize(
    ("how", "stale"),
    others_as_cluster_runs(
        [("forbidden", True), ("silent", False), ("no headers", False), ("no answer", True)],
        first=2,
    ),
)
def test_a_kind_is_frozen_for_a_time(staged, how, stale):
    """Answered lists show that an idle watch has missed nothing."""

    async def scenario(scene, injected_faults, running):
        faults = scene.cluster.frontend.faults
        injected_faults.rng.random = lambda: 0.5  # eleven minutes
        assert injected_faults.freeze() == f"poddisruptionbudgets: {how} for 657 s"
        await passes(scene, injected_faults, 540)
        assert faults.hits > 0
        failure = running.process.servers.failures().get("freshness", "")
        assert ("poddisruptionbudgets" in failure) is stale
        await passes(scene, injected_faults, 360)
        hits = faults.hits
        assert injected_faults.is_blind
        await passes(scene, injected_faults, 600)
        assert faults.hits == hits
        assert not injected_faults.is_blind
        assert "freshness" not in running.process.servers.failures()

    staged(scenario, "poddisruptionbudgets", how)


def test_the_clock_of_the_controller_jumps_and_is_put_right(staged):
    """The API server and the cloud keep their time, and decisions go by the API server's."""

    async def scenario(scene, injected_faults, running):
        assert injected_faults.set_clock() == "3 min"
        process = running.process
        ahead = process.platform.clock.now() - scene.cluster.clock.now()
        assert ahead == timedelta(minutes=3)
        behind = scene.cluster.clock.now() - process.runtime.clock.now()
        assert timedelta() <= behind < timedelta(seconds=1)
        assert -181 < running.metric("karpenter_core_clock_offset_seconds") <= -180
        scene.cluster.scale(DEPLOYMENTS, "web", 12)
        await scene.settle(lambda: len(scene.pods("Running")) == 12, seconds=120)
        cloud_dump = dump_file(
            str(injected_faults.folder / "kwok.sqlite3"), now=scene.cluster.clock.now()
        )
        now = scene.cluster.clock.now().timestamp()
        assert all(each["launchedAt"] <= now for each in cloud_dump["instances"])
        await passes(scene, injected_faults, 2400)
        assert running.process.runtime.clock.now() == scene.cluster.clock.now()

    staged(scenario, 3, 1)


def test_replies_are_lost_until_the_faults_end(staged):
    async def scenario(scene, injected_faults, running):
        injected_faults.rng.random = lambda: 0.0
        injected_faults.begin()
        faults = scene.cluster.frontend.faults
        scene.cluster.scale(DEPLOYMENTS, "web", 30)
        await scene.settle(lambda: len(scene.pods("Running")) == 30, seconds=600)
        assert faults.hits > 0
        injected_faults.ease()
        hits = faults.hits
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.claims(), seconds=600)
        assert faults.hits == hits

    staged(scenario)


def test_startup_taints_are_kept_until_others_remove_them(staged):
    taint = {"key": "example.com/agent", "effect": "NoSchedule"}

    def tainted(scene):
        return [each for each in scene.nodes() if taint in (each["spec"].get("taints") or ())]

    async def scenario(scene, injected_faults, running):
        name = scene.nodes()[0]["metadata"]["name"]
        injected_faults.send_agent_away()
        scene.cluster.patch(NODES, name, {"spec": {"taints": [taint]}})
        await passes(scene, injected_faults, 60)
        assert tainted(scene)
        injected_faults.ease()
        injected_faults.advance()
        assert not tainted(scene)

    staged(scenario)


def test_a_quota_is_lifted_in_time(staged):
    async def scenario(scene, injected_faults, running):
        injected_faults.cut_quota()
        (fault,) = json.loads((injected_faults.folder / "faults.json").read_text())
        assert fault["fault"] == "quota"
        await passes(scene, injected_faults, 3660)
        assert json.loads((injected_faults.folder / "faults.json").read_text()) == []

    staged(scenario)


def test_a_launch_is_deleted_while_its_reply_is_lost(tmp_path):
    """The instance exists without a reply, and it ends all the same."""

    async def scenario(scene):
        (tmp_path / "faults.json").write_text("[]")
        clock = ControllerClock(scene.cluster.clock)
        history = History(scene, tmp_path, 1, clock=clock, watch=Invariants(scene))
        history.rng.choice = Scripted(1, "1").choice
        scene.cluster.apply([NODE_CLASS, node_pool()])
        history.arguments = ["--kwok-launch-latency=2s"]
        history.start()
        with closing(history), faulty_cloud(history.injected_faults):
            await history._pass(60)
            deleted = []
            delete = scene.cluster.delete

            def noted(kind, name, **options):
                deleted.append(name)
                delete(kind, name, **options)

            scene.cluster.delete = noted
            await history.delete_unanswered()
            assert deleted
            history.ease()
            await history._pass(1800)
            launched = set(history.account().launches)
            assert launched
            assert not history.watch.breaches

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={tmp_path / 'faults.json'}"])


@pytest.mark.parametrize(
    ("by_whom", "is_gone"),
    [
        ("nobody", False),
        ("a user", False),
        ("a user", True),
        ("the controller", False),
        ("the controller", True),
    ],
)
def test_only_users_may_end_a_claim_that_boots_by_its_node(staged, by_whom, is_gone):
    """A Node is admitted before its claim shows that: its deletion then ends the claim too."""

    async def scenario(scene, injected_faults, _running):
        watch, cluster = injected_faults.watch, scene.cluster
        old = {claim["metadata"]["name"] for claim in scene.claims()}
        cluster.apply([deployment("more", 1, cpu="3")])
        await scene.settle(lambda: {claim["metadata"]["name"] for claim in scene.claims()} - old)
        (name,) = {claim["metadata"]["name"] for claim in scene.claims()} - old
        await scene.settle(
            lambda: (cluster.find(NODES, name) or {"metadata": {}})["metadata"].get("finalizers")
        )
        noted = {
            "lastTransitionTime": render_time(cluster.clock.now()),
            "reason": "",
            "message": "",
        }
        boots = [
            {"type": kind, "status": state, **noted}
            for kind, state in (("Launched", "True"), ("Registered", "Unknown"))
        ]
        cluster.server.registry.patch(
            NODE_CLAIMS, {"status": {"conditions": boots}}, name, part="status"
        )
        if by_whom == "the controller":
            await watch.note_write(WriteAttempt(verb="delete", kind=NODES, name=name, namespace=""))
        if by_whom != "nobody":
            if is_gone:
                cluster.server.registry.patch(NODES, {"metadata": {"finalizers": None}}, name)
            cluster.delete(NODES, name)
            assert (cluster.find(NODES, name) is None) is is_gone
        await watch.note_write(
            WriteAttempt(verb="delete", kind=NODE_CLAIMS, name=name, namespace="")
        )
        record_rejected = [each for each in watch.breaches if f"claim {name} given up" in each]
        assert len(record_rejected) == (by_whom != "a user")
        lost_pods = [each for each in watch.breaches if f"Node removed: {name}" in each]
        assert len(watch.breaches) == len(record_rejected) + len(lost_pods)
        assert len(lost_pods) == (is_gone and by_whom != "nobody")

    staged(scenario)
