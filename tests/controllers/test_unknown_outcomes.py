"""Claims and Nodes stay while the fate of their instances is unknown."""

from __future__ import annotations

import json

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.contract import Instance, InstanceListing
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.faults import RequestFault
from karpenter_core.sim.store import DELETED
from tests.controllers.cluster_runs import watch_invariants
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.provider.fakes import DataNodeClass, FakeProvider

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


def names(objects):
    return {each["metadata"]["name"] for each in objects}


class Stage:
    """A cluster and a cloud whose faults can be changed; notes what outlived a claim or a Node."""

    def __init__(self, scene, folder):
        self.scene, self._folder = scene, folder
        self.clock = scene.cluster.clock
        self.outlived = []
        for kind in (NODE_CLAIMS, NODES):
            scene.cluster.server.registry.store.listen(kind, self._note_end)

    def _note_end(self, change):
        if change.type == DELETED:
            name = change.stored.obj["metadata"]["name"]
            left = {each["nodeClaim"] for each in self.instances()}
            self.outlived += [(change.stored.kind.kind, name)] if name in left else []

    def cloud_fails(self, *faults):
        (self._folder / "faults.json").write_text(json.dumps(list(faults)))

    def instances(self):
        if not (self._folder / "kwok.sqlite3").exists():
            return []  # the process has only started
        return cloud(self.scene, self._folder)["instances"]

    def calls(self, operation):
        account = cloud(self.scene, self._folder)
        return [call for call in account["calls"] if call["operation"] == operation]

    def begin(self, *objects):
        self.scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), *objects])
        return self.scene.start(WITHOUT_ELECTION)

    async def until(self, holds, seconds=60.0):
        await self.scene.settle(holds, seconds=seconds)

    async def end_claim(self):
        """Delete the one claim, whose pods are no more; return its name."""
        await self.until(lambda: len(self.scene.claims()) == 1)
        (name,) = names(self.scene.claims())
        self.scene.cluster.scale(DEPLOYMENTS, "web", 0)
        self.scene.cluster.delete(NODE_CLAIMS, name)
        return name


def staged(folder, scenario, *faults, arguments=(), plugins=None):
    path = folder / "faults.json"
    path.write_text(json.dumps(list(faults)))
    run_controller(
        folder,
        lambda scene: scenario(Stage(scene, folder)),
        arguments=(f"--kwok-faults-file={path}", *arguments),
        plugins=plugins,
    )


LOST = {"fault": "lost-reply", "operation": "launch"}


class TestALaunchOfWhichNothingWasHeard:
    """The claim names no instance, and is deleted."""

    def test_unknown_instance_ends_before_its_claim(self, tmp_path):
        """An error of an unknown sort is not the answer that nothing was launched."""

        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.instances()) == 1)
            await stage.end_claim()
            assert not stage.scene.claims()[0].get("status", {}).get("providerID")

            await stage.until(lambda: not stage.scene.claims())

            assert stage.instances() == []
            assert stage.outlived == []

        staged(tmp_path, scenario, LOST)

    @pytest.mark.parametrize(
        "trouble",
        [
            {"fault": "partial-listing"},
            {"fault": "throttle", "operation": "list"},
            {"fault": "auth-failure", "operation": "list"},
            {"fault": "lost-reply", "operation": "list"},
        ],
        ids=lambda trouble: trouble["fault"],
    )
    def test_a_claim_is_kept_while_instances_cannot_be_listed(self, tmp_path, trouble):
        """A listing that lacks the instance proves nothing unless it is complete."""

        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.instances()) == 1)
            name = await stage.end_claim()
            await stage.clock.sleep(600)
            assert names(stage.scene.claims()) == {name}
            assert len(stage.instances()) == 1

            stage.cloud_fails()
            await stage.until(lambda: not stage.scene.claims(), seconds=120)

            assert stage.instances() == []
            assert stage.outlived == []

        staged(tmp_path, scenario, LOST, trouble)

    @pytest.mark.parametrize("fault", ["throttle", "auth-failure"])
    def test_a_refusal_proves_nothing_about_the_process_before(self, tmp_path, fault):
        """It was refused before the cloud looked for an instance with its token."""

        async def scenario(stage):
            first = stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.instances()) == 1)
            await first.kill()
            stage.cloud_fails({"fault": fault, "operation": "launch"})
            stage.scene.start(WITHOUT_ELECTION)
            await stage.clock.sleep(10)
            await stage.end_claim()

            await stage.until(lambda: not stage.scene.claims())

            assert stage.instances() == []
            assert stage.outlived == []

        staged(tmp_path, scenario, LOST)

    def test_a_refused_launch_needs_no_listing(self, tmp_path):
        """A refusal is an answer: such claims go although nothing can be listed."""
        throttle = {"fault": "throttle", "operation": "launch"}
        unlisted = {"fault": "throttle", "operation": "list"}

        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(
                lambda: stage.scene.events("FailedScheduling") or stage.scene.claims()
            )
            await stage.clock.sleep(5)
            await stage.end_claim()
            await stage.until(lambda: not stage.scene.claims(), seconds=90)

        staged(tmp_path, scenario, throttle, unlisted)

    def test_claim_waits_for_an_open_launch_call(self, tmp_path):
        """Past its time limit too: the cloud may carry it out at any moment."""
        slow = {"fault": "slow-call", "operation": "launch", "delay": "10m", "count": 1}

        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.scene.claims()) == 1)
            await stage.clock.sleep(280)
            name = await stage.end_claim()
            await stage.clock.sleep(240)
            assert stage.calls("launch") == []
            assert names(stage.scene.claims()) == {name}

            await stage.until(lambda: not stage.scene.claims(), seconds=240)

            assert len(stage.calls("launch")) == 1
            assert stage.instances() == []
            assert stage.outlived == []

        staged(tmp_path, scenario, slow)


class TestALaunchThatCouldNotBeWrittenDown:
    """The Node was let in and has pods, but its claim names no instance when it is deleted."""

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_its_node_is_drained_first(self, tmp_path, is_killed):
        """Whether the process that launched it goes on, or the next one finds the instance."""

        async def scenario(stage):
            scene, server = stage.scene, stage.scene.cluster
            unwritable = RequestFault(matches=is_status_of_claim, status=500, times=None)
            server.frontend.faults.add(unwritable)
            with watch_invariants(scene) as watch:
                running = stage.begin(deployment("web", 2))
                await stage.until(lambda: len(scene.pods("Running")) == 2)
                claims = names(scene.claims())
                assert not any(c.get("status", {}).get("providerID") for c in scene.claims())
                if is_killed:
                    await running.kill()
                for name in claims:
                    server.delete(NODE_CLAIMS, name)
                server.frontend.faults.remove(unwritable)
                if is_killed:
                    scene.start(WITHOUT_ELECTION)
                await stage.until(lambda: not claims & names(scene.claims()), seconds=300)
                assert not claims & names(scene.nodes())
                assert not claims & {each["nodeClaim"] for each in stage.instances()}
            assert watch.breaches == []
            assert stage.outlived == []

        staged(tmp_path, scenario)


def is_status_of_claim(request):
    return request.method == "PATCH" and "/nodeclaims/" in request.path and "status" in request.path


class TestAnInstanceThatEndsSlowly:
    """The cloud has started a termination, but the instance is not gone."""

    def test_a_claim_without_a_node_is_kept_until_its_instance_is_gone(self, tmp_path):
        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.instances()) == 1)
            await stage.clock.sleep(5)
            assert stage.scene.nodes() == []
            name = await stage.end_claim()
            await stage.clock.sleep(60)
            assert [each["state"] for each in stage.instances()] == ["shutting-down"]
            assert names(stage.scene.claims()) == {name}

            await stage.until(lambda: not stage.scene.claims())

            assert stage.outlived == []
            assert stage.calls("terminate")[-1]["result"] == "gone"

        staged(
            tmp_path,
            scenario,
            arguments=("--kwok-termination-delay=90s", "--kwok-registration-delay=10m"),
        )

    @pytest.mark.parametrize("kind", [NODES, NODE_CLAIMS], ids=lambda kind: kind.kind)
    def test_node_and_claim_are_kept_until_the_instance_is_gone(self, tmp_path, kind):
        async def scenario(stage):
            stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.scene.pods("Running")) == 1)
            (name,) = names(stage.scene.nodes())
            stage.scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await stage.until(lambda: not stage.scene.pods())
            stage.scene.cluster.delete(kind, name)
            await stage.clock.sleep(60)
            assert [each["state"] for each in stage.instances()] == ["shutting-down"]
            assert names(stage.scene.nodes()) == names(stage.scene.claims()) == {name}

            await stage.until(lambda: not stage.scene.claims() and not stage.scene.nodes())

            assert stage.outlived == []

        staged(tmp_path, scenario, arguments=("--kwok-termination-delay=90s",))


class DataProvider(FakeProvider):
    """A second cloud, which lists the instances that were launched in it."""

    def __init__(self):
        super().__init__("data", DataNodeClass)

    @hookimpl
    def karpenter_list_instances(self):
        names = (name for call in self.launches for name in call)
        there = tuple(Instance(provider_id=f"fake://{name}") for name in names)
        return InstanceListing(instances=there)


class TestGarbageCollection:
    def test_a_claim_is_judged_by_the_provider_that_serves_its_class(self, tmp_path):
        """Instances missing from another cloud's listing do not matter."""
        data = DataProvider()
        ref = {"group": "data.example.com", "kind": "DataNodeClass", "name": "default"}
        objects = [
            {
                "apiVersion": "data.example.com/v1",
                "kind": "DataNodeClass",
                "metadata": {"name": "default"},
                "spec": {},
            },
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {"name": "mine"},
                "spec": {"nodeClassRef": ref, "requirements": [], "expireAfter": "Never"},
            },
        ]
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "mine"},
            "spec": {
                "providerID": "fake://mine",
                "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
            },
        }

        async def scenario(stage):
            stage.begin(*objects)
            await stage.until(lambda: data.launches == [["mine"]])
            stage.scene.cluster.apply([node])
            await stage.until(lambda: registered(stage.scene.claims()) == {"mine"})
            stage.scene.cluster.kubelets.fail("mine")

            await stage.clock.sleep(600)

            (claim,) = stage.scene.claims()
            assert "deletionTimestamp" not in claim["metadata"]
            data.launches.clear()
            await stage.until(lambda: not stage.scene.claims(), seconds=300)

        staged(tmp_path, scenario, plugins={"data": data})

    def test_a_claim_that_cannot_be_read_keeps_its_instance(self, tmp_path):
        """A new process never had it in memory; the API server says that it is there."""

        async def scenario(stage):
            old = stage.begin(deployment("web", 1))
            await stage.until(lambda: len(stage.scene.pods("Running")) == 1)
            (before,) = stage.instances()
            await old.stop()
            corrupt(stage.scene, before["nodeClaim"])
            stage.scene.start(WITHOUT_ELECTION)

            await stage.clock.sleep(900)

            assert stage.instances()[0]["token"] == before["token"]
            assert stage.calls("terminate") == []

        staged(tmp_path, scenario)


def registered(claims):
    return {
        claim["metadata"]["name"]
        for claim in claims
        for each in claim.get("status", {}).get("conditions", ())
        if each["type"] == "Registered" and each["status"] == "True"
    }


def corrupt(scene, claim):
    """Store a value that no admission would let pass: an older version's, or a broken webhook's."""
    registry = scene.cluster.server.registry
    result = registry.read(NODE_CLAIMS, claim)
    registry.store.put(NODE_CLAIMS, {**result, "spec": {**result["spec"], "expireAfter": "soon"}})
